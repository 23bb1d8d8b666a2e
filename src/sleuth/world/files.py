"""A set of worlds as files: the corpus and the question sets that training and evaluation read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.types import Question
from sleuth.world.questions import QuestionMix, draw_questions
from sleuth.world.world import World, WorldSettings

SPLITS = ("train", "dev", "test")


class SplitSettings(BaseModel):
    """Worlds of a split and questions in all, spread evenly over them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: int = Field(ge=1)
    questions: int = Field(ge=1)


class WorldSetSettings(BaseModel):
    """Everything that decides a set of worlds. No world belongs to two splits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    world: WorldSettings = WorldSettings()
    mix: QuestionMix = QuestionMix()
    train: SplitSettings = SplitSettings(worlds=400, questions=20_000)
    dev: SplitSettings = SplitSettings(worlds=40, questions=400)
    test: SplitSettings = SplitSettings(worlds=60, questions=900)


class WorldSet:
    """The worlds of all splits, called ``w0000``, ``w0001``, … through train, dev and test in this order."""

    def __init__(self, settings: WorldSetSettings | None = None):
        self.settings = settings or WorldSetSettings()

    @cached_property
    def worlds(self) -> dict[str, World]:
        """All worlds by name."""
        total = sum(self._split(split).worlds for split in SPLITS)
        names = [f"w{number:04d}" for number in range(total)]
        return {name: World.create(name, self.settings.seed, self.settings.world) for name in names}

    def worlds_of(self, split: str) -> list[World]:
        """The worlds of ``train``, ``dev`` or ``test``."""
        first = sum(self._split(before).worlds for before in SPLITS[: SPLITS.index(split)])
        return list(self.worlds.values())[first : first + self._split(split).worlds]

    def questions(self, split: str) -> list[Question]:
        """The questions of a split, its worlds taking turns, so that the first n rows cover as many worlds as possible.

        Raises:
            UserError: the worlds are too small for so many different questions.
        """
        worlds, count = self.worlds_of(split), self._split(split).questions
        each = -(-count // len(worlds))
        by_world = [draw_questions(world, each, self.settings.seed, self.settings.mix) for world in worlds]
        return [question for turn in zip(*by_world, strict=True) for question in turn][:count]

    def passages(self) -> Iterator[dict[str, str]]:
        """Rows of the corpus, in Search-R1's form and with title, text and world apart."""
        for world in self.worlds.values():
            for document in world.documents:
                yield {
                    "id": document.id,
                    "contents": f'"{document.title}"\n{document.text}',
                    "title": document.title,
                    "text": document.text,
                    "corpus": world.name,
                }

    def _split(self, split: str) -> SplitSettings:
        return {"train": self.settings.train, "dev": self.settings.dev, "test": self.settings.test}[split]


@dataclass(frozen=True, slots=True)
class WorldSetFiles:
    """Where :func:`write_world_set` put things."""

    corpus: Path
    train: Path
    dev: Path
    test: Path
    settings: Path

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> WorldSetFiles:
        folder = Path(folder)
        train, dev, test = (folder / f"{split}.jsonl" for split in SPLITS)
        return cls(folder / "corpus.jsonl", train, dev, test, folder / "settings.json")


def write_world_set(settings: WorldSetSettings, folder: str | os.PathLike[str]) -> WorldSetFiles:
    """Write corpus, question sets and settings; the same settings give the same bytes.

    Raises:
        UserError: the worlds are too small for so many different questions.
    """
    world_set, files = WorldSet(settings), WorldSetFiles.in_folder(folder)
    write_jsonl(files.corpus, world_set.passages())
    for split, path in zip(SPLITS, (files.train, files.dev, files.test), strict=True):
        write_jsonl(path, (_question_row(question) for question in world_set.questions(split)))
    files.settings.write_text(settings.model_dump_json(indent=2) + "\n")
    return files


def read_world_set(folder: str | os.PathLike[str]) -> WorldSet:
    """The world set that was written to ``folder``, drawn again from its settings.

    Raises:
        UserError: ``settings.json`` is missing or isn't one of ours.
    """
    path = WorldSetFiles.in_folder(folder).settings
    try:
        return WorldSet(WorldSetSettings.model_validate_json(path.read_text()))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; name a folder that a world set was written to") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; write the world set again") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {field}: {first['msg']}; write the world set again") from None


def _question_row(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "golden_answers": question.golden_answers,
        "data_source": question.data_source,
        "corpus": question.corpus,
        "supporting_titles": question.supporting_titles,
        **question.extra,
    }

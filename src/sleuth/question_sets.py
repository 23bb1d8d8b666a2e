"""The question sets of a run: loaded, filtered, kept apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sleuth.data.benchmarks import is_benchmark, load_benchmarks
from sleuth.data.benchmarks.sealed import CANARY
from sleuth.data.overlap import question_key
from sleuth.data.questions import load_questions
from sleuth.errors import UserError
from sleuth.recipes.schema import DataSettings, Recipe
from sleuth.seeds import derive_seed
from sleuth.types import Question

SPLITS = ("train", "dev", "test")

Say = Callable[[str], None]


@dataclass(slots=True)
class QuestionSets:
    """What a run trains on, decides by and reports on.

    Attributes:
        shared: questions that were in ``test`` (or ``dev``) as well and therefore left ``train``.
    """

    train: list[Question] = field(default_factory=list)
    dev: list[Question] = field(default_factory=list)
    test: list[Question] = field(default_factory=list)
    shared: int = 0


def world_files(recipe: Recipe, run_dir: Path) -> Any:
    """The files of the recipe's world in ``run_dir/world``, written if they aren't there; None without a world.

    Raises:
        UserError: settings that no world can have.
    """
    if recipe.world is None:
        return None
    from sleuth.world.files import WorldSetFiles, write_world_set

    folder = run_dir / "world"
    files = WorldSetFiles.in_folder(folder)
    wanted = recipe.world.model_dump_json(indent=2) + "\n"
    whole = all(path.is_file() for path in (files.corpus, files.train, files.dev, files.test, files.settings))
    if whole and files.settings.read_text() == wanted:
        return files
    return write_world_set(recipe.world, folder)


def question_sets(
    recipe: Recipe, world: Any = None, *, splits: Sequence[str] = SPLITS, say: Say = lambda line: None
) -> QuestionSets:
    """Train, dev and test questions.

    Where no dev set is named, ``data.dev_size`` questions are split off train by the recipe's seed (at most half).
    Questions of test, or of a named dev set, leave train, and a test question leaves a named dev set.

    Args:
        world: the files of the recipe's world, used for the sets that the recipe doesn't name.
        splits: the sets that are wanted; the others stay empty.

    Raises:
        UserError: an unreadable set, one that the filters leave empty, or a sealed benchmark in a training run.
    """
    data = recipe.data
    sources: dict[str, Any] = {
        split: getattr(data, split) or (str(getattr(world, split)) if world is not None else None) for split in splits
    }
    loaded = {split: _load(source, _conditions(data, split)) if source else [] for split, source in sources.items()}
    train, dev, test = (loaded.get(split, []) for split in SPLITS)
    if "train" in splits:
        _refuse_sealed([*train, *dev, *test])
    if data.test_limit is not None:
        test = limited(test, data.test_limit, recipe.seed)
    train, shared = without(train, [*test, *dev])
    dev, shared_dev = without(dev, test)
    if shared:
        say(f"{shared} training questions are in the {'dev or ' if dev else ''}test set too; training leaves them out")
    if shared_dev:
        say(f"{shared_dev} dev questions are in the test set too; dev leaves them out")
    if shared and not train:
        raise UserError("every training question is a dev or test question too; give other training questions")
    if train and not dev and "dev" in splits:
        train, dev = split_off(train, data.dev_size, recipe.seed)
    return QuestionSets(train, dev, test, shared)


def limited(questions: Sequence[Question], limit: int | Mapping[str, int], seed: int) -> list[Question]:
    """At most ``limit`` questions of each data source, in their old order.

    Which ones is decided by a hash of the seed and their ids, so that the order of the file changes nothing.

    Args:
        limit: of every source, or by source; ``default`` is that of the sources without one of their own.
    """
    limits = limit if isinstance(limit, Mapping) else {"default": limit}
    by_source: dict[str, list[int]] = {}
    for position, question in enumerate(questions):
        by_source.setdefault(question.data_source, []).append(position)
    kept: list[int] = []
    for source, positions in by_source.items():
        ranked = sorted(positions, key=lambda p: derive_seed(seed, "limit", questions[p].id))
        kept += ranked[: limits.get(source, limits.get("default", len(ranked)))]
    return [questions[position] for position in sorted(kept)]


def without(questions: Sequence[Question], others: Iterable[Question]) -> tuple[list[Question], int]:
    """``questions`` less those that are in ``others`` too, and how many those were.

    Two questions are the same if their words are (:func:`sleuth.data.overlap.question_key`) and the part of the corpus.
    """
    taken = {_identity(question) for question in others}
    kept = [question for question in questions if _identity(question) not in taken]
    return kept, len(questions) - len(kept)


def split_off(questions: Sequence[Question], size: int, seed: int) -> tuple[list[Question], list[Question]]:
    """(the rest, ``size`` questions drawn by seed), at most half of them; the same question is never on both sides."""
    identities = list(dict.fromkeys(_identity(question) for question in questions))
    drawn = random.Random(derive_seed(seed, "dev")).sample(identities, len(identities))
    chosen: set[tuple[str, str]] = set(drawn[: min(size, len(identities) // 2)])
    rest = [question for question in questions if _identity(question) not in chosen]
    return rest, [question for question in questions if _identity(question) in chosen]


def _load(source: str | Sequence[str], where: Mapping[str, Any]) -> list[Question]:
    """Of files, folders, `datasets` names and benchmarks by their names (where no file is called so)."""
    sources = [source] if isinstance(source, str) else list(source)
    named = [name for name in sources if is_benchmark(name) and not Path(name).exists()]
    if not named:
        return load_questions(sources, where=where)
    if where:
        raise UserError(f"{named[0]} is a benchmark by name, which is taken whole; drop the conditions {dict(where)}")
    others = [name for name in sources if name not in named]
    questions = load_questions(others) if others else []
    return [*questions, *(question for one in load_benchmarks(named) for question in one.questions)]


def _refuse_sealed(questions: Iterable[Question]) -> None:
    """A training run writes its rollouts in the open; `sleuth eval` encrypts those of such a benchmark."""
    sealed = next((question.data_source for question in questions if CANARY in question.extra), None)
    if sealed is not None:
        raise UserError(f"{sealed} is published encrypted, to stay out of training; leave it to `sleuth eval`")


def _identity(question: Question) -> tuple[str, str]:
    return question_key(question.question), question.corpus or ""


def _conditions(data: DataSettings, split: str) -> dict[str, Any]:
    """``data.<split>_where`` without the fields set to null, which is how a recipe drops one that it inherited."""
    return {name: value for name, value in getattr(data, f"{split}_where").items() if value is not None}

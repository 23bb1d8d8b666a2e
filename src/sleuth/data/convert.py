"""Question sets from one form into another, row by row; a file appears only when it is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from sleuth.data.contexts import Pool, paragraphs_of, pooled_question
from sleuth.data.forms import question_row
from sleuth.data.questions import Source, select_questions, write_questions
from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates, write_atomically, write_jsonl
from sleuth.types import Question

Form = Literal["questions", "flashrag", "search-r1", "verl"]
"""``questions`` and ``flashrag`` are JSONL, ``search-r1`` is the parquet that Search-R1 and verl train on; ``verl`` is
the same, and names Sleuth's agent loop in each row."""

AGENT_LOOP = "search_tags"


@dataclass(slots=True)
class Conversion:
    """What was written. ``incomplete`` counts the questions of which some supporting title is in no paragraph."""

    questions: int = 0
    passages: int = 0
    incomplete: int = 0


def convert(
    source: Source,
    target: str | os.PathLike[str],
    *,
    form: Form | None = None,
    corpus: str | os.PathLike[str] | None = None,
    where: Mapping[str, Any] | None = None,
    limit: int | None = None,
    prompt: str = "{question}",
) -> Conversion:
    """Write the questions of ``source`` to ``target``.

    Args:
        source: anything that :func:`sleuth.data.rows.read_rows` reads.
        form: of the target; None: ``search-r1`` for a name that ends in ``.parquet``, else ``questions``.
        corpus: pool the paragraphs that the rows bring with them into this JSONL file, each once, and put their ids
            into the questions (:func:`sleuth.data.contexts.pooled_question`). The source is then read twice.
        where, limit: as in :func:`sleuth.data.questions.load_questions`.
        prompt: of ``search-r1`` and ``verl``: what the trainer shows, with ``{question}`` in its place.

    Raises:
        UserError: a broken row, nothing selected, no paragraphs for the corpus, a target of the wrong ending.
    """
    target = Path(target)
    form = form or ("search-r1" if target.suffix == ".parquet" else "questions")
    _check_target(target, form, prompt)
    done = Conversion()
    pool = Pool()
    if corpus is not None:
        if Path(corpus) == target:
            raise UserError(f"{corpus}: questions and corpus need two files")
        write_jsonl(corpus, _passages(source, where, limit, pool))
        done.passages = len(pool)

    def questions() -> Iterator[Question]:
        for row, question in select_questions(source, where=where, limit=limit):
            done.questions += 1
            if corpus is not None:
                paragraphs = paragraphs_of(row)
                question = pooled_question(question, paragraphs, pool)
                done.incomplete += not {p.title for p in paragraphs}.issuperset(question.supporting_titles)
            yield question

    if form == "questions":
        write_questions(target, questions())
    elif form == "flashrag":
        write_jsonl(target, map(_flashrag_row, questions()))
    else:
        _write_parquet(target, questions(), prompt, AGENT_LOOP if form == "verl" else None)
    return done


def _check_target(target: Path, form: str, prompt: str) -> None:
    if form not in get_args(Form):
        raise UserError(f'form "{form}": must be one of {", ".join(get_args(Form))}')
    parquet = target.suffix == ".parquet"
    if parquet != (form in ("search-r1", "verl")):
        raise UserError(f"{target}: {form} is written as {'.jsonl' if parquet else '.parquet'}; rename it")
    if "{question}" not in prompt:
        raise UserError("prompt: has no {question}, the place where the question goes")


def _passages(
    source: Source, where: Mapping[str, Any] | None, limit: int | None, pool: Pool
) -> Iterator[dict[str, str]]:
    for row, _ in select_questions(source, where=where, limit=limit):
        yield from pool.add(paragraphs_of(row))
    if not len(pool):
        raise UserError(f"{source}: no row brings paragraphs (context, contexts or paragraphs); leave out the corpus")


def _flashrag_row(question: Question) -> dict[str, Any]:
    row = question_row(question)
    own = {name: row.pop(name) for name in ("id", "question", "golden_answers")}
    return own | {"metadata": row}


# ---------------------------------------------------------------------------------------------------------------------
# Parquet

_ROW_GROUP = 1000


def _write_parquet(target: Path, questions: Iterable[Question], prompt: str, agent_loop: str | None) -> None:
    """The columns that Search-R1 and verl read, and ``extra_info.sleuth``, JSON of all that they have no place for."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(f"{target}: writing parquet needs pyarrow; pip install 'sleuth[parquet]'") from None
    texts = pa.list_(pa.string())
    columns = {
        "id": pa.string(),
        "question": pa.string(),
        "golden_answers": texts,
        "data_source": pa.string(),
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "ability": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.struct({"target": texts})}),
        "extra_info": pa.struct(
            {"index": pa.int64(), "split": pa.string(), "question": pa.string(), "sleuth": pa.string()}
        ),
    }
    schema = pa.schema(columns if agent_loop is None else {**columns, "agent_name": pa.string()})
    with ExitStack() as stack:
        raw = stack.enter_context(write_atomically(target))
        writer = stack.enter_context(parquet.ParquetWriter(raw, schema))
        named = {} if agent_loop is None else {"agent_name": agent_loop}
        rows = (_parquet_row(question, index, prompt) | named for index, question in enumerate(questions))
        while batch := list(islice(rows, _ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _parquet_row(question: Question, index: int, prompt: str) -> dict[str, Any]:
    rest = question_row(question)
    for name in ("id", "question", "golden_answers", "data_source"):
        del rest[name]
    text = replace_surrogates(question.question)
    answers = [replace_surrogates(answer) for answer in question.golden_answers]
    return {
        "id": replace_surrogates(question.id),
        "question": text,
        "golden_answers": answers,
        "data_source": replace_surrogates(question.data_source),
        "prompt": [{"role": "user", "content": prompt.replace("{question}", text)}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": answers}},
        "extra_info": {
            "index": index,
            "split": str(question.extra.get("split", "")),
            "question": text,
            "sleuth": json.dumps(rest),
        },
    }

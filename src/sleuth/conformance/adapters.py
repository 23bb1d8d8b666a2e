"""Other tools' functions under the one question that a case asks.

A grader comes in the shapes that trainers have: ``answer`` is ``f(prediction, golden_answers)``; ``solution`` is verl's
and Search-R1's ``f(solution_str, ground_truth)`` on the text of a rollout; ``completions`` is TRL's
``f(completions, **columns)`` on a batch.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from sleuth.conformance.cases import Case, evaluation_rows, golden_answers_of, transcript_text
from sleuth.errors import UserError
from sleuth.plugins import load_object

Shape = Literal["answer", "solution", "completions"]
Function = Callable[..., Any]

_PROMPT = (
    "Answer inside <answer> and </answer>, for example <answer> Beijing </answer>. Question: what is asked here?\n"
    "<think>I know.</think>"
)
_GOLD_COLUMNS = ("solution", "golden_answers", "answer", "ground_truth", "target")


class Refused(Exception):
    """The function under test raised."""


def load_function(name: str) -> Function:
    """A user's ``module:function``.

    Raises:
        UserError: not such a name, or nothing callable.
    """
    function = load_object(name)
    if not callable(function):
        raise UserError(f"{name} is not callable; name a function")
    return function


def shape_of(function: Function, wanted: str | None = None) -> Shape:
    """The shape of a grader: as ``wanted``, else by the names of its parameters.

    Raises:
        UserError: an unknown shape.
    """
    shapes = get_args(Shape)
    if wanted is not None:
        if wanted not in shapes:
            raise UserError(f"--as {wanted} is not known; write {', '.join(shapes)}")
        return wanted  # type: ignore[return-value]
    names = _parameters(function)
    if "solution_str" in names:
        return "solution"
    return "completions" if "completions" in names else "answer"


def graded(function: Function, shape: Shape, case: Case, *, with_prompt: bool = False) -> Any:
    """What a grader says of an ``em``, ``cover_em`` or ``transcript`` case: a number, or None for no verdict.

    Args:
        with_prompt: a ``solution`` function gets the prompt in front of the rollout, as Search-R1's does.

    Raises:
        Refused: it raised.
        UserError: what it returned is no number.
        LookupError: it can't be asked: an ``answer`` function knows no rollouts.
    """
    golds = golden_answers_of(case)
    if case.seam == "transcript":
        if shape == "answer":
            raise LookupError("a function of prediction and golden answers is not asked about rollouts")
        text = transcript_text(case, prompt=with_prompt)
    else:
        text = f"<answer>{case.input['prediction']}</answer>"
        text = _PROMPT + text if with_prompt else text
    if shape == "answer":
        return _number(function, shape, case, _call(function, case.input["prediction"], golds))
    if shape == "solution":
        target = golds if isinstance(golds, Mapping) else {"target": golds}
        given: dict[str, Any] = {"solution_str": text, "ground_truth": target}
        if "data_source" in _parameters(function):
            given["data_source"] = "searchR1_nq"
        return _number(function, shape, case, _call(function, **given))
    return _number(function, shape, case, _call(function, **_columns(function, case, text, golds)))


def extracted(function: Function, case: Case) -> Any:
    """The answer that ``f(text)`` takes from a rollout's text.

    Raises:
        Refused: it raised.
        UserError: what it returned is neither text nor None.
    """
    said = _call(function, transcript_text(case, prompt=False))
    if said is not None and not isinstance(said, str):
        raise _wrong(function, case, said, "an extractor returns the answer's text, or None")
    return said.strip() if said is not None else None


def parsed(function: Function, case: Case) -> tuple[Any, Any]:
    """(action, content) that ``f(text)`` finds in one turn: ``search``, ``answer`` or None, and what is in it.

    Understood are such a pair, an object with ``action`` and ``content``, and None.

    Raises:
        Refused: it raised.
        UserError: what it returned is nothing of that.
    """
    returned = said = _call(function, case.input["text"])
    if isinstance(said, Mapping):
        said = (said.get("action"), said.get("content"))
    if said is None:
        return None, None
    pair = tuple(said) if isinstance(said, tuple | list) else ()
    if len(pair) != 2 or not all(part is None or isinstance(part, str) for part in pair):
        raise _wrong(function, case, returned, "a parser returns (action, content), two texts or None each")
    action, content = pair
    return action or None, content.strip() if content is not None and action else None


def evaluated(function: Function, case: Case) -> list[dict[str, float]]:
    """What ``f(rows, batch_size)`` scores, id → exact match, for each batch size and order of the case.

    Raises:
        Refused: it raised.
        UserError: what it returned are no rows of ``id`` and ``em``.
    """
    results = []
    for shuffled in case.input["shuffle"]:
        for batch in case.input["batches"]:
            rows = evaluation_rows(case.input["rows"])
            if shuffled:
                random.Random(7).shuffle(rows)
            said = _call(function, rows, batch)
            try:
                results.append({str(row["id"]): float(row["em"]) for row in said})
            except (TypeError, LookupError, ValueError):
                raise _wrong(function, case, said, "an evaluator returns rows of id and em") from None
    return results


def _columns(function: Function, case: Case, text: str, golds: Any) -> dict[str, Any]:
    names = _parameters(function)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    columns = {
        "prompts": [[{"role": "user", "content": case.input.get("question", "")}]],
        **{name: [golds] for name in _GOLD_COLUMNS},
    }
    if "solution" in names and isinstance(golds, list) and golds:
        columns["solution"] = [golds[0]]  # TRL's own column holds one text
    wanted = {name: value for name, value in columns.items() if takes_all or name in names}
    return {"completions": [[{"role": "assistant", "content": text}]], **wanted}


def _parameters(function: Function) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _call(function: Function, *args: Any, **kwargs: Any) -> Any:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # graders print, and our output may be JSON
            return function(*args, **kwargs)
    except Exception as error:
        raise Refused(f"raised {type(error).__name__}: {error}".splitlines()[0]) from None


_RETURNS = {
    "answer": "a grader returns a number",
    "solution": "a reward returns a number, or an object with the number as score",
    "completions": "a reward of completions returns a list with a number (or None) for each",
}


def _number(function: Function, shape: Shape, case: Case, returned: Any) -> float | None:
    """The number in what a grader returned; only in a list, as TRL has them, None says that there is no verdict."""
    said = returned
    if isinstance(said, Mapping) and "score" in said:
        said = said["score"]
    if isinstance(said, list | tuple) and len(said) == 1:
        if said[0] is None and shape == "completions":
            return None
        said = said[0]
    if hasattr(said, "item"):  # numpy's and torch's
        with contextlib.suppress(ValueError, RuntimeError, TypeError):
            said = said.item()
    if isinstance(said, bool | int | float):
        return float(said)
    raise _wrong(function, case, returned, _RETURNS[shape])


def _wrong(function: Function, case: Case, returned: Any, wanted: str) -> UserError:
    """What can be no verdict on any case: the wrong function, or one of another shape."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    shown = repr(returned)
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return UserError(f"{name} returned {shown} ({type(returned).__name__}) for {case.title}; {wanted}")

"""`sleuth anchors build`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sleuth.anchors.build import Built, Collect, build_anchors
from sleuth.anchors.verify import Answers
from sleuth.commands.folders import check_output_file, check_writable
from sleuth.commands.terminal import console
from sleuth.errors import UserError

_PROBLEMS_SHOWN = 10


def build(
    questions: str,
    *,
    corpus: str,
    output: Path,
    answers: Answers | None,
    strict: bool,
    collect: str | None,
    model: str | None,
    settings: Sequence[str],
    limit: int | None,
    force: bool,
) -> int:
    """Make or go on with a file of anchors; 0, or 1 where questions are left for another try.

    Args:
        corpus: passages, an index folder or a server's address.
        answers: None: ``hide`` in supporting passages, ``refuse`` from a model.
        collect: an endpoint's address or a model (folder or hub name) that looks for evidence.
        settings: ``endpoint.FIELD=VALUE`` and fields of :class:`sleuth.anchors.collect.CollectSettings`.

    Raises:
        UserError: a wrong input.
    """
    from sleuth.data.questions import load_questions

    if force:
        check_output_file(output, force=True)
        output.unlink(missing_ok=True)
    check_writable(output.parent)
    rows = load_questions(questions, limit=limit)
    retriever = open_retriever(corpus)
    look = None if collect is None else _collector(collect, model, settings, retriever, answers or "refuse")
    if look is None and (settings or model):
        raise UserError("--model and --set belong to --collect; name an endpoint or a model there")
    err = console(stderr=True)
    built = build_anchors(
        rows,
        retriever,
        output,
        answers=answers or "hide",
        strict=strict,
        collect=look,
        say=lambda done, of: err.print(f"{done:,} of {of:,} questions", soft_wrap=True) if done % 1024 == 0 else None,
    )
    _print(built, output)
    return 1 if built.failed else 0


def open_retriever(corpus: str) -> Any:
    """The retriever over a passages file, an index folder or a server.

    Raises:
        UserError: it can't be opened.
    """
    from sleuth.assembly import build_retriever
    from sleuth.recipes.schema import Recipe, RetrieverSettings

    if corpus.startswith(("http://", "https://")):
        settings = RetrieverSettings(kind="http", settings={"url": corpus})
    elif (Path(corpus).expanduser() / "manifest.json").is_file():
        settings = RetrieverSettings(kind="index", corpus=corpus)
    else:
        settings = RetrieverSettings(corpus=corpus)
    return build_retriever(Recipe(name="anchors", retriever=settings))[0]


def _collector(source: str, model: str | None, settings: Sequence[str], retriever: Any, answers: Answers) -> Collect:
    from sleuth.anchors.collect import CollectSettings, collect_anchors
    from sleuth.recipes.yaml_text import YamlError, parse_yaml
    from sleuth.samplers.openai_compatible import EndpointSettings, OpenAIWriter

    own: dict[str, Any] = {}
    endpoint: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting}: write FIELD=VALUE")
        try:
            value = parse_yaml(text)
        except YamlError as error:
            raise UserError(f"--set {setting}: {error}") from None
        (endpoint if name.startswith("endpoint.") else own)[name.removeprefix("endpoint.")] = value
    try:
        collecting = CollectSettings(**own)
        writer: Any
        if source.startswith(("http://", "https://")):
            if model is None:
                raise UserError(f"name the model that {source} serves: --model NAME")
            writer = OpenAIWriter(EndpointSettings(url=source, model=model, **endpoint))
        else:
            if endpoint or model:
                raise UserError(
                    f"--collect {source} is a local model; --model and endpoint settings are for an address"
                )
            writer = _local(source)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return partial(collect_anchors, writer=writer, retriever=retriever, answers=answers, settings=collecting)


def _local(source: str) -> Any:
    """A local model as a writer."""
    from sleuth.agent.codec import TokenCodec
    from sleuth.agent.episode import Limits
    from sleuth.assembly import build_model, build_sampler, build_tokenizer, fit_limits
    from sleuth.recipes.schema import Recipe
    from sleuth.samplers.local_writer import LocalWriter

    recipe = Recipe(name="anchors", model=source)
    network = build_model(recipe)
    window = fit_limits(Limits(), network.config).max_context
    return LocalWriter(build_sampler(recipe, network), TokenCodec(build_tokenizer(recipe)), window)


def _print(built: Built, output: Path) -> None:
    out, err = console(), console(stderr=True)
    for question, problem in built.problems[:_PROBLEMS_SHOWN]:
        err.print(f"{question}: {problem}", soft_wrap=True)
    if len(built.problems) > _PROBLEMS_SHOWN:
        err.print(f"… and {len(built.problems) - _PROBLEMS_SHOWN:,} more; each row holds its own as problems")
    if built.without_support:
        err.print(f"{built.without_support:,} questions name no evidence and got no row; --collect looks for it")
    if built.failed:
        err.print(f"{built.failed:,} questions failed; run the same command again to try them once more")
    if not built.rows and not built.failed:
        out.print(f"{output}: {built.kept:,} rows were there, none is to be made (--force begins anew)", soft_wrap=True)
        return
    mean = built.anchors / max(built.anchored, 1)
    out.print(
        f"{output}: {built.rows:,} rows made, {built.kept:,} were there; {built.anchored:,} of those made have anchors "
        f"({mean:.1f} each), {len(built.problems):,} anchors were not sound",
        soft_wrap=True,
    )

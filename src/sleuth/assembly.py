"""From a recipe to the parts of a run: model, protocol, retriever, reward, question sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleuth.agent.agent import SearchAgent
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.devices import own_device
from sleuth.errors import UserError
from sleuth.plugins import load_object
from sleuth.question_sets import SPLITS, QuestionSets, Say, question_sets, world_files
from sleuth.recipes.schema import Recipe
from sleuth.recipes.validation import validated
from sleuth.rewards.reward import Reward
from sleuth.types import Question, Retriever, Sampler, Tool

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from sleuth.retrieval.client.http import HTTPSettings

TINY = "tiny"
"""``model: tiny``: the warm-started tiny policy that comes with the package."""

UNTRAINED_TINY = "tiny-untrained"
"""``model: tiny-untrained``: the same with random weights, for ``sleuth warmstart``."""

WEB_ENGINES = ("serper", "brave", "searxng")
RETRIEVERS = ("bm25", "index", "http", "simulated", *WEB_ENGINES)
"""What ``retriever.kind`` may be, besides a user's own."""

ASSETS = Path(__file__).parent / "recipes" / "assets"


@dataclass(frozen=True, slots=True)
class Material:
    """What runs on the same questions and passages can share.

    Attributes:
        corpus_hash: of the passages' content; None where a user's own retriever holds them.
    """

    questions: QuestionSets
    retriever: Retriever
    corpus_hash: str | None


@dataclass(slots=True)
class Parts:
    """Everything that a run is put together from.

    Attributes:
        limits: the recipe's, with the model's context window.
        corpus_hash: of the passages' content; None where a user's own retriever holds them.
        prompt_hash: of what the protocol shows for a fixed question.
    """

    recipe: Recipe
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    codec: TokenCodec
    protocol: AgentProtocol
    limits: Limits
    retriever: Retriever
    tools: dict[str, Tool]
    reward: Reward
    questions: QuestionSets
    corpus_hash: str | None
    prompt_hash: str

    @property
    def train(self) -> list[Question]:
        return self.questions.train

    @property
    def dev(self) -> list[Question]:
        return self.questions.dev

    @property
    def test(self) -> list[Question]:
        return self.questions.test


def assemble(
    recipe: Recipe,
    run_dir: Path,
    *,
    splits: Sequence[str] = SPLITS,
    say: Say = lambda line: None,
    material: Material | None = None,
    model: PreTrainedModel | None = None,
) -> Parts:
    """Load and build all parts; what is cheap and likely to be wrong comes first, the model last.

    Args:
        run_dir: a world's corpus and questions are written to ``world/`` in it.
        splits: the question sets to load; the others stay empty.
        say: told what a user should know, a line at a time.
        material: :func:`gather` of the same recipe, if it is there already. ``model``: likewise its weights.

    Raises:
        UserError: a setting, file or model that can't be used.
    """
    reward = Reward(recipe.reward)
    build_tools(recipe)
    material = material or gather(recipe, run_dir, splits=splits, say=say)
    tools = build_tools(recipe, material.retriever)
    tokenizer = build_tokenizer(recipe)
    codec = TokenCodec(tokenizer)
    protocol = build_protocol(recipe, codec, tools)
    model = model if model is not None else build_model(recipe)
    return Parts(
        recipe=recipe,
        model=model,
        tokenizer=tokenizer,
        codec=codec,
        protocol=protocol,
        limits=fit_limits(recipe.limits, model.config),
        retriever=material.retriever,
        tools=tools,
        reward=reward,
        questions=material.questions,
        corpus_hash=material.corpus_hash,
        prompt_hash=prompt_hash(protocol),
    )


def gather(recipe: Recipe, run_dir: Path, *, splits: Sequence[str] = SPLITS, say: Say = lambda line: None) -> Material:
    """Load the questions and build the retriever; arguments and errors as of :func:`assemble`."""
    check_retriever(recipe)
    files = world_files(recipe, run_dir)
    sets = question_sets(recipe, files, splits=splits, say=say)
    retriever, corpus_hash = build_retriever(recipe, files)
    check_parts_of_corpus(retriever, [*sets.train, *sets.dev, *sets.test])
    return Material(sets, retriever, corpus_hash)


def build_agent(parts: Parts, sampler: Sampler) -> SearchAgent:
    """The agent that training, evaluation and ``sleuth ask`` share."""
    return SearchAgent(parts.protocol, parts.limits, sampler, parts.retriever, parts.tools)


# Model ---------------------------------------------------------------------------------------------------------------


def model_source(recipe: Recipe) -> str:
    """What to load: a hub name or a folder. ``tiny`` is the folder in the package.

    Raises:
        UserError: no model is set, or the package came without the tiny weights.
    """
    if recipe.model is None:
        raise UserError("no model is set; give a hub name or a folder: model=HuggingFaceTB/SmolLM2-135M-Instruct")
    if recipe.model != TINY:
        return recipe.model
    folder = ASSETS / TINY
    if not (folder / "config.json").is_file():
        raise UserError(
            f"model=tiny: its weights are not in {folder}; make them: "
            f"sleuth warmstart laptop model={UNTRAINED_TINY} -o {folder}"
        )
    return str(folder)


def build_model(recipe: Recipe) -> PreTrainedModel:
    """The policy, with the recipe's dtype.

    Raises:
        UserError: it can't be loaded.
    """
    if recipe.model == UNTRAINED_TINY:
        from sleuth.world.tiny import make_tiny_model

        return make_tiny_model(recipe.seed)
    from transformers.utils.logging import disable_progress_bar

    from sleuth.models import load_model

    disable_progress_bar()  # a bar over the tensors of a file that is on the disk tells nobody anything
    return load_model(model_source(recipe), dtype=recipe.model_settings.dtype)


def autocast_dtype(recipe: Recipe) -> torch.dtype | None:
    """bfloat16 where the recipe's mixed precision asks for it on this machine, else None."""
    import torch

    wanted = recipe.model_settings.mixed_precision
    if wanted == "auto":
        wanted = "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return torch.bfloat16 if wanted == "bf16" else None


def build_sampler(recipe: Recipe, model: PreTrainedModel, *, placed: bool = False) -> Sampler:
    """The in-process sampler, with the recipe's precision and bound on rows.

    Args:
        model: moved to this process's GPU where there is one.
        placed: it isn't, since an engine places it, or has.
    """
    from sleuth.samplers.transformers import TransformersSampler

    if not placed:
        model.to(own_device())  # type: ignore[arg-type]
    return TransformersSampler(model, max_rows=recipe.sampling.max_rows, autocast=autocast_dtype(recipe))


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    """The policy's tokenizer.

    Raises:
        UserError: it can't be loaded.
    """
    if recipe.model == UNTRAINED_TINY:
        from sleuth.world.tiny import make_tiny_tokenizer

        return make_tiny_tokenizer()
    from sleuth.models import load_tokenizer

    return load_tokenizer(model_source(recipe))


def fit_limits(limits: Limits, config: Any) -> Limits:
    """``limits`` with the context window that a model's config states, where that is the tighter one."""
    window = getattr(config.get_text_config(), "max_position_embeddings", None)
    known = [value for value in (limits.max_context, window) if value]
    return limits.model_copy(update={"max_context": min(known)}) if known else limits


# Protocol and tools --------------------------------------------------------------------------------------------------


def build_tools(recipe: Recipe, retriever: Retriever | None = None) -> dict[str, Tool]:
    """A user's own tools by name, and ``visit`` where the recipe wants it.

    Args:
        retriever: whose pages ``visit`` shows; without it the tool can be described, not called.

    Raises:
        UserError: one can't be loaded or isn't callable, or the retriever has no pages.
    """
    tools = {name: load_object(target) for name, target in recipe.protocol.tools.items()}
    for name, tool in tools.items():
        if not callable(tool):
            raise UserError(f"protocol.tools.{name}={recipe.protocol.tools[name]} is not callable; name a function")
    if recipe.retriever.visit:
        from sleuth.retrieval.pages import require_pages, visit_tool

        if "visit" in tools:
            raise UserError("protocol.tools.visit and retriever.visit are two tools of one name; drop one")
        pages: Any = require_pages(retriever) if retriever is not None else None
        tools["visit"] = visit_tool(pages, recipe.retriever.visit_words)
    return tools


def build_protocol(recipe: Recipe, codec: TokenCodec, tools: Mapping[str, Tool] | None = None) -> AgentProtocol:
    """The way of talking, with its own settings checked.

    Raises:
        UserError: unknown kind, unknown or wrong setting, or a tokenizer that doesn't fit.
    """
    kind, settings = recipe.protocol.kind, recipe.protocol.settings
    where, prefix = f"recipe {recipe.name}", "protocol.settings"
    if kind == "tags":
        from sleuth.agent.tags import TagProtocol, TagSettings

        return TagProtocol(codec, validated(TagSettings, settings, where=where, prefix=prefix), tools)
    if kind == "tool_calls":
        from sleuth.agent.tool_calls import ToolCallProtocol, ToolCallSettings

        return ToolCallProtocol(codec, validated(ToolCallSettings, settings, where=where, prefix=prefix), tools)
    if ":" not in kind:
        raise UserError(f"protocol.kind={kind!r} is not known; write tags, tool_calls, or your own module:function")
    protocol = _call(kind, "protocol.kind", codec, tools=dict(tools or {}), **settings)
    if not isinstance(protocol, AgentProtocol):
        raise UserError(f"protocol.kind={kind} gave a {type(protocol).__name__}; it must give an AgentProtocol")
    return protocol


def prompt_hash(protocol: AgentProtocol) -> str:
    """SHA-256 (hex) of the prompt for a fixed question and of what opens a turn."""
    probe = Question("probe", "What is the capital of France?", ["Paris"])
    texts = [protocol.prompt(probe).text, protocol.opening(False)[0], protocol.opening(True)[0]]
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()


# Retriever -----------------------------------------------------------------------------------------------------------


def check_retriever(recipe: Recipe) -> None:
    """Refuse what no retriever can be built of, before anything is made or read for it.

    Raises:
        UserError: an unknown kind, a wrong setting, no address, or no key.
    """
    kind, settings = recipe.retriever.kind, recipe.retriever.settings
    where, prefix = f"recipe {recipe.name}", "retriever.settings"
    if kind not in RETRIEVERS and ":" not in kind:
        raise UserError(
            f"retriever.kind={kind!r} is not known; write {', '.join(RETRIEVERS)}, or your own module:function"
        )
    if kind == "http":
        _http_settings(recipe)
    elif kind in WEB_ENGINES:
        from sleuth.retrieval.client.web_search import web_settings

        web_settings(kind, settings, where=where, prefix=prefix)


def _http_settings(recipe: Recipe) -> HTTPSettings:
    from sleuth.retrieval.client.http import HTTPSettings

    settings = recipe.retriever.settings
    if not settings.get("url"):
        raise UserError(
            f"recipe {recipe.name}: retriever.kind=http needs the address of a server, such as "
            "retriever.settings.url=http://127.0.0.1:8000"
        )
    return validated(HTTPSettings, settings, where=f"recipe {recipe.name}", prefix="retriever.settings")


def build_retriever(recipe: Recipe, world: Any = None) -> tuple[Retriever, str | None]:
    """The retriever, and the hash of its corpus where that is a file that we read.

    Args:
        world: the files of the recipe's world, see :func:`world_files`; their corpus is used where none is named.

    Raises:
        UserError: no corpus, an unreadable one, an unknown kind or a wrong setting.
    """
    check_retriever(recipe)
    kind, settings = recipe.retriever.kind, recipe.retriever.settings
    corpus = recipe.retriever.corpus or (str(world.corpus) if world is not None else None)
    where, prefix = f"recipe {recipe.name}", "retriever.settings"
    if kind == "bm25":
        from sleuth.retrieval.bm25 import BM25Retriever, BM25Settings
        from sleuth.retrieval.corpus import read_corpus

        if corpus is None:
            raise UserError("no passages to search; name a file of passages: corpus=passages.jsonl")
        checked = validated(BM25Settings, settings, where=where, prefix=prefix)
        passages = read_corpus(corpus)
        return BM25Retriever(passages, checked), passages.hash
    if kind == "index":
        from sleuth.retrieval.index import open_index

        if corpus is None:
            raise UserError("no index to search; name its folder: retriever.corpus=DIR")
        index = open_index(corpus, settings)
        return index, index.corpus_hash
    if kind == "http":
        from sleuth.retrieval.client.http import HTTPRetriever

        server = HTTPRetriever(_http_settings(recipe))
        server.check()
        return server, server.corpus_hash
    if kind == "simulated":
        from sleuth.retrieval.simulated import SimulatedSettings, simulated

        curriculum = {"steps": recipe.trainer.steps, **settings.get("curriculum", {})}
        engine = validated(SimulatedSettings, {**settings, "curriculum": curriculum}, where=where, prefix=prefix)
        return simulated(engine, seed=recipe.seed, where=where), None
    if kind in WEB_ENGINES:
        from sleuth.retrieval.client.web_search import web_retriever

        return web_retriever(kind, settings, where=where, prefix=prefix), None
    retriever = _call(kind, "retriever.kind", corpus=corpus, **settings)
    if not isinstance(retriever, Retriever):
        raise UserError(f"retriever.kind={kind} gave a {type(retriever).__name__} without a method search(requests, k)")
    return retriever, None


def check_parts_of_corpus(retriever: Retriever, questions: Iterable[Question]) -> None:
    """Refuse questions that name a part of the corpus that isn't there: every search of theirs would fail.

    Raises:
        UserError: names the first such question.
    """
    corpus = getattr(retriever, "corpus", None)
    parts = getattr(corpus, "parts", None)
    if parts is None:
        return
    known = set(parts)
    for question in questions:
        if question.corpus is not None and question.corpus not in known:
            raise UserError(
                f'question {question.id} searches the part "{question.corpus}" of the corpus, and no passage has that '
                f'"corpus"; give the corpus that belongs to these questions, or drop the field'
            )


def _call(name: str, key: str, *args: Any, **settings: Any) -> Any:
    """What a user's own factory makes."""
    factory = load_object(name)
    if not callable(factory):
        raise UserError(f"{key}={name} is not callable; name a class or a function")
    try:
        return factory(*args, **settings)
    except TypeError as error:
        given = ", ".join([*(["codec"] if args else []), *settings])
        raise UserError(f"{key}={name}: {error} (it is called with {given})") from error

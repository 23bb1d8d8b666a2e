import json

import pytest
import torch

from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagProtocol
from sleuth.assembly import (
    assemble,
    build_agent,
    build_protocol,
    build_retriever,
    build_sampler,
    build_tools,
    check_parts_of_corpus,
    fit_limits,
    model_source,
    prompt_hash,
)
from sleuth.errors import UserError
from sleuth.evaluation.score import evaluate
from sleuth.recipes.loader import load_recipe, resolve
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.samplers.transformers import TransformersSampler
from sleuth.types import Question, SamplingParams

SMALL = [
    "model=tiny-untrained",
    "world={train: {worlds: 3, questions: 30}, dev: {worlds: 2, questions: 8}, test: {worlds: 2, questions: 6}}",
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1", "title": "Paris", "text": "capital of France", "corpus": "w1"}) + "\n")
    return str(path)


def test_all_parts_of_a_recipe_fit_together(tmp_path):
    parts = assemble(load_recipe("laptop", SMALL), tmp_path)
    agent = build_agent(parts, TransformersSampler(parts.model))
    trajectories = evaluate(agent, parts.test, SamplingParams(), seed=0, batch=6)
    parts.reward(trajectories)
    assert [t.id for t in trajectories] == [q.id for q in parts.test]
    assert not any(t.failed for t in trajectories)
    assert all("em" in t.rewards for t in trajectories)
    assert parts.limits.max_context == 512
    assert len(parts.corpus_hash) == len(parts.prompt_hash) == 64


def test_only_the_wanted_questions_are_loaded(tmp_path):
    parts = assemble(load_recipe("laptop", SMALL), tmp_path, splits=["test"])
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (0, 0, 6)


def test_the_tiny_weights_are_the_packages_own_or_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sleuth.assembly.ASSETS", tmp_path)
    with pytest.raises(UserError, match="sleuth warmstart laptop model=tiny-untrained"):
        model_source(load_recipe("laptop"))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert model_source(load_recipe("laptop")) == str(tmp_path / "tiny")


def test_a_recipe_without_a_model_says_how_to_name_one():
    with pytest.raises(UserError, match=r"no model is set.*model="):
        model_source(resolve({}))


class Config:
    def __init__(self, window):
        self.max_position_embeddings = window

    def get_text_config(self):
        return self


@pytest.mark.parametrize(
    ("limit", "window", "expected"), [(None, 512, 512), (100, 512, 100), (900, 512, 512), (None, None, None)]
)
def test_the_tighter_context_limit_holds(limit, window, expected):
    assert fit_limits(Limits(max_context=limit), Config(window)).max_context == expected


def test_a_protocols_settings_are_checked_like_a_recipes(word_tokenizer):
    codec = TokenCodec(word_tokenizer)
    recipe = resolve({"protocol": {"settings": {"serach": "find"}}})
    with pytest.raises(UserError, match=r"'protocol.settings.serach'; did you mean 'protocol.settings.search'\?"):
        build_protocol(recipe, codec)
    with pytest.raises(UserError, match=r"protocol.settings.prepend_think=3 should be"):
        build_protocol(resolve({"protocol": {"settings": {"prepend_think": 3}}}), codec)


@pytest.mark.parametrize(("kind", "message"), [("tag", "write tags, tool_calls"), ("json:loads", "json:loads")])
def test_a_protocol_that_is_none_is_refused(word_tokenizer, kind, message):
    with pytest.raises(UserError, match=message):
        build_protocol(resolve({"protocol": {"kind": kind}}), TokenCodec(word_tokenizer))


def test_the_prompt_hash_changes_with_what_the_policy_sees(word_tokenizer):
    codec = TokenCodec(word_tokenizer)
    hashes = {
        prompt_hash(build_protocol(resolve({"protocol": {"settings": settings}}), codec))
        for settings in ({}, {"prompt": "{question}"}, {"prepend_think": True}, {"search": "query"})
    }
    assert len(hashes) == 4
    assert prompt_hash(TagProtocol(codec)) in hashes


def test_bm25_reads_the_corpus_and_its_settings(corpus):
    retriever, digest = build_retriever(resolve({"retriever": {"corpus": corpus, "settings": {"k1": 0.9}}}))
    assert isinstance(retriever, BM25Retriever)
    assert retriever.settings.k1 == 0.9
    assert digest == retriever.corpus.hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "corpus=passages.jsonl"),
        ({"corpus": "nowhere.jsonl"}, "no such file"),
        ({"kind": "bm52", "corpus": "x"}, "write bm25"),
        ({"kind": "collections:OrderedDict"}, "without a method search"),
        ({"kind": "nowhere_at_all:Index"}, "nowhere_at_all"),
        ({"settings": {"k2": 1}, "corpus": "x"}, "'retriever.settings.k2'; did you mean 'retriever.settings.k1'"),
    ],
)
def test_a_retriever_that_cannot_be_built_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        build_retriever(resolve({"retriever": settings}))


def test_an_empty_corpus_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UserError, match="no passages"):
        build_retriever(resolve({"retriever": {"corpus": str(tmp_path / "empty.jsonl")}}))


def test_a_question_about_a_missing_part_of_the_corpus_is_refused_before_the_run(corpus):
    retriever, _ = build_retriever(resolve({"retriever": {"corpus": corpus}}))
    check_parts_of_corpus(retriever, [Question("q1", "?", ["x"], corpus="w1"), Question("q2", "?", ["x"])])
    with pytest.raises(UserError, match='question q3 searches the part "w2"'):
        check_parts_of_corpus(retriever, [Question("q3", "?", ["x"], corpus="w2")])


def test_a_tool_must_be_callable():
    assert build_tools(resolve({"protocol": {"tools": {"count": "builtins:len"}}})) == {"count": len}
    with pytest.raises(UserError, match=r"protocol.tools.version=sys:version is not callable"):
        build_tools(resolve({"protocol": {"tools": {"version": "sys:version"}}}))


def test_a_sampler_outside_of_training_works_on_this_processes_gpu(tmp_path, monkeypatch):
    """``sleuth eval`` and ``ask`` have no trainer that would place the model; a trainer's is left to it."""
    recipe = load_recipe("laptop", SMALL)
    model = assemble(recipe, tmp_path).model
    monkeypatch.setattr("sleuth.assembly.own_device", lambda: torch.device("cuda", 1))
    moved = []
    monkeypatch.setattr(model, "to", moved.append)
    build_sampler(recipe, model, placed=True)
    assert moved == []
    build_sampler(recipe, model)
    assert moved == [torch.device("cuda", 1)]

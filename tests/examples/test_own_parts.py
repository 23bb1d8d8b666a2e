"""examples/own_parts is what the documentation shows, so it has to run as it stands there."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from sleuth.agent.agent import SearchAgent
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.assembly import build_protocol, build_retriever, build_tools, world_files
from sleuth.cli import run
from sleuth.evaluation.score import evaluate
from sleuth.recipes.loader import load_recipe
from sleuth.rewards.reward import Reward
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Document, Question, SamplingParams, SearchRequest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_parts"
SMALL = [
    "model=tiny-untrained",
    "world={train: {worlds: 3, questions: 30}, dev: {worlds: 2, questions: 8}, test: {worlds: 2, questions: 6}}",
    "evaluation.greedy=false",
]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The example's recipe, from a copy of its folder as the current one."""
    shutil.copytree(EXAMPLE, tmp_path / "own", ignore=shutil.ignore_patterns("__pycache__", "runs"))
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    yield load_recipe("recipe.yaml", SMALL)
    sys.modules.pop("own_parts", None)


def test_the_own_retriever_finds_passages_by_their_title_and_stays_in_its_part(recipe, tmp_path):
    retriever, digest = build_retriever(recipe, world_files(recipe, tmp_path))
    documents = next(iter(retriever.by_title.items()))
    (part, title), (first, *_) = documents
    (found, nothing) = retriever.search([SearchRequest(f"rival of {title}", part), SearchRequest("zzz", part)], k=3)
    assert {d.title for d in found.documents} == {first.title}
    assert len(found.documents) <= 3
    assert nothing.documents == []
    assert digest is None


def test_the_own_protocol_shows_the_present_first(recipe, word_tokenizer):
    protocol = build_protocol(recipe, TokenCodec(word_tokenizer), build_tools(recipe))
    past, present = Document("1", "anna", "anna rival was karl"), Document("2", "anna", "anna rival is otto")
    assert protocol.observation([past, present], False).body == "anna rival is otto anna rival was karl"


def test_the_own_tool_is_called_in_a_rollout(recipe, bpe_tokenizer):
    codec = TokenCodec(bpe_tokenizer)
    tools = build_tools(recipe)
    protocol = build_protocol(recipe, codec, tools)
    turns = ["<think>a</think><older> anna 30 otto 40 </older>", "<think>b</think><answer> otto </answer>"]
    sampler = ScriptedSampler({0: [codec.encode(text) for text in turns]})
    limits = Limits(max_observation_tokens=200)
    agent = SearchAgent(protocol, limits, sampler, build_retriever_that_is_never_asked(), tools)
    (trajectory,) = evaluate(agent, [Question("q", "who ?", ["otto"])], SamplingParams(), seed=0, batch=1)
    assert "otto" in trajectory.turns[0].observation.text
    assert trajectory.counts["tool_calls"] == 1
    reward = Reward(recipe.reward)
    reward([trajectory])
    assert trajectory.reward == 1.0
    trajectory.counts["repeated_queries"] = 2
    reward([trajectory])
    assert (trajectory.reward, trajectory.rewards["repeated_queries"]) == (0.8, 2.0)


def build_retriever_that_is_never_asked():
    class Never:
        def search(self, requests, k):
            raise AssertionError("no search was asked for")

    return Never()


@pytest.mark.slow
def test_the_example_trains(recipe, capsys):
    pytest.importorskip("trl")
    steps = ["trainer.steps=2", "trainer.prompts=2", "trainer.group=4", "trainer.updates_per_batch=2"]
    assert run(["train", "recipe.yaml", *SMALL, *steps, "-o", "run"]) == 0
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [1, 2]
    assert all("repeated_queries" in r for r in records)
    assert "runs" not in [path.name for path in EXAMPLE.iterdir()]

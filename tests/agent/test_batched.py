"""Many episodes at once: the same rollouts as one by one."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleuth.agent.batched import run_episodes
from sleuth.agent.episode import Episode, Limits
from sleuth.agent.tags import TagProtocol
from sleuth.errors import UserError
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Document, Question, SamplingParams, SearchRequest, SearchResult, Status

SEARCH, ANSWER = "<think>a</think><search>{}</search>", "<think>b</think><answer>{}</answer>"


class Echo:
    """Finds a page about the query itself; notes what it was asked."""

    def __init__(self):
        self.batches: list[tuple[list[SearchRequest], int]] = []

    def search(self, requests: Sequence[SearchRequest], k: int) -> list[SearchResult]:
        self.batches.append((list(requests), k))
        return [SearchResult([Document(r.query, r.query.upper(), r.corpus or "")]) for r in requests]


@pytest.fixture(scope="module")
def protocol(word, bpe):
    return TagProtocol(bpe)


def episodes(protocol, n, **limits):
    return [
        Episode(Question(f"q{i}", f"Who is {i}?", ["x"], corpus=f"world{i}"), protocol, Limits(**limits), id=f"r{i}")
        for i in range(n)
    ]


def scripts(codec, *rows):
    return ScriptedSampler({i: [codec.encode(turn) for turn in turns] for i, turns in enumerate(rows)})


def run(batch, sampler, retriever, **more):
    return run_episodes(batch, sampler, retriever, SamplingParams(), seeds=range(len(batch)), **more)


def test_each_episode_gets_its_own_pages_of_its_own_corpus(protocol):
    """R8"""
    sampler = scripts(
        protocol.codec,
        [SEARCH.format("one"), ANSWER.format("a")],
        [ANSWER.format("b")],
        [SEARCH.format("two"), SEARCH.format("one"), ANSWER.format("c")],
    )
    retriever = Echo()
    trajectories = run(episodes(protocol, 3), sampler, retriever)
    assert [t.answer for t in trajectories] == ["a", "b", "c"]
    assert [[(r.query, r.corpus) for r in requests] for requests, _ in retriever.batches] == [
        [("one", "world0"), ("two", "world2")],
        [("one", "world2")],
    ]
    assert [d.id for s in trajectories[2].spans for d in s.documents] == ["two", "one"]


def test_finished_conversations_are_released_at_once_and_all_in_the_end(protocol):
    sampler = scripts(protocol.codec, [SEARCH.format("one"), ANSWER.format("a")], [ANSWER.format("b")])
    run(episodes(protocol, 2), sampler, Echo())
    assert sampler.released[0] == 1
    assert set(sampler.released) == {0, 1}


def test_conversations_are_released_when_the_sampler_fails(protocol):
    sampler = scripts(protocol.codec, [])
    with pytest.raises(LookupError):
        run(episodes(protocol, 1), sampler, Echo())
    assert set(sampler.released) == {0}


def test_one_failed_search_fails_one_rollout(protocol):
    class Partly(Echo):
        def search(self, requests, k):
            found = super().search(requests, k)
            return [SearchResult(error="503") if r.query == "bad" else f for r, f in zip(requests, found, strict=True)]

    rows = [[SEARCH.format(q), ANSWER.format("x")] for q in ("good", "bad", "fine")]
    statuses = [t.status for t in run(episodes(protocol, 3), scripts(protocol.codec, *rows), Partly())]
    assert statuses == [Status.ANSWERED, Status.RETRIEVER_FAILED, Status.ANSWERED]


class Raises:
    def search(self, requests, k):
        raise ConnectionError("refused <answer>x</answer>")


class TooFew:
    def search(self, requests, k):
        return []


@pytest.mark.parametrize(("retriever", "said"), [(Raises(), "ConnectionError: refused"), (TooFew(), "0 results for 1")])
def test_a_retriever_that_breaks_its_contract_fails_its_rollouts_only(protocol, retriever, said):
    """R2, R4: and its text is in no context."""
    sampler = scripts(protocol.codec, [SEARCH.format("one")], [ANSWER.format("b")])
    failed, answered = run(episodes(protocol, 2), sampler, retriever)
    assert failed.status is Status.RETRIEVER_FAILED
    assert said in failed.error
    assert "refused" not in protocol.codec.decode(failed.prompt_ids + failed.completion_ids)
    assert answered.answer == "b"


def test_a_users_mistake_in_the_retriever_stops_the_run(protocol):
    class Misconfigured:
        def search(self, requests, k):
            raise UserError("corpus 'world0' is not in this index")

    with pytest.raises(UserError, match="world0"):
        run(episodes(protocol, 1), scripts(protocol.codec, [SEARCH.format("one")]), Misconfigured())


def test_episodes_may_want_different_numbers_of_passages(protocol):
    batch = [*episodes(protocol, 1, k=1), *episodes(protocol, 2, k=5)[1:]]
    sampler = scripts(protocol.codec, *[[SEARCH.format(q), ANSWER.format("x")] for q in "ab"])
    retriever = Echo()
    run(batch, sampler, retriever)
    assert {k: [r.query for r in requests] for requests, k in retriever.batches} == {1: ["a"], 5: ["b"]}


def test_tools_given_to_the_run_come_before_the_protocols_own(bpe):
    protocol = TagProtocol(bpe, tools={"calc": lambda text: "own", "other": lambda text: "own"})
    sampler = scripts(bpe, ["<calc>1</calc>", "<other>1</other>", ANSWER.format("x")])
    [t] = run(episodes(protocol, 1), sampler, Echo(), tools={"calc": lambda text: "given"})
    assert [s.text.strip() for s in t.spans if s.kind == "observation"] == [
        "<information>given</information>",
        "<information>own</information>",
    ]


def test_progress_is_told_after_every_change(protocol):
    seen = []
    sampler = scripts(protocol.codec, [SEARCH.format("one"), ANSWER.format("a")])
    run(episodes(protocol, 1), sampler, Echo(), on_turn=lambda e: seen.append(len(e.trajectory.spans)))
    assert seen == [2, 3, 4]


def test_a_seed_for_every_episode_is_required(protocol):
    with pytest.raises(ValueError, match="1 seeds for 2 episodes"):
        run_episodes(episodes(protocol, 2), scripts(protocol.codec), Echo(), SamplingParams(), seeds=[1])


@settings(max_examples=25)
@given(order=st.permutations(range(6)), size=st.integers(1, 6), base=st.integers(0, 1000))
def test_a_rollout_does_not_depend_on_its_batch(protocol, order, size, base):
    """V2: alone, in company, in any order."""
    fragments = [
        SEARCH.format("x"),
        ANSWER.format("y"),
        "<think>",
        "hm",
        "<|im_end|>",
        "</think>",
        "<search>z</search>",
    ]

    def draw(request):
        random_turn = random.Random(request.seed)
        return protocol.codec.encode("".join(random_turn.choices(fragments, k=4)))

    def play(rows):
        batch = episodes(protocol, 6)
        chosen = [batch[i] for i in rows]
        seeds = [base + i for i in rows]
        return dict(
            zip(rows, run_episodes(chosen, ScriptedSampler(draw), Echo(), SamplingParams(), seeds=seeds), strict=True)
        )

    alone = {i: play([i])[i] for i in range(6)}
    for start in range(0, 6, size):
        for i, trajectory in play(order[start : start + size]).items():
            assert trajectory == alone[i]

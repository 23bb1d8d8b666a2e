"""One episode on an event loop: the same rollouts as the batched driver's, searches gathered, failures as data."""

import asyncio
import threading

import pytest

from sleuth.agent.asynchronous import SamplingAborted, SharedRetriever, run_episode
from sleuth.agent.batched import run_episodes
from sleuth.agent.episode import Episode, Limits
from sleuth.agent.tags import TagProtocol
from sleuth.errors import UserError
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Document, Question, SampleRequest, SamplingParams, SearchResult, Status

SEARCH, ANSWER = "<think>a</think><search>{}</search>", "<think>b</think><answer>{}</answer>"


class Echo:
    """Finds a page about the query itself; notes how many queries came together."""

    def __init__(self):
        self.sizes = []

    def search(self, requests, k):
        self.sizes.append(len(requests))
        return [SearchResult([Document(r.query, r.query.upper(), r.corpus or "")]) for r in requests]


@pytest.fixture(scope="module")
def protocol(word, bpe):
    return TagProtocol(bpe)


def episode(protocol, i, **limits):
    return Episode(Question(f"q{i}", f"Who is {i}?", ["x"], corpus=f"w{i}"), protocol, Limits(**limits), id=f"r{i}")


def turns(sampler, key):
    """A turn sampler of one row of a scripted one."""

    async def sample(need):
        await asyncio.sleep(0)
        request = SampleRequest(key, need.ids, need.max_new_tokens, need.stop)
        return sampler.sample([request], SamplingParams())[0]

    return sample


def scripts(codec, rows):
    return ScriptedSampler({i: [codec.encode(turn) for turn in row] for i, row in enumerate(rows)})


ROWS = [
    [SEARCH.format("one"), SEARCH.format("two"), ANSWER.format("a")],
    [ANSWER.format("b")],
    [SEARCH.format("three"), ANSWER.format("c")],
]


def run_all(protocol, retriever, rows=ROWS, **limits):
    async def together():
        sampler, shared = scripts(protocol.codec, rows), SharedRetriever(retriever)
        runs = [run_episode(episode(protocol, i, **limits), turns(sampler, i), shared) for i in range(len(rows))]
        return await asyncio.gather(*runs)

    return asyncio.run(together())


def test_rollouts_are_those_of_the_batched_driver(protocol):
    batch = [episode(protocol, i) for i in range(3)]
    wanted = run_episodes(batch, scripts(protocol.codec, ROWS), Echo(), SamplingParams(), seeds=range(3))
    assert run_all(protocol, Echo()) == wanted
    assert [t.answer for t in wanted] == ["a", "b", "c"]


def test_searches_that_come_together_go_out_together(protocol):
    retriever = Echo()
    run_all(protocol, retriever, [[SEARCH.format(str(i)), ANSWER.format("a")] for i in range(6)])
    assert retriever.sizes == [6]


def test_a_retriever_that_raises_has_failed_for_the_rollouts_that_asked(protocol):
    class Broken:
        def search(self, requests, k):
            raise RuntimeError("down")

    first, second, _ = run_all(protocol, Broken())
    assert (first.status, first.error) == (Status.RETRIEVER_FAILED, "RuntimeError: down")
    assert second.status is Status.ANSWERED


def test_a_wrong_set_up_ends_the_run(protocol):
    class Wrong:
        def search(self, requests, k):
            raise UserError("no such index")

    with pytest.raises(UserError, match="no such index"):
        run_all(protocol, Wrong())


def test_an_aborted_turn_aborts_its_rollout(protocol):
    async def aborted(need):
        raise SamplingAborted("the server gave up")

    trajectory = asyncio.run(run_episode(episode(protocol, 0), aborted, SharedRetriever(Echo())))
    assert (trajectory.status, trajectory.error) == (Status.ABORTED, "the server gave up")


def test_a_slow_search_holds_up_no_other_where_several_calls_are_allowed():
    first_is_searching, second_is_done = threading.Event(), threading.Event()

    class Slow:
        def search(self, requests, k):
            if requests[0].query == "slow":
                first_is_searching.set()
                assert second_is_done.wait(10)
            return [SearchResult() for _ in requests]

    async def both():
        from sleuth.types import SearchRequest

        shared = SharedRetriever(Slow(), calls=2)
        slow = asyncio.create_task(shared.search(SearchRequest("slow"), 3))
        while not first_is_searching.is_set():
            await asyncio.sleep(0.001)
        await shared.search(SearchRequest("quick"), 3)
        second_is_done.set()
        return await slow

    assert not asyncio.run(both()).failed

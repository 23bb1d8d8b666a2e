import pytest
from endpoint import Endpoint

from sleuth.errors import UserError
from sleuth.evaluation.methods import METHODS
from sleuth.evaluation.methods.method import Budget
from sleuth.evaluation.systems import EndpointMethod, LocalMethod, Task, usage_of
from sleuth.samplers import openai_compatible
from sleuth.samplers.openai_compatible import EndpointSettings, OpenAIWriter
from sleuth.samplers.writer import Written
from sleuth.types import ActionType, Document, Question, SamplingParams, SearchResult, Status

GREEDY = SamplingParams(temperature=0)
BUDGET = Budget(k=1, searches=2, turn_tokens=50)
QUESTIONS = [Question(f"q{n}", f"where is {n} ?", ["here"], "set", supporting_titles=["Here"]) for n in range(9)]
TASKS = [Task(q, q.id, n) for n, q in enumerate(QUESTIONS)]


class Library:
    """Finds one passage; searches for 7 fail."""

    def search(self, requests, k):
        here = Document("1", "Here", "it is here")
        return [SearchResult(error="down") if " 7 " in r.query else SearchResult([here, here]) for r in requests]


def reply(text):
    """Answers from the passages, fails for 3, is cut for 5."""
    if " 3 ?" in text:
        return None
    if " 5 ?" in text:
        return "word " * 60
    return "Answer: here" if "it is here" in text.rpartition("Passages")[2] else "Answer: nowhere"


class Echo:
    def __init__(self):
        self.seeds = {}
        self.batches = []

    def write(self, requests, params):
        self.batches.append(len(requests))
        out = []
        for request in requests:
            text = request.messages[-1].content
            self.seeds[text] = request.seed
            said = reply(text)
            cut = said is not None and len(said.split()) > request.max_tokens
            if said is None:
                out.append(Written(error="lost", calls=3))
            else:
                kept = " ".join(said.split()[: request.max_tokens])
                out.append(Written(kept, cut, tokens_in=10, tokens_out=2, ids=(1, 2), logprobs=(-0.1, -0.2)))
        return out


def run(system):
    done = []
    system.run(TASKS, GREEDY, done.extend)
    return {t.id: t for t in done}


def local(method, batch=4, writer=None):
    return LocalMethod(METHODS[method], BUDGET, writer or Echo(), Library(), batch)


def test_every_outcome_is_its_own_thing():
    rag = run(local("rag"))
    assert list(rag) == [q.id for q in QUESTIONS]
    assert {i: t.status for i, t in rag.items() if t.status is not Status.ANSWERED} == {
        "q3": Status.ABORTED,
        "q5": Status.TRUNCATED,
        "q7": Status.RETRIEVER_FAILED,
    }
    assert (rag["q3"].error, rag["q7"].error) == ("lost", "down")
    assert (rag["q0"].answer, rag["q5"].answer) == ("here", None)


def test_a_trajectory_tells_what_was_asked_found_and_used():
    t = run(local("rag"))["q0"]
    assert [span.kind for span in t.spans] == ["prompt", "observation", "policy"]
    assert (t.counts["searches"], t.supporting_titles) == (1, ["Here"])
    assert [d.title for d in t.spans[1].documents] == ["Here"]  # k = 1, whatever the retriever gives
    usage = usage_of(t)
    assert (usage["calls"], usage["tokens_in"], usage["tokens_out"], usage["queries"]) == (1, 10, 2, ["where is 0 ?"])
    (policy,) = t.policy_spans
    assert (policy.ids, policy.logprobs, policy.action.type) == ([1, 2], [-0.1, -0.2], ActionType.ANSWER)


@pytest.mark.parametrize("batch", [1, 2, 9, 100])
def test_the_batch_decides_on_nothing(batch):
    one, other = Echo(), Echo()
    expected = run(local("rag", 4, one))
    got = run(local("rag", batch, other))
    assert one.seeds == other.seeds
    assert len(set(one.seeds.values())) == len(one.seeds)
    assert {i: (t.status, t.answer) for i, t in expected.items()} == {i: (t.status, t.answer) for i, t in got.items()}


def test_a_batch_takes_its_steps_together():
    writer = Echo()
    run(local("ircot", 9, writer))
    assert writer.batches[0] == 8  # all but the one whose search failed


def test_a_retriever_that_breaks_its_contract_has_failed():
    class Broken:
        def search(self, requests, k):
            raise OSError("gone")

    system = LocalMethod(METHODS["rag"], BUDGET, Echo(), Broken(), 4)
    assert {(t.status, t.error) for t in run(system).values()} == {(Status.RETRIEVER_FAILED, "OSError: gone")}


def endpoint_method(endpoint, method, at_once=4, **settings):
    writer = OpenAIWriter(EndpointSettings(url=endpoint.url, model="m", attempts=2, **settings))
    return EndpointMethod(METHODS[method], BUDGET, writer, Library(), at_once)


@pytest.mark.parametrize("method", METHODS)
def test_an_endpoint_gives_what_a_local_model_gives(method, monkeypatch):
    monkeypatch.setattr(openai_compatible, "_wait", lambda state: 0.0)

    def served(body):
        said = reply(body["messages"][-1]["content"])
        return 500 if said is None else said.strip()

    with Endpoint(served) as endpoint:
        remote = run(endpoint_method(endpoint, method))
    expected = run(local(method))
    outcome = {i: (t.status, t.answer, usage_of(t)["queries"]) for i, t in sorted(remote.items())}
    assert outcome == {i: (t.status, t.answer, usage_of(t)["queries"]) for i, t in expected.items()}
    assert all(span.ids == [] for t in remote.values() for span in t.spans)


def test_no_more_questions_at_a_time_than_asked_for():
    with Endpoint(lambda body: "Answer: x") as endpoint:
        run(endpoint_method(endpoint, "direct", at_once=2))
    assert 1 <= endpoint.most_at_once <= 2


def test_a_wrong_key_stops_the_run():
    with Endpoint(lambda body: 401) as endpoint, pytest.raises(UserError, match="401"):
        run(endpoint_method(endpoint, "rag"))

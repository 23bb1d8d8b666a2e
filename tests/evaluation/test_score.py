import pytest

from sleuth.agent.agent import SearchAgent
from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagProtocol
from sleuth.evaluation.score import evaluate, score, score_rows
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Document, Question, SamplingParams, SearchResult, Status

GREEDY = SamplingParams(temperature=0)


class Library:
    """Fails for queries about Rome, finds one passage for all others."""

    def search(self, requests, k):
        paris = Document("1", "Paris", "the capital of france")
        return [SearchResult(error="down") if "rome" in r.query else SearchResult([paris]) for r in requests]


@pytest.fixture
def agent(word_tokenizer):
    codec = TokenCodec(word_tokenizer)

    def policy(request):
        text = codec.decode(request.ids).split()
        if "berlin" in text:
            return codec.encode("<think> no </think> <answer> rome </answer>")
        if "<information>" in text:
            return codec.encode("<think> yes </think> <answer> paris </answer>")
        city = "rome" if "rome" in text else "france"
        return codec.encode(f"<think> find </think> <search> capital of {city} </search>")

    from sleuth.agent.tags import TagSettings

    protocol = TagProtocol(codec, TagSettings(prompt="{question}"))
    return SearchAgent(protocol, Limits(max_turns=3), ScriptedSampler(policy), Library())


QUESTIONS = [
    Question("q1", "capital of france ?", ["Paris"], "a"),
    Question("q2", "is it berlin ?", ["Berlin"], "a"),
    Question("q3", "capital of rome ?", ["Italy"], "b"),
]


def test_every_question_is_answered_once_and_in_order(agent):
    told = []
    trajectories = evaluate(agent, QUESTIONS, GREEDY, seed=0, batch=2, progress=told.append)
    assert [t.id for t in trajectories] == ["q1", "q2", "q3"]
    assert told == [2, 1]


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_the_batch_does_not_decide_on_a_draw(agent, batch):
    evaluate(agent, QUESTIONS, GREEDY, seed=5, batch=batch)
    first = {tuple(r.ids): r.seed for r in agent.sampler.requests}
    agent.sampler.requests.clear()
    evaluate(agent, QUESTIONS, GREEDY, seed=5, batch=3)
    assert first == {tuple(r.ids): r.seed for r in agent.sampler.requests}


def test_another_seed_is_another_draw_and_questions_differ(agent):
    evaluate(agent, QUESTIONS, GREEDY, seed=5, batch=3)
    evaluate(agent, QUESTIONS, GREEDY, seed=6, batch=3)
    seeds = [r.seed for r in agent.sampler.requests]
    assert len(set(seeds)) == len(seeds)


def test_right_wrong_and_failed_are_three_things(agent):
    right, wrong, failed = score(evaluate(agent, QUESTIONS, GREEDY, seed=0, batch=3))
    assert (right.em, right.f1, right.cover_em, right.searches, right.format_valid) == (1.0, 1.0, 1.0, 1, True)
    assert (wrong.em, wrong.searches, wrong.scored) == (0.0, 0, True)
    assert failed.status is Status.RETRIEVER_FAILED
    assert (failed.em, failed.f1, failed.cover_em, failed.scored) == (None, None, None, False)


def test_rows_hold_what_was_searched_found_and_answered(agent):
    trajectories = evaluate(agent, QUESTIONS, GREEDY, seed=0, batch=3)
    rows = list(score_rows(trajectories, score(trajectories)))
    assert rows[0]["queries"] == ["capital of france"]
    assert rows[0]["titles"] == [["Paris"]]
    assert (rows[0]["prediction"], rows[0]["em"], rows[0]["golden_answers"]) == ("paris", 1.0, ["Paris"])
    assert rows[2]["error"] == "down"
    assert rows[2]["em"] is None


def test_the_grader_is_the_one_that_is_named(agent):
    question = Question("q", "capital of france ?", ["the Paris!"], "a")
    trajectories = evaluate(agent, [question], GREEDY, seed=0, batch=1)
    assert score(trajectories, "squad")[0].em == 1.0
    trajectories[0].answer, trajectories[0].golden_answers = "café", ["cafe\u0301"]
    assert (score(trajectories, "squad")[0].em, score(trajectories, "robust")[0].em) == (0.0, 1.0)


def test_no_batch_is_no_evaluation(agent):
    with pytest.raises(ValueError, match="batch=0"):
        evaluate(agent, QUESTIONS, GREEDY, seed=0, batch=0)

"""A pool without a model: what is asked, by which draws, and what a killed process leaves."""

import pytest

from sleuth.errors import RunFailed, RunStopped
from sleuth.recipes.loader import load_recipe
from sleuth.training.search_e1 import pool as pool_file
from sleuth.training.search_e1.pool import Pool
from sleuth.types import Action, ActionType, EndReason, Question, Span, SpanKind, Status, Trajectory

QUESTIONS = [Question(f"q{i}", f"question {i}", ["x"]) for i in range(10)]


class Answering:
    """An agent that notes what it was asked; every rollout of ``failing`` questions fails."""

    def __init__(self, failing=()):
        self.asked, self.failing = [], failing

    def answer(self, questions, params, *, seeds, ids, step):
        self.asked.append(list(zip(ids, seeds, strict=True)))
        return [
            Trajectory(
                id,
                q.id,
                q.question,
                q.golden_answers,
                [Span(SpanKind.PROMPT, [1]), Span(SpanKind.POLICY, [seed % 97], logprobs=[0.0], action=ANSWER)],
                step=step,
                status=Status.RETRIEVER_FAILED if q.id in self.failing else Status.ANSWERED,
                end=EndReason.RETRIEVER_FAILED if q.id in self.failing else EndReason.ANSWER,
                counts={"searches": 1},
                error="connection refused" if q.id in self.failing else None,
            )
            for q, seed, id in zip(questions, seeds, ids, strict=True)
        ]


ANSWER = Action(ActionType.ANSWER, text="x")


def reward(trajectories):
    for t in trajectories:
        t.rewards = {} if t.failed else {"em": 1.0}


def draw(folder, agent, *settings, round=1, seen=None, stop=lambda: False):
    recipe = load_recipe("laptop", ["search_e1.pool={questions: 4, rollouts: 3, batch: 5}", *settings])
    pool = Pool(folder)
    told = (lambda done: None) if seen is None else seen.append
    pool.draw(recipe, agent, reward, QUESTIONS, round=round, step=7, progress=told, stop=stop)
    return pool


def test_every_question_is_asked_k_times_in_batches(tmp_path):
    agent, seen = Answering(), []
    pool = draw(tmp_path / "a", agent, seen=seen)
    assert [len(batch) for batch in agent.asked] == [5, 5, 2]
    assert seen == [5, 5, 2]
    trajectories = pool.read()
    groups = [t.group for t in trajectories]
    assert len(set(groups)) == 4
    assert groups == [g for g in dict.fromkeys(groups) for _ in range(3)]
    assert {t.step for t in trajectories} == {7}
    assert len({seed for batch in agent.asked for _, seed in batch}) == 12
    assert pool.finished
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == ["pool.json", "rollouts.jsonl.zst"]


def test_all_questions_without_a_limit(tmp_path):
    pool = draw(tmp_path / "a", Answering(), "search_e1.pool.questions=null")
    assert len(pool.read()) == 30
    assert pool.statistics()["questions"] == 10


def test_other_rounds_and_seeds_draw_otherwise_and_the_same_draws_the_same(tmp_path):
    asked = []
    for i, (settings, round) in enumerate([((), 1), ((), 1), ((), 2), (("seed=5",), 1)]):
        agent = Answering()
        draw(tmp_path / str(i), agent, *settings, round=round)
        asked.append(agent.asked)
    assert asked[0] == asked[1]
    assert asked[0] != asked[2] != asked[3] != asked[0]


def test_a_killed_pool_samples_only_what_is_missing(tmp_path, monkeypatch):
    whole = draw(tmp_path / "whole", Answering()).read()
    real, calls = pool_file.write_rollouts, []

    def dying(path, rollouts):
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(path, rollouts)

    with monkeypatch.context() as patch:
        patch.setattr(pool_file, "write_rollouts", dying)
        with pytest.raises(KeyboardInterrupt):
            draw(tmp_path / "b", Answering())
    agent = Answering()
    assert not Pool(tmp_path / "b").finished
    assert draw(tmp_path / "b", agent).read() == whole
    assert [len(batch) for batch in agent.asked] == [5, 2]


@pytest.mark.parametrize(("batches", "left"), [(1, [5, 2]), (2, [2]), (3, [])])
def test_a_pool_that_is_to_end_does_so_behind_its_batch(tmp_path, batches, left):
    whole = draw(tmp_path / "whole", Answering()).read()
    agent, rollouts = Answering(), min(5 * batches, 12)
    with pytest.raises(RunStopped, match=f"{rollouts} of the pool's 12 rollouts"):
        draw(tmp_path / "b", agent, stop=lambda: len(agent.asked) == batches)
    agent = Answering()
    assert draw(tmp_path / "b", agent).read() == whole
    assert [len(batch) for batch in agent.asked] == left


def test_a_dead_retriever_ends_the_pool(tmp_path):
    with pytest.raises(RunFailed, match="connection refused"):
        draw(tmp_path / "a", Answering(failing={q.id for q in QUESTIONS}))


def test_statistics_leave_failed_rollouts_out(tmp_path):
    failing = {q.id for q in QUESTIONS[:5]}
    pool = draw(tmp_path / "a", Answering(failing), "search_e1.pool.questions=null", "trainer.max_failed_share=1")
    s = pool.statistics()
    assert (s["rollouts"], s["failed"], s["em"], s["searches"]) == (30, 15, 1.0, 1.0)

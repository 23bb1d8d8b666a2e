"""Which stage's policy is the result, and what is said of the choice."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sleuth.training.search_e1 import whole_run


@pytest.fixture
def chosen(monkeypatch):
    """``chosen(keep, *scores)`` → (policy, line); dev EM of each round's two stages, None where it has no score, one
    alone where the last round ends on reinforcement learning."""
    monkeypatch.setattr(whole_run, "_rl_dev_em", lambda this: this.rl_dev_em)

    def choose(keep, *scores):
        recipe = SimpleNamespace(trainer=SimpleNamespace(keep=keep))
        rounds = [
            SimpleNamespace(
                number=number,
                recipe=recipe,
                distills=len(ems) == 2,
                rl_dev_em=ems[0],
                rl_result=Path(f"rl-{number}"),
                distilled={} if ems[1:] in ((), (None,)) else {"dev_em": ems[1]},
                policy=Path(f"distilled-{number}" if len(ems) == 2 else f"rl-{number}"),
            )
            for number, ems in enumerate(scores, 1)
        ]
        policy, line = whole_run._chosen(rounds)
        return str(policy), line

    return choose


@pytest.mark.parametrize(
    ("keep", "scores", "policy", "line"),
    [
        ("last", [(0.9, 0.1)], "distilled-1", "round 1, distilled: the last (trainer.keep=last)"),
        (
            "best",
            [(0.521, 0.48)],
            "rl-1",
            "round 1 before its distillation: dev EM 0.521; the last policy (round 1, distilled) has 0.480 "
            "(trainer.keep=best)",
        ),
        (
            "best",
            [(0.5, 0.5)],
            "rl-1",
            "round 1 before its distillation: dev EM 0.500; the last policy (round 1, distilled) has 0.500, and of "
            "equals the first is kept (trainer.keep=best)",
        ),
        (
            "best",
            [(0.4, 0.2), (0.3, 0.6)],
            "distilled-2",
            "round 2, distilled: dev EM 0.600; the next best (round 1 before its distillation) has 0.400 "
            "(trainer.keep=best)",
        ),
        (
            "best",
            [(0.4, 0.7), (0.3,)],
            "distilled-1",
            "round 1, distilled: dev EM 0.700; the last policy (round 2) has 0.300 (trainer.keep=best)",
        ),
        (
            "best",
            [(None, 0.2), (None,)],
            "distilled-1",
            "round 1, distilled: dev EM 0.200; the last policy (round 2) was not scored (trainer.eval_every=0) "
            "(trainer.keep=best)",
        ),
        (
            "best",
            [(None, 0.2)],
            "distilled-1",
            "round 1, distilled: dev EM 0.200; no other stage was scored (trainer.eval_every=0)",
        ),
        (
            "best",
            [(None, None)],
            "distilled-1",
            "round 1, distilled: the last, as trainer.keep=best has no dev EM to choose by",
        ),
    ],
)
def test_what_is_kept_and_why(chosen, keep, scores, policy, line):
    assert chosen(keep, *scores) == (policy, line)

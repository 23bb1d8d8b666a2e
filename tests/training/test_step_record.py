"""What a step leaves: the log-probs in its saved rollouts, and that replay makes of them what training made of it."""

import json

import pytest

from sleuth.assembly import assemble
from sleuth.commands.replay import replay as print_replay
from sleuth.diagnostics.drift import drift_of
from sleuth.diagnostics.names import is_known
from sleuth.diagnostics.replay import replay
from sleuth.objectives import resolve
from sleuth.recipes.loader import load_recipe
from sleuth.rollouts import read_rollouts
from sleuth.training.build import build_trainer
from sleuth.training.progress import Progress
from sleuth.training.run_folder import RunFolder
from sleuth.types import SearchResult

from .conftest import SMALL

FILE = "rollouts/step-000001.jsonl.zst"
ONE_STEP = ("trainer.steps=1", "trainer.eval_every=0", "trainer.lr=0.003")
SHUFFLED = ("trainer.updates_per_batch=3", "trainer.micro_batch=2")
"""Rows are shuffled among three updates and sorted among the two passes of each."""


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """``step(*settings)`` → (record, saved rollouts, run folder) of one step that moves the policy; each made once."""
    made = {}

    def make(*settings):
        if settings not in made:
            recipe = load_recipe("laptop", [*SMALL, *ONE_STEP, *settings])
            run = RunFolder(tmp_path_factory.mktemp("run"))
            run.checkpoints.mkdir()
            trainer = build_trainer(recipe, assemble(recipe, run.path), run, Progress(recipe, quiet=True))
            trainer.train()
            made[settings] = run.read_metrics()[0], list(read_rollouts(run.path / FILE)), run.path
        return made[settings]

    return make


def _mean_loss_of_updates(trajectories, objective, updates):
    """The mean over updates, each by its own tokens, of a replay that divides by all tokens of the batch."""
    losses = {r.id: sum(x for span in r.spans for x in span.loss) for r in replay(trajectories, objective).rollouts}
    total = sum(t.policy_tokens for t in trajectories)
    parts = []
    for update in range(1, updates + 1):
        rows = [t for t in trajectories if t.update == update]
        parts.append(sum(losses[t.id] for t in rows) * total / sum(t.policy_tokens for t in rows))
    return sum(parts) / updates


def test_one_update_a_batch_replays_to_the_loss_of_training(step):
    record, saved, _ = step("trainer.updates_per_batch=1", "trainer.micro_batch=3")
    assert record["loss"] != 0
    assert replay(saved, resolve("grpo")).loss == pytest.approx(record["loss"], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("objective", ["grpo", "search_sapo"])
def test_several_updates_replay_to_the_mean_of_their_losses(step, objective):
    record, saved, _ = step(*SHUFFLED, f"objective={objective}")
    assert record["ratio/max"] > 1.01
    expected = _mean_loss_of_updates(saved, resolve(objective), 3)
    assert record["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_updates_that_weigh_rollouts_alike_replay_to_the_loss_as_it_was_logged(step):
    record, saved, _ = step("trainer.updates_per_batch=2", "aggregation=seq_mean_token_mean")
    expected = replay(saved, resolve("grpo", aggregation="seq_mean_token_mean")).loss
    assert record["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_saved_rollouts_hold_what_the_loss_saw(step):
    record, saved, _ = step(*SHUFFLED, "objective=grpo")
    assert sorted(t.update for t in saved) == [1] * 4 + [2] * 4 + [3] * 4
    for t in saved:
        for span in t.policy_spans:
            assert span.old_logprobs == pytest.approx(span.logprobs, abs=1e-4)
            moved = max(abs(n - o) for n, o in zip(span.new_logprobs, span.old_logprobs, strict=True))
            assert moved < 1e-4 if t.update == 1 else moved > 1e-4
    again = drift_of(saved)
    assert len(again) > 100
    assert again == pytest.approx({name: record[name] for name in again}, rel=1e-5, abs=1e-6)


def test_sleuth_replay_of_a_run_shows_real_ratios(step, capsys):
    _, _, run = step(*SHUFFLED, "objective=grpo")
    print_replay(str(run / FILE), ["grpo"], [], as_json=True)
    out = capsys.readouterr()
    stats = json.loads(out.out)["stats"]
    assert (stats["old_source"], stats["new_source"]) == ("old_logprobs", "new_logprobs")
    assert abs(stats["ratio/mean"] - 1) > 1e-4
    assert out.err == ""


def test_every_name_of_a_record_is_in_the_catalogue(step):
    record, _, _ = step(*SHUFFLED, "objective=search_sapo")
    assert record["term/search_sapo"] > 0
    assert record["grad_norm_max"] >= record["grad_norm"] > 0
    assert [name for name in record if not is_known(name)] == []


def test_failed_rollouts_and_one_without_policy_tokens_break_nothing(built, tmp_path):
    trainer, parts = built("trainer.steps=1", "trainer.eval_every=0", "trainer.max_failed_share=1.0")
    inner, reward = parts.retriever.search, trainer._reward
    failing = lambda requests, k: [  # noqa: E731
        SearchResult(error="down") if i % 2 else r for i, r in enumerate(inner(requests, k))
    ]
    trainer.agent.retriever = type("Flaky", (), {"search": staticmethod(failing)})()

    def reward_after_emptying_one(trajectories):
        del next(t for t in trajectories if not t.failed).spans[1:]
        reward(trajectories)

    trainer._reward = reward_after_emptying_one
    trainer.train()
    record = RunFolder(tmp_path / "run").read_metrics()[0]
    saved = list(read_rollouts(tmp_path / "run" / FILE))
    failed = [t for t in saved if t.failed]
    assert failed
    assert all(t.update is None and s.new_logprobs is None for t in failed for s in t.policy_spans)
    sound = [t for t in saved if not t.failed]
    assert [t.update for t in sound if not t.policy_spans] == [None]
    assert all(s.new_logprobs for t in sound for s in t.policy_spans)
    again = drift_of(saved)
    assert again == pytest.approx({name: record[name] for name in again}, rel=1e-5, abs=1e-6)


def test_rollouts_that_the_objective_left_out_keep_the_trainers_own_pass(built, tmp_path):
    trainer, _ = built("objective=dapo", "trainer.steps=1", "trainer.eval_every=0")
    trainer._reward = lambda trajectories: [
        setattr(t, "reward", float(i in (0, 8))) for i, t in enumerate(trajectories)
    ]
    trainer.train()
    left_out = [t for t in read_rollouts(tmp_path / "run" / FILE) if t.update is None]
    assert len(left_out) == 4
    assert len({t.group for t in left_out}) == 1
    for span in (s for t in left_out for s in t.policy_spans):
        assert span.old_logprobs == pytest.approx(span.logprobs, abs=1e-4)
        assert span.new_logprobs is None


def test_a_run_that_dies_in_its_updates_keeps_the_rollouts(built, tmp_path):
    trainer, _ = built("trainer.steps=1")

    def dies(*args, **kwargs):
        raise RuntimeError("out of memory")

    trainer.compute_loss = dies
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.train()
    saved = list(read_rollouts(tmp_path / "run" / FILE))
    assert len(saved) == 12
    assert all(span.logprobs and span.new_logprobs is None for t in saved for span in t.policy_spans)

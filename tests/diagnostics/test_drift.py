"""Drift statistics against sums written out token by token, and what they leave out."""

import math

import numpy as np
import pytest
import torch

from sleuth.diagnostics.drift import Drift, drift_of
from sleuth.diagnostics.names import KINDS, is_known
from sleuth.diagnostics.token_labels import token_labels
from sleuth.objectives.tokens import Tokens
from sleuth.types import Part, PartKind, Span, SpanKind, Status, Trajectory

SPLITS = ("", "pos/", "neg/", "pos/think/", "neg/query/", "pos/turn2/", "neg/turn6+/")


def _batch(rows=12, columns=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    old = -torch.rand(rows, columns, generator=g).double() * 3
    return {
        "new": old + torch.randn(rows, columns, generator=g).double() * 0.5,
        "old": old,
        "advantages": torch.tensor([1.5, -0.5, 0.0, 0.7] * rows)[:rows].double(),
        "mask": torch.rand(rows, columns, generator=g) < 0.7,
        "clipped": torch.rand(rows, columns, generator=g) < 0.1,
        "kinds": torch.randint(0, len(KINDS), (rows, columns), generator=g).to(torch.int8),
        "turns": torch.randint(1, 9, (rows, columns), generator=g).to(torch.int8),
        "entropy": torch.rand(rows, columns, generator=g),
    }


def _add(drift, b, rows=slice(None), **settings):
    tokens = Tokens.build(b["new"][rows], b["old"][rows], b["advantages"][rows], b["mask"][rows])
    drift.add(tokens, b["clipped"][rows], b["kinds"][rows], b["turns"][rows], entropy=b["entropy"][rows], **settings)


def _statistics(b, **settings):
    drift = Drift()
    _add(drift, b, **settings)
    return drift.flush()


def _tokens(b, split):
    """(ratio, clipped) of a split's tokens, one by one."""
    sign, _, place = split.strip("/").partition("/")
    found = []
    for i, j in b["mask"].nonzero().tolist():
        a, turn = b["advantages"][i].item(), b["turns"][i, j].item()
        if sign and not (a > 0 if sign == "pos" else a < 0):
            continue
        labels = {KINDS[b["kinds"][i, j]], f"turn{turn}" if turn < 6 else "turn6+"}
        if place and place not in labels:
            continue
        found.append((math.exp(b["new"][i, j] - b["old"][i, j]), b["clipped"][i, j].item()))
    return np.array(found).T


@pytest.mark.parametrize("split", SPLITS)
def test_ratios_of_a_split_are_those_of_its_tokens(split):
    b = _batch()
    out, (r, clipped) = _statistics(b), _tokens(b, split)
    expected = {
        "tokens": len(r),
        "mean": r.mean(),
        "mean_log": np.log(r).mean(),
        "exp_mean_log": math.exp(np.log(r).mean()),
        **{f"q{q:02}": np.quantile(r, q / 100) for q in (1, 5, 50, 95, 99)},
        "min": r.min(),
        "max": r.max(),
        "below_0.5": (r < 0.5).mean(),
        "below_0.8": (r < 0.8).mean(),
        "above_2": (r > 2).mean(),
        "clipped": clipped.mean(),
    }
    assert {name: out[f"ratio/{split}{name}"] for name in expected} == pytest.approx(expected)


def test_effective_sample_size_is_one_without_drift_and_falls_with_it():
    b = _batch()
    r = _tokens(b, "")[0]
    assert _statistics(b)["ratio/ess"] == pytest.approx(r.sum() ** 2 / (len(r) * (r**2).sum()))
    assert _statistics(b | {"new": b["old"]})["ratio/ess"] == pytest.approx(1)


def test_sequence_ratios_are_geometric_means_of_rollouts():
    b = _batch()
    out = _statistics(b)
    means = [math.exp((b["new"] - b["old"])[i][b["mask"][i]].mean()) for i in range(12)]
    for sign, rows in (("pos", b["advantages"] > 0), ("neg", b["advantages"] < 0)):
        r = np.array([m for m, taken in zip(means, rows.tolist(), strict=True) if taken])
        assert out[f"sequence/{sign}/mean"] == pytest.approx(r.mean())
        assert out[f"sequence/{sign}/min"] == pytest.approx(r.min())
        assert out[f"sequence/{sign}/q05"] == pytest.approx(np.quantile(r, 0.05))
        assert out[f"sequence/{sign}/below_0.9"] == pytest.approx((r < 0.9).mean())
    assert out["sequence/neg/below_0.9"] + out["sequence/pos/below_0.9"] > 0


def test_likelihoods_entropies_and_masses_are_means_over_tokens():
    b = _batch()
    out, m = _statistics(b), b["mask"]
    pos = m & (b["advantages"] > 0)[:, None]
    a = b["advantages"][:, None].expand_as(m)[m]
    assert out["likelihood/pos"] == pytest.approx(b["old"][pos].mean().item())
    assert out["entropy"] == pytest.approx(b["entropy"][m].mean().item())
    for number, kind in enumerate(KINDS):
        assert out[f"entropy/{kind}"] == pytest.approx(b["entropy"][m & (b["kinds"] == number)].mean().item())
    assert out["advantage/pos_mass"] == pytest.approx(a.clamp(min=0).mean().item())
    assert out["advantage/neg_mass"] == pytest.approx(-a.clamp(max=0).mean().item())


def test_how_a_step_is_cut_into_passes_changes_nothing():
    b = _batch()
    cut = Drift()
    for start in range(0, 12, 5):
        _add(cut, b, slice(start, start + 5))
    assert cut.flush() == pytest.approx(_statistics(b))


def test_what_several_processes_collected_is_taken_together():
    b = _batch()
    mine, other = Drift(), Drift()
    _add(mine, b, slice(0, 5))
    _add(other, b, slice(5, 12))
    mine.absorb(other)
    assert mine.flush() == pytest.approx(_statistics(b))


def test_masked_places_may_hold_anything_and_tokens_that_are_not_finite_are_in_nothing():
    b = _batch()
    clean = _statistics(b)
    hostile = b | {
        "new": b["new"].masked_fill(~b["mask"], math.nan),
        "old": b["old"].masked_fill(~b["mask"], -math.inf),
    }
    assert _statistics(hostile) == pytest.approx(clean)
    i, j = b["mask"].nonzero()[0].tolist()
    hostile["new"][i, j] = math.nan
    without = _statistics(hostile)
    assert without["ratio/tokens"] == clean["ratio/tokens"] - 1
    assert all(math.isfinite(value) for value in without.values())


def test_a_huge_ratio_stays_finite_and_its_log_is_not_bounded():
    one = torch.ones(1, 1)
    b = {"new": one * 400, "old": one * 0, "advantages": torch.ones(1), "mask": one.bool(), "clipped": one.bool()}
    out = _statistics(b | {"kinds": one.to(torch.int8), "turns": one.to(torch.int8), "entropy": one})
    assert all(math.isfinite(value) for value in out.values())
    assert out["ratio/pos/max"] == pytest.approx(math.exp(20))
    assert out["ratio/pos/mean_log"] == 400


def test_before_a_weight_has_moved_ratios_are_rounding_and_only_that():
    b = _batch()
    drift = Drift()
    _add(drift, b, slice(0, 6), moved=False)
    _add(drift, b, slice(6, 12), moved=True)
    out = drift.flush()
    later = {name: value[6:] for name, value in b.items()}
    alone = _statistics(later)
    assert {k: v for k, v in out.items() if k.startswith("sequence/")} == pytest.approx(
        {k: v for k, v in alone.items() if k.startswith("sequence/")}
    )
    assert out["ratio/tokens"] == int(later["mask"].sum())
    first = (b["new"] - b["old"])[:6][b["mask"][:6]]
    assert out["ratio/noise"] == pytest.approx(first.pow(2).mean().sqrt().item())
    assert out["entropy"] == pytest.approx(b["entropy"][b["mask"]].mean().item())


def test_unknown_ratios_leave_likelihoods_and_entropies():
    out = _statistics(_batch(), moved=None)
    assert not [name for name in out if name.startswith(("ratio/", "sequence/"))]
    assert {"entropy", "likelihood/pos", "advantage/neg_mass"} <= out.keys()


def test_nothing_gives_nothing():
    assert Drift().flush() == {}
    b = _batch()
    assert _statistics(b | {"mask": torch.zeros_like(b["mask"])}) == {}
    drift = Drift()
    _add(drift, b)
    assert drift.flush()
    assert drift.flush() == {}


def test_a_split_without_tokens_is_absent():
    b = _batch()
    out = _statistics(b | {"advantages": b["advantages"].abs()})
    assert not [name for name in out if name.startswith(("ratio/neg", "sequence/neg", "likelihood/neg"))]
    assert out["advantage/neg_mass"] == 0


def test_every_name_is_in_the_catalogue():
    b = _batch()
    drift = Drift()
    _add(drift, b, moved=False)
    _add(drift, b)
    assert [name for name in drift.flush() if not is_known(name)] == []


# ---------------------------------------------------------------------------------------------------------------------
# From rollouts


def _trajectory(id, reward, log_ratio=0.0, *, fields=("old_logprobs", "new_logprobs"), update=2, status="answered"):
    """Two turns: five thought tokens and two of a query; a passage; two answer tokens and one free one."""
    logprobs = {"logprobs": -0.9, "old_logprobs": -1.0, "new_logprobs": -1.0 + log_ratio}

    def policy(n, *parts):
        return Span(
            SpanKind.POLICY, list(range(n)), parts=[Part(PartKind(k), a, b) for k, a, b in parts],
            **{name: [logprobs[name]] * n for name in fields},
        )  # fmt: skip

    spans = [
        Span(SpanKind.PROMPT, [1, 2, 3]),
        Span(SpanKind.OBSERVATION, [4]),
        policy(7, ("think", 0, 5), ("query", 5, 7)),
        Span(SpanKind.OBSERVATION, [8] * 6),
        policy(3, ("answer", 0, 2)),
    ]
    status = Status(status)
    return Trajectory(id, "g", "q", ["x"], spans, step=1, reward=reward, update=update, status=status)


def test_labels_are_those_of_the_spans():
    kinds, turns = token_labels([_trajectory("a", 1.0)], 18)
    names = [KINDS[k] for k in kinds[0].tolist()]
    assert names == ["think"] * 5 + ["query"] * 2 + ["other"] * 6 + ["answer"] * 2 + ["other"] * 3
    assert turns[0].tolist() == [1] * 7 + [0] * 6 + [2] * 3 + [0] * 2


def test_saved_rollouts_tell_their_drift_without_a_trainer():
    out = drift_of([_trajectory("a", 1.0, -0.3), _trajectory("b", 0.0, 0.9)])
    assert out["ratio/pos/query/max"] == pytest.approx(math.exp(-0.3))
    assert out["ratio/neg/turn2/min"] == pytest.approx(math.exp(0.9))
    assert out["ratio/pos/think/tokens"] == 5
    assert out["sequence/pos/below_0.9"] == 1
    assert out["likelihood/pos"] == pytest.approx(-1.0)
    assert not [name for name in out if name.endswith("clipped") or name.startswith("entropy")]


def test_the_samplers_log_probs_never_stand_in_for_the_trainers():
    out = drift_of(
        [_trajectory("a", 1.0, fields=["logprobs", "new_logprobs"]), _trajectory("b", 0.0, fields=["logprobs"])]
    )
    assert not [name for name in out if name.startswith("ratio/")]
    assert out["likelihood/pos"] == pytest.approx(-0.9)


def test_rollouts_of_the_first_update_and_failed_ones_are_left_out():
    batch = [
        _trajectory("a", 1.0, -0.3),
        _trajectory("b", 0.0, 1e-3, update=1),
        _trajectory("c", None, 5.0, status="retriever_failed"),
    ]
    out = drift_of(batch)
    assert out["ratio/tokens"] == 10
    assert out["ratio/noise"] == pytest.approx(1e-3)
    assert out["ratio/max"] < 1


def test_given_advantages_decide_the_sign():
    batch = [_trajectory("a", 1.0, -0.3), _trajectory("b", 0.0, 0.9)]
    out = drift_of(batch, torch.tensor([-1.0, 2.0]))
    assert out["ratio/pos/max"] == pytest.approx(math.exp(0.9))
    assert out["advantage/pos_mass"] == pytest.approx(1.0)


def test_rollouts_without_rewards_have_no_sign():
    out = drift_of([_trajectory("a", None, -0.3), _trajectory("b", None, 0.9)])
    assert out["ratio/tokens"] == 20
    assert not [name for name in out if "/pos/" in name or "/neg/" in name]


def test_no_rollouts_have_no_drift():
    assert drift_of([]) == {}

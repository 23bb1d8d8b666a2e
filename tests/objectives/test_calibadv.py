import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sleuth.errors import UserError
from sleuth.objectives.advantages import grpo
from sleuth.objectives.calibadv import calibrate_advantages, calibrate_trajectories, rebalance, reshape
from sleuth.objectives.parameters import CalibAdv
from sleuth.objectives.silver import Searches, search_scores, silver_documents
from sleuth.types import Document, Part, PartKind, Span, SpanKind, Status, Trajectory

NAN = float("nan")
DTYPES = [(torch.float64, 1e-6), (torch.float32, 1e-5)]
RELEASED = CalibAdv(preset="released")
PAPER = CalibAdv()


def rollout(name, reward, documents, lengths, *, well_formed=True, group="q", thoughts=None, status=Status.ANSWERED):
    """One policy span for each of ``lengths``; behind all but the last an observation of these documents."""
    spans = [Span(SpanKind.PROMPT, [1])]
    for i, length in enumerate(lengths):
        thought = thoughts[i] if thoughts else f"{name}{i}"
        action = "answer" if i == len(lengths) - 1 else "search"
        text = f"<think>{thought}</think><{action}>x</{action}>"
        spans.append(Span(SpanKind.POLICY, [5] * length, text))
        if i < len(documents):
            spans.append(Span(SpanKind.OBSERVATION, [7, 7], documents=[Document(d, d) for d in documents[i]]))
    return Trajectory(name, group, "?", ["a"], spans, reward=reward, format_valid=well_formed, status=status)


def batch(trajectories, dtype=torch.float64, advantages=None):
    """Advantages (B, T), mask and groups: plain GRPO unless ``advantages`` (B,) are given."""
    width = max(len(t.completion_ids) for t in trajectories)
    rows = [t.completion_mask + [0] * (width - len(t.completion_mask)) for t in trajectories]
    mask = torch.tensor(rows, dtype=torch.bool)
    number = {name: i for i, name in enumerate(dict.fromkeys(t.group for t in trajectories))}
    groups = torch.tensor([number[t.group] for t in trajectories])
    if advantages is None:
        rewards = torch.tensor([t.reward for t in trajectories], dtype=dtype)
        a = grpo(rewards, groups, torch.tensor([not t.failed for t in trajectories]))
    else:
        a = torch.tensor(advantages, dtype=dtype)
    return a[:, None] * mask, mask, groups


def by_turn(trajectories, parameters, dtype=torch.float64, advantages=None):
    """Each rollout's advantages turn by turn, after checking that a turn's tokens have one value and others 0."""
    before, mask, groups = batch(trajectories, dtype, advantages)
    out = reshape(before, mask, trajectories, groups, parameters)
    assert out.dtype == dtype
    assert (out[~mask] == 0).all()
    found = []
    for row, t in enumerate(trajectories):
        turns, at = [], 0
        for span in t.spans[1:]:
            values = set(out[row, at : at + len(span.ids)].tolist())
            at += len(span.ids)
            if span.kind is SpanKind.POLICY and span.ids:
                assert len(values) == 1
                turns.append(values.pop())
        found.append(turns)
    return found


def main_group(group="q"):
    return [
        rollout("R1", 1.0, ["ABC", "DEF"], [4, 3, 2], group=group),
        rollout("R2", 0.8, ["AGH"], [5, 3], group=group),
        rollout("R3", 0.0, ["ABX", "DEF", "DGY"], [3, 4, 2, 6], group=group),
        rollout("R4", 0.0, ["AXY"], [4, 5], group=group),
    ]


STD = math.sqrt(0.83 / 3) + 1e-6
A1, A2, A3 = 0.55 / STD, 0.35 / STD, -0.45 / STD
R_G = 11 * -A3 / (2 * A1 + 3 * A2)


def close(found, expected, rel):
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, rel=rel)


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
def test_main_example_as_released(dtype, rel):
    assert pytest.approx([1.045643, 0.665409, -0.855526], abs=1e-6) == [A1, A2, A3]
    assert pytest.approx(2.302326, abs=1e-6) == R_G
    found = by_turn(main_group(), RELEASED, dtype)
    exact = [[A1, A1, A1 * R_G], [A2, A2 * R_G], [A3 / 3, 0.0, A3, A3], [A3 * 2 / 3, A3]]
    close(found, exact, rel)
    printed = [
        [1.045643, 1.045643, 2.407411],
        [0.665409, 1.531989],
        [-0.285175, 0, -0.855526, -0.855526],
        [-0.570351, -0.855526],
    ]
    for row, wanted in zip(found, printed, strict=True):
        assert row == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
def test_main_example_by_the_paper(dtype, rel):
    found = by_turn(main_group(), PAPER, dtype)
    # Silver has G and H too, and a document that was shown before still counts: D and G of DGY.
    close(found, [[A1, A1, A1 * R_G], [A2, A2 * R_G], [A3 / 3, 0.0, A3 / 3, A3], [A3 * 2 / 3, A3]], rel)


def test_main_example_with_lambda_two():
    found = by_turn(main_group(), CalibAdv(preset="released", **{"lambda": 2.0}))
    assert [found[0][-1], found[1][-1]] == pytest.approx([4.814821, 3.063977], abs=2e-6)
    for row, plain in zip(found, by_turn(main_group(), RELEASED), strict=True):
        assert row[:-1] == plain[:-1]
    assert found[2:] == by_turn(main_group(), RELEASED)[2:]


def test_silver_and_scores_of_the_main_example():
    searches = [Searches.of(t, RELEASED) for t in main_group()]
    silver = silver_documents(searches, RELEASED)
    assert silver == set("ABCDEF")
    assert search_scores(searches[2], silver, RELEASED) == pytest.approx([2 / 3, 1, 0])
    assert search_scores(searches[3], silver, RELEASED) == pytest.approx([1 / 3])
    assert silver_documents(searches, PAPER) == set("ABCDEFGH")


def test_token_sums_of_the_main_example():
    """The answers balance; the whole rollouts tip to the positive side."""
    advantages, mask, groups = batch(main_group())
    found = calibrate_trajectories(advantages, mask, main_group(), groups, RELEASED)
    assert found.ratios == pytest.approx([R_G])
    assert found.before == pytest.approx((14.73, -20.53), abs=0.01)
    assert found.after == pytest.approx((20.06, -14.26), abs=0.01)
    assert found.silver == [6]
    stats = found.statistics()
    assert stats["score"] == pytest.approx((1 + 1 + 1 / 3 + 2 / 3 + 1 + 0 + 1 / 3) / 7)
    assert stats["softened"] == pytest.approx(3 / 7)
    assert stats["without_silver"] == 0


def c1():
    docs = [["ABC"], ["ABC"], ["XYZ"], ["ABC"]]
    lengths = [[4, 2], [4, 5], [4, 3], [4, 2]]
    rewards = [0.5, 0.0, 0.0, 0.0]
    return [rollout(f"R{i}", r, d, n) for i, (r, d, n) in enumerate(zip(rewards, docs, lengths, strict=True))]


def c4():
    return [
        rollout("R1", 1.0, ["ABC"], [4, 2]),
        rollout("R2", 1.0, ["ABD"], [4, 2]),
        rollout("R3", 0.0, ["ABC", "DEF"], [4, 3, 3], well_formed=False),
        rollout("R4", 0.0, [], [6], well_formed=False),
    ]


@pytest.mark.parametrize("parameters", [PAPER, RELEASED])
@pytest.mark.parametrize(("dtype", "rel"), DTYPES)
class TestCornerCases:
    def test_nobody_correct(self, parameters, dtype, rel):
        a, b = 0.375 / (0.25 + 1e-6), -0.125 / (0.25 + 1e-6)
        found = by_turn(c1(), parameters, dtype)
        assert [a, b, a * 5 / 3] == pytest.approx([1.499994, -0.499998, 2.499990], abs=1e-6)
        close(found, [[a, a * 5 / 3], [b, b], [b, b], [b, b]], rel)

    def test_all_correct(self, parameters, dtype, rel):
        group = [rollout(f"R{i}", 1.0, ["ABC"], [4, 2]) for i in range(4)]
        assert by_turn(group, parameters, dtype) == [[0, 0]] * 4

    @pytest.mark.parametrize("reward", [2 / 3, 0.9, 0.0])
    def test_equal_rewards(self, parameters, dtype, rel, reward):
        group = [rollout(f"R{i}", reward, ["ABC"], [4, 2]) for i in range(8)]
        assert by_turn(group, parameters, dtype) == [[0, 0]] * 8

    def test_malformed_rollouts_keep_the_full_penalty(self, parameters, dtype, rel):
        a = 0.5 / (math.sqrt(1 / 3) + 1e-6)
        found = by_turn(c4(), parameters, dtype)
        assert [a, a * 2.25] == pytest.approx([0.866024, 1.948554], abs=1e-6)
        close(found, [[a, a * 2.25], [a, a * 2.25], [-a, -a, -a], [-a]], rel)

    def test_a_group_of_one(self, parameters, dtype, rel):
        found = by_turn([rollout("R1", 1.0, ["ABC"], [4, 2])], parameters, dtype, advantages=[1 / (1 + 1e-6)])
        assert found[0][0] == pytest.approx(0.999999, rel=rel)
        assert found[0][1] == 0

    def test_beside_another_group(self, parameters, dtype, rel):
        """Groups are apart: each comes out as it does alone."""
        other = main_group("other")
        both = by_turn([*c4(), *other], parameters, dtype)
        close(both, by_turn(c4(), parameters, dtype) + by_turn(other, parameters, dtype), rel)


def test_malformed_rollouts_are_softened_on_request():
    found = by_turn(c4(), CalibAdv(score_malformed=True))
    a = found[0][0]
    assert found[2] == pytest.approx([0.0, -a * 2 / 3, -a])  # A, B, C and D are silver


def test_correct_but_not_best_is_softened_where_its_advantage_is_negative():
    group = [rollout(f"R{i}", 1.0, ["ABC"], [2, 2]) for i in range(3)] + [rollout("R3", 0.8, ["ABX"], [2, 2])]
    for parameters, c in ((RELEASED, 2 / 3), (PAPER, 1.0)):  # by the paper X is silver, too: its own
        found = by_turn(group, parameters)
        assert found[3][0] == pytest.approx(found[3][1] * (1 - c))


def test_released_rules_from_the_rollouts_own_text():
    """The thought ends at its closing tag; a ``<think>`` that was given stands in the observation, not in the text."""
    silver = rollout("good", 1.0, ["AB", "CD"], [2, 2, 2])
    again = rollout("bad", 0.0, ["AX", "CY"], [2, 2, 2], thoughts=["who wrote the book", "who wrote a book", "so"])
    again.spans[3].text = "who wrote a book</think><search>y</search>"
    found = by_turn([silver, again], RELEASED)
    assert found[1][:2] == pytest.approx([found[1][2] / 2, found[1][2]])
    again.spans[3].text = "something else entirely</think><search>who wrote the book</search>"
    found = by_turn([silver, again], RELEASED)
    assert found[1][:2] == pytest.approx([found[1][2] / 2, found[1][2] / 2])


def test_thoughts_in_other_tags_are_found_or_asked_for():
    silver = rollout("good", 1.0, ["AB", "CD"], [2, 2, 2])
    again = rollout("bad", 0.0, ["AX", "CY"], [2, 2, 2], thoughts=["who wrote the book", "who wrote a book", "so"])
    for span in [*silver.policy_spans, *again.policy_spans]:
        span.text = span.text.replace("think>", "reason>")
        span.parts = [Part(PartKind.THINK, 0, 1)]
    found = by_turn([silver, again], CalibAdv(preset="released", think="reason"))
    assert found[1][:2] == pytest.approx([found[1][2] / 2, found[1][2]])
    with pytest.raises(UserError, match=r"'good'.*calibadv.think"):
        by_turn([silver, again], RELEASED)
    by_turn([silver, again], PAPER)  # compares no thoughts


def test_the_last_turn_is_the_answer_whatever_it_contains():
    """A rollout that used up its turns ends with a search, of which nobody saw the documents."""
    group = [
        rollout("good", 1.0, ["A"], [2, 2]),
        rollout("bad", 0.0, ["A", "A"], [2, 2], well_formed=False),
        rollout("cut", 0.0, ["A"], [2, 2, 0]),
    ]
    found = by_turn(group, CalibAdv(score_malformed=True))
    assert found[1] == pytest.approx([0, found[2][1]])
    assert found[2][0] == 0
    assert found[2][1] < 0


def test_an_empty_turn_in_between_moves_no_score():
    bad = rollout("bad", 0.0, ["X", "", "A"], [2, 0, 2, 2])
    found = by_turn([rollout("good", 1.0, ["A"], [2, 2]), bad], PAPER)
    assert found[1] == pytest.approx([found[1][2], 0, found[1][2]])


def test_scope_all_rebalances_every_turn():
    group = main_group()
    advantages, mask, groups = batch(group)
    out = reshape(advantages, mask, group, groups, CalibAdv(preset="released", rebalance="all"))
    assert float(out[out > 0].sum()) == pytest.approx(-float(out[out < 0].sum()))
    negative = 0.855526 * (3 / 3 + 2 + 6 + 4 * 2 / 3 + 5)  # after softening
    assert float(out[out < 0].sum()) == pytest.approx(-negative, abs=1e-4)
    factor = out[0, 0] / advantages[0, 0]
    assert torch.allclose(out[:2], advantages[:2] * factor)


def test_each_half_can_be_switched_off():
    plain, mask, groups = batch(main_group())
    off = CalibAdv(preset="released", soften=False, rebalance="none")
    assert torch.equal(reshape(plain, mask, main_group(), groups, off), plain)
    full = by_turn(main_group(), RELEASED)
    only_soft = by_turn(main_group(), CalibAdv(preset="released", rebalance="none"))
    assert only_soft[0][-1] == only_soft[0][0]
    assert only_soft[2:] == full[2:]
    only_balance = by_turn(main_group(), CalibAdv(preset="released", soften=False))
    assert only_balance[:2] == full[:2]
    assert only_balance[2][0] == only_balance[2][-1]


def test_no_positive_row_zeroes_the_answers_or_leaves_them():
    group = [rollout("a", 0.0, ["A"], [2, 2]), rollout("b", 0.0, ["B"], [2, 2])]
    assert by_turn(group, PAPER, advantages=[-1.0, -0.5]) == [[-1, 0], [-0.5, 0]]
    kept = CalibAdv(zero_one_sided=False)
    assert by_turn(group, kept, advantages=[-1.0, -0.5]) == [[-1, -1], [-0.5, -0.5]]
    assert by_turn(group, kept, advantages=[1.0, 0.5]) == [[1, 1], [0.5, 0.5]]


def test_right_answers_longer_than_wrong_ones_shrink_and_nothing_bounds_the_factor():
    long_right = [rollout("a", 1.0, ["A"], [2, 20]), rollout("b", 0.0, ["B"], [2, 5])]
    found = by_turn(long_right, PAPER)
    assert found[0][1] == pytest.approx(found[0][0] / 4)
    short_right = [rollout("a", 1.0, ["A"], [2, 20])] + [rollout(f"w{i}", 0.0, ["B"], [2, 1024]) for i in range(4)]
    found = by_turn(short_right, PAPER)
    assert found[0][1] / found[0][0] == pytest.approx(51.2)


@pytest.mark.parametrize("status", [Status.RETRIEVER_FAILED, Status.ABORTED])
def test_failed_rollouts_are_no_part_of_their_group(status):
    failed = rollout("failed", 1.0, ["XYZ"], [4, 9], status=status)
    advantages, mask, groups = batch([*main_group(), failed])
    assert (advantages[4] == 0).all()
    advantages[4] = 3.5  # whatever it has, it keeps
    out = reshape(advantages, mask, [*main_group(), failed], groups, PAPER)
    assert (out[4] == 3.5).all()
    alone = reshape(advantages[:4], mask[:4], main_group(), groups[:4], PAPER)
    assert torch.equal(out[:4], alone)


def test_policy_tokens_outside_of_the_mask_neither_count_nor_change():
    group = main_group()
    advantages, mask, groups = batch(group)
    answer = advantages.shape[1] - 1
    assert mask[2, answer]
    mask[2, answer] = False
    out = reshape(advantages, mask, group, groups, RELEASED)
    assert out[2, answer] == advantages[2, answer]
    assert out[0, 0] == advantages[0, 0]
    ratio = 10 * -A3 / (2 * A1 + 3 * A2)
    found = calibrate_trajectories(advantages, mask, group, groups, RELEASED)
    assert found.ratios == pytest.approx([ratio])


def test_a_mask_of_another_batch_is_refused():
    advantages, mask, groups = batch(main_group())
    with pytest.raises(ValueError, match=r"'R1'.*didn't sample"):
        reshape(advantages, torch.ones_like(mask), main_group(), groups, PAPER)


def test_one_line_in_a_loop_of_your_own():
    group = main_group()
    advantages, mask, groups = batch(group)
    documents = [Searches.of(t, PAPER).documents for t in group]
    rewards = torch.tensor([t.reward for t in group])
    for preset, parameters in (("paper", PAPER), ("released", RELEASED)):
        out = calibrate_advantages(advantages, mask, groups, rewards, documents, preset=preset)
        assert torch.equal(out, reshape(advantages, mask, group, groups, parameters))
    per_rollout = advantages[:, 0]
    assert torch.equal(calibrate_advantages(per_rollout, mask, groups, rewards, documents, preset="released"), out)


def test_one_line_with_malformed_and_failed_rollouts_and_thoughts():
    group = [*c4(), rollout("failed", 1.0, ["Q"], [2, 2], status=Status.ABORTED)]
    advantages, mask, groups = batch(group)
    searches = [Searches.of(t, RELEASED) for t in group]
    out = calibrate_advantages(
        advantages,
        mask,
        groups,
        torch.tensor([t.reward for t in group]),
        [s.documents for s in searches],
        well_formed=[t.format_valid for t in group],
        thoughts=[s.thoughts for s in searches],
        valid=torch.tensor([not t.failed for t in group]),
        preset="released",
    )
    assert torch.equal(out, reshape(advantages, mask, group, groups, RELEASED))


def test_one_line_says_which_list_is_short():
    advantages, mask, groups = batch(c4())
    documents = [[["A"]], [["A"]], [["A"]], []]
    with pytest.raises(ValueError, match=r"documents\[2\] has 1 lists, but rollout 2 has 2 turns"):
        calibrate_advantages(advantages, mask, groups, torch.zeros(4), documents)


def test_presets_yield_to_single_settings():
    assert CalibAdv(preset="released", novelty=False).novelty is False
    assert CalibAdv(preset="released", novelty=False).max_shared == 1
    assert CalibAdv(preset="released") == RELEASED
    assert PAPER.max_similarity is None
    assert CalibAdv(lambda_=2) == CalibAdv(**{"lambda": 2})
    assert CalibAdv(**RELEASED.model_dump()) == RELEASED


@pytest.mark.parametrize("wrong", [{"preset": "code"}, {"lambda": 0}, {"lam": 1}, {"threshold": NAN}, {"silver": "x"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValidationError):
        CalibAdv(**wrong)


# ---------------------------------------------------------------------------------------------------------------------
# Properties

LETTERS = "ABCDEF"


@st.composite
def groups_of_rollouts(draw):
    out = []
    for g in range(draw(st.integers(1, 3))):
        for i in range(draw(st.integers(1, 5))):
            n = draw(st.integers(0, 3))
            out.append(
                rollout(
                    f"{g}.{i}",
                    draw(st.sampled_from([0.0, 0.35, 2 / 3, 0.8, 1.0])),
                    draw(st.lists(st.text(LETTERS, max_size=3), min_size=n, max_size=n)),
                    draw(st.lists(st.integers(1, 6), min_size=n + 1, max_size=n + 1)),
                    well_formed=draw(st.booleans()) or draw(st.booleans()),
                    group=str(g),
                    thoughts=draw(st.lists(st.text("ab ", max_size=8), min_size=n + 1, max_size=n + 1)),
                    status=draw(st.sampled_from([Status.ANSWERED] * 5 + [Status.ABORTED])),
                )
            )
    return out


PARAMETERS = st.builds(
    CalibAdv,
    preset=st.sampled_from(["paper", "released"]),
    rebalance=st.sampled_from(["answer", "all", "none"]),
    lambda_=st.sampled_from([0.5, 1.0, 2.0]),
    score_malformed=st.booleans(),
    zero_one_sided=st.booleans(),
)


@given(groups_of_rollouts(), PARAMETERS, st.sampled_from([0.0, 1.0, -1.0, float("-inf"), NAN]))
def test_masked_tokens_are_neither_read_nor_changed(trajectories, parameters, junk):
    advantages, mask, groups = batch(trajectories)
    clean = reshape(advantages, mask, trajectories, groups, parameters)
    dirty = torch.where(mask, advantages, torch.tensor(junk, dtype=advantages.dtype))
    out = reshape(dirty, mask, trajectories, groups, parameters)
    assert torch.equal(out[mask], clean[mask])
    torch.testing.assert_close(out[~mask], dirty[~mask], rtol=0, atol=0, equal_nan=True)


@given(groups_of_rollouts(), PARAMETERS, st.randoms())
def test_order_of_rollouts_does_not_matter(trajectories, parameters, rng):
    order = list(range(len(trajectories)))
    rng.shuffle(order)
    advantages, mask, groups = batch(trajectories)
    plain = reshape(advantages, mask, trajectories, groups, parameters)
    shuffled = reshape(advantages[order], mask[order], [trajectories[i] for i in order], groups[order], parameters)
    torch.testing.assert_close(shuffled, plain[order], rtol=1e-9, atol=1e-12)


@given(groups_of_rollouts(), PARAMETERS)
def test_groups_are_apart(trajectories, parameters):
    advantages, mask, groups = batch(trajectories)
    whole = reshape(advantages, mask, trajectories, groups, parameters)
    for group in groups.unique().tolist():
        rows = (groups == group).nonzero()[:, 0]
        alone = reshape(
            advantages[rows], mask[rows], [trajectories[i] for i in rows.tolist()], groups[rows], parameters
        )
        torch.testing.assert_close(alone, whole[rows], rtol=1e-9, atol=1e-12)


@given(groups_of_rollouts(), PARAMETERS)
def test_no_sign_flips_and_penalties_only_shrink(trajectories, parameters):
    advantages, mask, groups = batch(trajectories)
    out = reshape(advantages, mask, trajectories, groups, parameters)
    assert torch.isfinite(out).all()
    assert (out * advantages >= 0).all()
    negative = advantages < 0
    assert (out[negative] >= advantages[negative]).all()
    assert not torch.signbit(out[(out == 0) & (advantages != 0)]).any()


@given(groups_of_rollouts(), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from(["answer", "all"]))
def test_rebalanced_sums_have_the_ratio_lambda(trajectories, target, scope):
    advantages, mask, groups = batch(trajectories)
    parameters = CalibAdv(rebalance=scope, lambda_=target)
    out = reshape(advantages, mask, trajectories, groups, parameters)
    for group in groups.unique().tolist():
        positive = negative = 0.0
        for row in (groups == group).nonzero()[:, 0].tolist():
            t = trajectories[row]
            if t.failed:
                continue
            first = len(t.completion_ids) - len(t.policy_spans[-1].ids) if scope == "answer" else 0
            values = out[row, first:][mask[row, first:]]
            positive += float(values[values > 0].sum())
            negative -= float(values[values < 0].sum())
        assert positive == pytest.approx(target * negative, rel=1e-9, abs=1e-12)


@given(groups_of_rollouts(), PARAMETERS)
def test_scores_are_shares(trajectories, parameters):
    advantages, mask, groups = batch(trajectories)
    found = calibrate_trajectories(advantages, mask, trajectories, groups, parameters)
    assert all(0 <= c <= 1 for row in found.scores if row for c in row)
    assert 0 <= found.softened <= found.searches
    assert all(math.isfinite(value) for value in found.statistics().values())


def test_a_batch_without_tokens_or_rows_is_no_crash():
    empty = Trajectory("e", "q", "?", ["a"], [Span(SpanKind.PROMPT, [1])], reward=0.0, status=Status.TRUNCATED)
    mask = torch.zeros(1, 1, dtype=torch.bool)
    out = reshape(torch.zeros(1, 1), mask, [empty], torch.zeros(1, dtype=torch.long), RELEASED)
    assert torch.equal(out, torch.zeros(1, 1))
    out, ratios = rebalance(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool), torch.zeros(0, dtype=torch.long))
    assert out.shape == (0, 3)
    assert ratios == []

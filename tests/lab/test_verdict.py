"""What is said of a comparison, and what is not."""

from sleuth.lab.analysis import analyse
from sleuth.lab.results import Status
from sleuth.lab.verdict import verdict

from .runs import COLLAPSED, HEALTHY, result, runs

ARMS = ("grpo", "cure", "placebo")


def said(results, arms=ARMS, regimes=("stable", "stress")):
    return "\n".join(verdict(analyse(results, regimes, arms, "stable"), results, "stable"))


def test_five_seeds_against_five_can_decide():
    text = said(
        [
            *runs("stress", "grpo", *[COLLAPSED] * 5),
            *runs("stress", "cure", *[HEALTHY] * 5),
            *runs("stress", "placebo", *[COLLAPSED] * 5),
        ]
    )
    assert "stress: plain GRPO collapses in 5 of 5 runs (at batch 9, 9, 9, 9, 9)" in text
    assert (
        "fewer collapses than plain GRPO (Fisher's exact test, one-sided, corrected for 2 arms): cure (0 of 5, p"
        in text
    )
    assert "not shown to collapse less often than plain GRPO: placebo (5 of 5)" in text
    assert "higher final reward than plain GRPO (permutation test, two-sided, corrected for 2 arms): cure 0.400" in text
    assert "lower final reward" not in text
    assert "final reward not told apart from plain GRPO's: placebo 0.000" in text
    assert "No finished run (n = 0): grpo at stable, cure at stable, placebo at stable" in text


def test_a_lower_end_is_said_too():
    text = said([*runs("stress", "grpo", *[HEALTHY] * 5), *runs("stress", "cure", *[[0.3] * 20] * 5)])
    assert "lower final reward than plain GRPO (permutation test, two-sided): cure 0.300" in text


def test_three_seeds_say_that_they_do_not_decide():
    text = said(
        [*runs("stress", "grpo", COLLAPSED, COLLAPSED, HEALTHY), *runs("stress", "cure", *[HEALTHY] * 3)],
        arms=("grpo", "cure"),
    )
    assert "collapses can't decide about cure: with 3 runs against 3, of which GRPO lost 2, even no collapse" in text
    assert "at all has a one-sided p of 0.2. At least 3 seeds an arm are needed" in text
    assert "final rewards can't decide about cure" in text
    assert "a two-sided p of 0.1. At least 4 seeds" in text
    assert "fewer collapses than" not in text
    assert "higher final reward" not in text


def test_one_arm_of_three_seeds_decides_and_two_do_not():
    grpo, cure = runs("stress", "grpo", *[COLLAPSED] * 3), runs("stress", "cure", *[HEALTHY] * 3)
    assert "fewer collapses than plain GRPO" in said([*grpo, *cure])
    text = said([*grpo, *cure, *runs("stress", "placebo", *[COLLAPSED] * 3)])
    assert "fewer collapses than plain GRPO" not in text
    assert "can't decide about any arm" in text
    assert "a one-sided p of 0.05, 0.1 corrected for 2 arms. At least 4 seeds" in text


def test_a_stable_grpo_proves_no_cure_and_a_collapsing_cure_is_named():
    text = said([*runs("stable", "grpo", *[HEALTHY] * 3), *runs("stable", "cure", HEALTHY, COLLAPSED, HEALTHY)])
    assert "GRPO doesn't collapse, so no cure can show that it prevents collapses; cure (1 of 3) did collapse" in text


def test_the_tuned_learning_rate_is_set_against_the_best_cure():
    stress = [*runs("stress", "grpo", *[COLLAPSED] * 5), *runs("stress", "cure", *[HEALTHY] * 5)]
    text = said([*runs("stable", "grpo", *[[0.6] * 20] * 5), *stress])
    assert "Plain GRPO in its tuned regime (stable) ends at 0.600" in text
    assert "the best arm at another setting is cure at stress with 0.400" in text
    assert "plain GRPO at its tuned learning rate beats every cure" in text
    assert "better than plain GRPO at its tuned" in said([*runs("stable", "grpo", *[[0.1] * 20] * 5), *stress])
    assert ": not told apart (permutation test" in said([*runs("stable", "grpo", *[HEALTHY] * 5), *stress])
    assert "So few runs can't tell the two apart" in said([*runs("stable", "grpo", HEALTHY), *stress])


def test_failed_and_missing_runs_are_named():
    text = said(
        [
            *runs("stress", "grpo", HEALTHY),
            result("stress", "cure", 0, [], Status.FAILED, "killed by SIGKILL"),
            result("stress", "placebo", 0, [], Status.TODO),
        ]
    )
    assert "Failed: cure at stress seed 0 (killed by SIGKILL)" in text
    assert "1 of 3 runs are not finished" in text


def test_nothing_finished():
    assert verdict(analyse([], ["stress"], ARMS, "stress"), [], "stress")[0].startswith("No finished run (n = 0)")

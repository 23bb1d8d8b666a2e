from math import comb

import pytest

from sleuth.errors import UserError
from sleuth.evaluation.compare import compare, comparison_sheet, system_pairs
from sleuth.evaluation.folder import EvaluationFolder
from sleuth.evaluation.statistics import holm, mcnemar_test, paired_bootstrap_test
from sleuth.types import EndReason, Status, Trajectory

SETTINGS = {"schema": "sleuth.evaluation/1", "model": "m", "grader": "squad", "k": 3, "corpus": "c", "sets": {"s": 40}}
ONE = {"temperature": 0.0, "samples": 1}


def evaluation(path, right, system="rag-greedy", failed=(), **settings):
    """An evaluation of 40 questions of set s, of which ``right`` are answered right."""
    folder = EvaluationFolder(path)
    folder.begin({**SETTINGS, "systems": {system: ONE}, **settings})
    journal = folder.journal(system)
    journal.open()
    for n in range(40):
        answer = "yes it is" if n in right else "no"
        status, end = Status.ANSWERED, EndReason.ANSWER
        if n in failed:
            answer, status, end = None, Status.ABORTED, EndReason.ABORTED
        source = "s" if n < 20 else "t"
        journal.append(
            [Trajectory(str(n), str(n), "q", ["yes it is"], [], source, answer=answer, status=status, end=end)]
        )
    journal.close(whole=False)
    return str(path)


def test_mcnemar_is_exact():
    assert mcnemar_test(0, 0) == mcnemar_test(3, 3) == 1.0
    assert mcnemar_test(0, 5) == mcnemar_test(5, 0) == 2 / 32
    assert mcnemar_test(2, 10) == pytest.approx(2 * sum(comb(12, i) for i in range(3)) / 2**12)


def test_mcnemar_agrees_with_the_binomial_test():
    stats = pytest.importorskip("scipy.stats")
    for b, c in [(1, 9), (4, 7), (30, 12), (0, 1)]:
        assert mcnemar_test(b, c) == pytest.approx(stats.binomtest(b, b + c).pvalue)


def test_holm_agrees_with_a_library():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = [0.01, 0.04, 0.03, 0.005, 0.9]
    assert holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist())
    assert holm([]) == []


def test_the_bootstrap_test_knows_chance_from_a_difference():
    same = [0.0, 1.0] * 20
    assert paired_bootstrap_test(same, same) == 1.0
    swapped = same[::-1]
    assert paired_bootstrap_test(same, swapped) > 0.5
    assert paired_bootstrap_test([0.0] * 40, [1.0] * 30 + [0.0] * 10) < 0.001


def test_its_p_is_that_of_the_normal_approximation_roughly():
    stats = pytest.importorskip("scipy.stats")
    import numpy as np

    for shift in (0.0, 0.1, 0.2):
        values = np.random.default_rng(3).normal(shift, 1.0, 400)
        z = values.mean() / (values.std() / np.sqrt(len(values)))
        p = paired_bootstrap_test([0.0] * 400, values.tolist())
        assert p == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.015)


def test_two_folders_are_compared_question_by_question(tmp_path):
    a = evaluation(tmp_path / "a", right=range(0, 40, 4))
    b = evaluation(tmp_path / "b", right=range(0, 40, 2), failed=[1])
    results, notes = compare(system_pairs(a, b))
    s, t, average = results
    assert (s.name, t.name, average.name) == ("s", "t", "average")
    assert (s.n, s.left_out, s.only_a, s.only_b) == (19, 1, 0, 5)
    assert (t.n, t.a, t.b, t.difference.mean, t.mcnemar_p) == (20, 0.25, 0.5, 0.25, 2 / 32)
    assert average.difference.mean == pytest.approx((s.difference.mean + t.difference.mean) / 2)
    assert all(r.corrected_p >= r.bootstrap_p for r in results)
    assert notes == ["grader: squad"]
    text = comparison_sheet(results, notes).markdown()
    assert "Holm's correction for 3 tests" in text
    assert "+0.250" in text


def test_what_makes_two_incomparable_is_refused_or_said(tmp_path):
    a = evaluation(tmp_path / "a", right=[1])
    other_k = evaluation(tmp_path / "k", right=[1], k=5)
    other_grader = evaluation(tmp_path / "g", right=[1], grader="robust")
    _, notes = compare(system_pairs(a, other_k))
    assert notes == ["grader: squad", "k differs: 3 and 5; a difference may come from that"]
    one = evaluation(tmp_path / "l", right=[1], limits={"max_turns": 4, "max_context": 8192})
    other = evaluation(tmp_path / "m", right=[1], limits={"max_turns": 4, "max_context": 32768})
    _, notes = compare(system_pairs(one, other))
    assert notes[1:] == ["limits.max_context differs: 8192 and 32768; a difference may come from that"]
    with pytest.raises(UserError, match="score both alike: --grader squad"):
        compare(system_pairs(a, other_grader))
    _, notes = compare(system_pairs(a, other_grader), grader="robust")
    assert notes == ["grader: robust"]


def test_systems_of_one_folder_are_named(tmp_path):
    a = evaluation(tmp_path / "a", right=[1, 2], system="rag-greedy")
    evaluation(tmp_path / "a", right=range(30), system="cot-greedy")
    ((one, other),) = system_pairs(f"{a}:rag-greedy", f"{a}:cot-greedy")
    assert (one[1], other[1]) == ("rag-greedy", "cot-greedy")
    results, _ = compare([(one, other)])
    assert "B is better" in comparison_sheet(results, []).notes[0]
    with pytest.raises(UserError, match="no two systems"):
        system_pairs(a, a)
    with pytest.raises(UserError, match="no system 'direct'"):
        system_pairs(f"{a}:direct", a)
    with pytest.raises(UserError, match="no such folder"):
        system_pairs("gone", a)

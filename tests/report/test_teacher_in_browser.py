"""What a teacher thought of a rollout's steps, in real headless Chromium."""

import copy

import pytest

from sleuth.report.rollouts import Options
from sleuth.report.sources import find_source
from sleuth.report.write import write_report
from sleuth.rollouts import write_rollouts

pytest.importorskip("playwright", reason="playwright is not installed (extra: dev)")


def test_a_step_says_whether_it_was_exempted_or_amplified_and_by_which_evidence(open_report, tmp_path, example):
    rollouts = copy.deepcopy(example)
    wrong = next(t for t in rollouts if t.reward == 0 and len(t.policy_spans) > 1)
    for number, span in enumerate(wrong.policy_spans):
        old = span.old_logprobs or span.logprobs
        span.teacher_logprobs = [x + (-1) ** number * 4 / len(old) for x in old]
    wrong.extra["anchors"] = [{"title": "Rome", "explanation": "<b>the capital</b>"}]
    file = tmp_path / "taught.jsonl"
    write_rollouts(file, rollouts)
    page = tmp_path / "report.html"
    write_report(find_source(file), page, Options(objective="sspo"))
    report = open_report(page, "rollouts")
    report.page.locator(f'.rows tr[data-key$="{wrong.id}"]').click()
    report.asked(wrong.id)
    said = report.page.locator(".turn .teacher").all_inner_texts()
    assert said[:2] == ["teacher +4, exempted", "teacher −4, amplified"]
    shown = report.page.locator(".anchors").inner_text()
    assert "Rome: <b>the capital</b>" in shown

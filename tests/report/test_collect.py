"""What a report holds."""

import copy
import json
import math

import pytest

from sleuth.diagnostics.replay import replay
from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.report.collect import collect
from sleuth.report.rollout_rows import COLUMNS, unpack
from sleuth.report.rollouts import Options
from sleuth.rollouts import write_rollouts

from .conftest import EXAMPLE, batch, write_lines


def details(data):
    return [detail for block in data["rollouts"]["blocks"] for detail in unpack(block)["rollouts"]]


def rows(data):
    return [dict(zip(COLUMNS, row, strict=True)) for row in data["rollouts"]["rows"]]


def test_a_run_gives_metrics_alarms_settings_scores_and_rollouts(run_folder):
    data = collect(run_folder)
    run = data["run"]
    assert run["metrics"]["steps"] == list(range(1, 21))
    assert len(run["metrics"]["series"]["ratio/pos/query/q01"]) == 20
    assert run["metrics"]["names"]["ratio/pos/query/q01"]["text"].endswith("query tokens of positive advantage")
    assert "my_own_component" not in run["metrics"]["names"]
    assert [alarm["level"] for alarm in run["alarms"]] == ["dead"]
    assert not run["afterwards"]
    assert "objective: grpo" in run["recipe"]
    assert run["environment"]["versions"] == {"torch": "9.9.9"}
    assert (run["summary"]["em_after"], run["finished"]) == (0.5, True)
    assert len(data["rollouts"]["rows"]) == len(details(data)) == 16
    json.dumps(data, allow_nan=False)


def test_a_rollouts_file_stands_alone_and_says_what_it_lacks():
    data = collect(EXAMPLE)
    assert (data["kind"], data["run"], data["rollouts"]["objective"]) == ("rollouts", None, "grpo")
    assert any("--tokenizer" in note for note in data["notes"])


def test_advantages_and_ratios_are_those_of_replay(example):
    data = collect(EXAMPLE, Options(objective="calibadv+search_sapo"))
    expected = replay(example, resolve("calibadv+search_sapo"))
    assert data["rollouts"]["objective"] == "calibadv+search_sapo"
    for rollout, shown, again in zip(example, details(data), expected.rollouts, strict=True):
        for span in again.spans:
            own, there = rollout.spans[span.span], shown["spans"][span.span]
            advantages = there["advantages"]
            if not isinstance(advantages, list):
                advantages = [advantages] * len(own.ids)
            assert advantages == pytest.approx(span.advantages, rel=1e-5)
            ratios = [new - old for new, old in zip(own.new_logprobs, own.old_logprobs, strict=True)]
            assert [x / 1000 for x in there["ratios"]] == pytest.approx(ratios, abs=6e-4)
            silent = range(len(own.ids)) if there["silent"] is True else there["silent"]
            assert set(silent) == {i for i, gradient in enumerate(span.grad) if gradient == 0}


def test_an_objectives_settings_reach_the_replay():
    plain = collect(EXAMPLE, Options(objective="search_sapo"))
    strong = collect(EXAMPLE, Options(objective="search_sapo", settings=("search_sapo.gamma=5",)))
    assert [d["loss"] for d in details(plain)] != [d["loss"] for d in details(strong)]
    with pytest.raises(UserError, match="--objective"):
        collect(EXAMPLE, Options(settings=("search_sapo.gamma=5",)))


def test_tokens_have_their_texts_where_the_run_has_its_tokenizer(run_folder):
    data = collect(run_folder)
    assert data["rollouts"]["texts"]
    spans = [span for detail in details(data) for span in detail["spans"] if span["kind"] == "policy"]
    assert all(sum(span["lengths"]) == len(span["text"]) for span in spans)
    assert all(len(span["lengths"]) == span["tokens"] for span in spans)


def test_rows_tell_what_the_list_filters_by(run_folder, example):
    row = rows(collect(run_folder))[0]
    assert (row["id"], row["step"], row["status"], row["reward"]) == (f"1-{example[0].id}", 1, "answered", 1.0)
    assert row["found"] is True
    assert row["queries"] == example[0].queries
    ratios = [n - o for s in example[0].policy_spans for n, o in zip(s.new_logprobs, s.old_logprobs, strict=True)]
    assert row["lowest"] == pytest.approx(math.exp(min(ratios)), rel=1e-4)


def test_a_passage_stands_once_in_a_block(run_folder, example):
    block = unpack(collect(run_folder)["rollouts"]["blocks"][0])
    texts = {d.text for rollout in example for span in rollout.spans for d in span.documents}
    assert sorted(block["texts"]) == sorted(texts)
    observation = next(span for span in block["rollouts"][0]["spans"] if span["kind"] == "observation")
    shown = "".join(piece if isinstance(piece, str) else block["texts"][piece] for piece in observation["text"])
    assert shown == next(span for span in example[0].spans if span.kind == "observation").text


def test_what_is_left_out_is_said(tmp_path, example):
    file = tmp_path / "many.jsonl"
    write_rollouts(file, [rollout for step in range(1, 11) for rollout in batch(example, step)])
    data = collect(file, Options(rollouts=24))
    assert len(data["rollouts"]["rows"]) == 24
    assert len({row["step"] for row in rows(data)}) == 6
    assert any("Showing 24 of 80 rollouts" in note for note in data["notes"])


def test_rollouts_that_would_make_the_file_too_large_are_left_out(tmp_path, example):
    file = tmp_path / "many.jsonl"
    write_rollouts(file, [rollout for step in range(1, 41) for rollout in batch(example, step)])
    whole = sum(len(block) for block in collect(file)["rollouts"]["blocks"])
    data = collect(file, Options(size=whole // 2))
    assert sum(len(block) for block in data["rollouts"]["blocks"]) <= whole // 2
    assert 0 < len(data["rollouts"]["rows"]) < 320
    assert any("would make the file larger" in note for note in data["notes"])


def test_alarmed_rollouts_are_shown_whatever_else_is_left_out(run_folder, example):
    data = collect(run_folder, Options(rollouts=4))
    assert f"2-{example[0].id}" in {row["id"] for row in rows(data)}


def test_broken_numbers_are_told_and_not_drawn(run_folder):
    file = run_folder / "metrics.jsonl"
    write_lines(file, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": -math.inf}])
    with file.open("a") as lines:
        lines.write('{"step": 4, "lo')
    metrics = collect(run_folder)["run"]["metrics"]
    assert metrics["steps"] == [1, 2, 3]
    assert metrics["series"]["loss"] == [0.5, None, None]
    assert metrics["broken"] == {"loss": [2, 3]}


def test_a_broken_rollout_is_data(tmp_path, example):
    rollouts = batch(example, 1)
    rollouts[0].spans[1].new_logprobs[0] = math.nan
    rollouts[1].golden_answers = ["lone \ud800 surrogate"]
    write_rollouts(tmp_path / "some.jsonl", rollouts)
    data = collect(tmp_path / "some.jsonl")
    assert details(data)[0]["spans"][1]["ratios"][0] is None
    json.dumps(data, allow_nan=False)


def test_advantages_that_cannot_be_had_are_said_and_the_rest_is_shown(tmp_path, example):
    alone = copy.deepcopy(example[:1])
    write_rollouts(tmp_path / "alone.jsonl", alone)
    data = collect(tmp_path / "alone.jsonl")
    assert rows(data)[0]["advantage"] is None
    assert any("No advantages of 1 rollouts" in note and "alone" in note for note in data["notes"])


def test_alarms_are_found_afterwards_where_the_run_raised_none(run_folder):
    (run_folder / "alarms.jsonl").unlink()
    run = collect(run_folder)["run"]
    assert run["afterwards"]
    assert run["alarms"]
    assert all(alarm["title"] for alarm in run["alarms"])


def test_a_recipe_of_another_version_is_said_and_the_rest_is_shown(run_folder):
    (run_folder / "recipe.yaml").write_text("no_such_key: 1\n")
    data = collect(run_folder)
    assert any("recipe can't be read" in note and "no_such_key" in note for note in data["notes"])
    assert data["rollouts"]["objective"] == "grpo"


def test_a_run_that_has_only_begun_has_a_report(tmp_path):
    (tmp_path / "recipe.yaml").write_text("name: young\n")
    data = collect(tmp_path)
    assert (data["run"]["metrics"]["steps"], data["run"]["finished"], data["rollouts"]) == ([], False, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "neither a run folder"),
        (lambda path: path.write_text("{}\n"), "schema|no rollout"),
        (lambda path: path.write_text(""), "no rollouts in it"),
        (lambda path: (path.mkdir(), (path / "comparison.json").write_text("[")), "not JSON"),
        (lambda path: (path.mkdir(), (path / "comparison.json").write_text("{}")), "no comparison"),
    ],
)
def test_what_no_report_can_be_made_of_is_refused_in_one_line(tmp_path, make, message):
    make(tmp_path / "it")
    with pytest.raises(UserError, match=message) as error:
        collect(tmp_path / "it")
    assert "\n" not in str(error.value)


def test_long_runs_are_thinned_and_say_so(run_folder):
    write_lines(run_folder / "metrics.jsonl", [{"step": step, "reward": 0.5} for step in range(1, 5002)])
    data = collect(run_folder)
    assert len(data["run"]["metrics"]["steps"]) <= 2001
    assert data["run"]["metrics"]["steps"][-1] == 5001
    assert any("every 3rd of 5,001 steps" in note for note in data["notes"])


def test_one_group_that_cannot_be_replayed_loses_the_others_nothing(tmp_path, example):
    rollouts = batch(example, 1)
    whole = _replayed(tmp_path, rollouts)
    broken = copy.deepcopy(rollouts)
    spoilt = broken[0].group
    broken[0].reward = math.nan
    alone = copy.deepcopy(broken[-1])
    alone.id, alone.group = "alone", "a-group-of-one"
    some = _replayed(tmp_path, [*broken, alone])
    kept = {t.id for t in rollouts if t.group != spoilt}
    assert 0 < len(kept) < len(rollouts)
    assert {name: row for name, row in some.items() if row is not None} == {name: whole[name] for name in kept}
    notes = " ".join(collect(tmp_path / "rollouts.jsonl")["notes"])
    assert f"No advantages of {len(rollouts) - len(kept)} rollouts" in notes
    assert "No advantages of 1 rollouts" in notes


def _replayed(tmp_path, rollouts):
    """By rollout, the advantage that the report's list shows."""
    write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    shown = collect(tmp_path / "rollouts.jsonl")["rollouts"]
    at, name = COLUMNS.index("advantage"), COLUMNS.index("id")
    return {row[name]: row[at] for row in shown["rows"]}


def test_what_a_teacher_thought_stands_at_its_steps(example, tmp_path):
    rollouts = copy.deepcopy(example)
    wrong = next(t for t in rollouts if t.reward == 0 and len(t.policy_spans) > 1)
    for span, gain in zip(wrong.policy_spans, [4.0, *[-4.0] * len(wrong.policy_spans)], strict=False):
        old = span.old_logprobs or span.logprobs
        span.teacher_logprobs = [x + gain / len(old) for x in old]
    wrong.extra["anchors"] = [{"title": "Rome", "explanation": "the capital"}]
    file = tmp_path / "taught.jsonl"
    write_rollouts(file, rollouts)
    shown = details(collect(file, Options(objective="sspo")))
    there = shown[rollouts.index(wrong)]
    steps = [(span["gain"], span["weighed"]) for span in there["spans"] if span["kind"] == "policy"]
    assert steps[0] == (pytest.approx(4.0), "exempted")
    assert steps[1] == (pytest.approx(-4.0), "amplified")
    assert there["anchors"] == [["Rome", "the capital"]]
    assert "anchors" not in there.get("extra", "")
    other = shown[next(i for i, t in enumerate(rollouts) if t is not wrong)]
    assert not any("gain" in span for span in other["spans"])

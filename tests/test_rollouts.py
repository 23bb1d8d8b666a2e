import copy
import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.rollouts import InvalidRollout, from_dict, read_rollouts, to_dict, write_rollouts
from sleuth.types import (
    STATUS_OF,
    Action,
    ActionType,
    Document,
    EndReason,
    Part,
    PartKind,
    Problem,
    Span,
    SpanKind,
    Status,
    StopReason,
    Trajectory,
)

# The design's own example.
ROW = json.loads(
    """
{"schema": "sleuth.rollout/1", "id": "q17-3", "group": "q17", "step": 12, "question": "…", "golden_answers": ["…"],
 "data_source": "hotpotqa",
 "spans": [
  {"kind": "prompt", "ids": [1, 2], "text": "…"},
  {"kind": "policy", "ids": [5, 6, 7], "text": "<think>…</think><search>…</search>", "logprobs": [-0.1, -0.2, -0.3],
   "action": {"type": "search", "query": "…"}, "stop": "action",
   "parts": [{"kind": "think", "start": 0, "end": 2}, {"kind": "query", "start": 2, "end": 3}]},
  {"kind": "observation", "ids": [8, 9], "text": "<information>…</information>",
   "documents": [{"id": "12", "title": "…", "score": 3.1}]},
  {"kind": "policy", "ids": [10, 11], "text": "<answer>Paris</answer>", "logprobs": [-0.1, -0.1],
   "action": {"type": "answer", "text": "Paris"}, "stop": "action"}],
 "answer": "Paris", "status": "answered", "format_valid": true, "reward": 1.0,
 "rewards": {"em": 1.0, "f1": 1.0}}
"""
)


def row_with(path, value):
    """The example with one place changed; ``path`` as in error messages."""
    row = copy.deepcopy(ROW)
    *steps, last = path.replace("]", "").replace("[", ".").split(".")
    place = row
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    last = int(last) if last.isdigit() else last
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return row


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text("abcdef_", min_size=1, max_size=6)
FLOATS = st.floats()
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3))


@st.composite
def spans(draw):
    ids = draw(st.lists(st.integers(0, 200_000), max_size=5))
    per_token = st.none() | st.lists(FLOATS, min_size=len(ids), max_size=len(ids))
    starts = st.integers(0, len(ids))
    parts = st.builds(lambda kind, a, b: Part(kind, min(a, b), max(a, b)), st.sampled_from(PartKind), starts, starts)
    actions = st.one_of(
        st.none(),
        st.builds(Action, st.just(ActionType.SEARCH), query=TEXT),
        st.builds(Action, st.just(ActionType.ANSWER), text=TEXT),
        st.builds(
            Action, st.just(ActionType.TOOL), name=NAMES, arguments=st.none() | st.dictionaries(NAMES, JSON, max_size=2)
        ),
        st.builds(Action, st.just(ActionType.INVALID), problem=st.sampled_from(Problem)),
    )
    return Span(
        kind=draw(st.sampled_from(SpanKind)),
        ids=ids,
        text=draw(TEXT),
        logprobs=draw(per_token),
        action=draw(actions),
        stop=draw(st.none() | st.sampled_from(StopReason)),
        parts=draw(st.lists(parts, max_size=2)),
        documents=draw(st.lists(st.builds(Document, TEXT, TEXT, TEXT, st.none() | FLOATS), max_size=2)),
        truncated=draw(st.booleans()),
        old_logprobs=draw(per_token),
        new_logprobs=draw(per_token),
        ref_logprobs=draw(per_token),
        teacher_logprobs=draw(per_token),
    )


@st.composite
def trajectories(draw):
    end = draw(st.sampled_from(EndReason))
    return Trajectory(
        id=draw(TEXT),
        group=draw(TEXT),
        question=draw(TEXT),
        golden_answers=draw(st.lists(TEXT, max_size=3)),
        spans=draw(st.lists(spans(), max_size=3)),
        data_source=draw(TEXT),
        step=draw(st.integers(0, 10**6)),
        update=draw(st.none() | st.integers(1, 100)),
        answer=draw(st.none() | TEXT),
        status=STATUS_OF[end],
        end=end,
        format_valid=draw(st.booleans()),
        counts=draw(st.dictionaries(NAMES, st.integers(0, 100), max_size=3)),
        reward=draw(st.none() | FLOATS),
        rewards=draw(st.dictionaries(NAMES, FLOATS, max_size=3)),
        error=draw(st.none() | TEXT),
        supporting_titles=draw(st.lists(TEXT, max_size=2)),
        extra=draw(st.dictionaries(NAMES, JSON, max_size=3)),
    )


@settings(deadline=None)
@given(st.lists(trajectories(), max_size=3, unique_by=lambda t: (t.step, t.id)), st.sampled_from(["", ".gz", ".zst"]))
def test_any_trajectories_round_trip_through_a_file(tmp_path_factory, written, ending):
    path = tmp_path_factory.mktemp("rollouts") / f"rollouts.jsonl{ending}"
    write_rollouts(path, written)
    # repr, since NaN is unequal to itself.
    assert repr(list(read_rollouts(path))) == repr(written)


def test_the_property_test_covers_every_field():
    names = {field.name for field in dataclasses.fields(Trajectory)}
    assert names == {
        *("id", "group", "question", "golden_answers", "spans", "data_source", "step", "update", "answer", "status"),
        *("end", "format_valid", "counts", "reward", "rewards", "error", "supporting_titles", "extra"),
    }
    assert len(dataclasses.fields(Span)) == 13
    assert len(dataclasses.fields(Action)) == 6


def test_the_example_of_the_design_reads_and_is_written_back_as_it_is():
    trajectory = from_dict(ROW)
    assert trajectory.spans[1].action == Action(ActionType.SEARCH, query="…")
    assert trajectory.spans[1].parts[1] == Part(PartKind.QUERY, 2, 3)
    assert trajectory.spans[2].documents == [Document("12", "…", "", 3.1)]
    assert trajectory.completion_mask == [1, 1, 1, 0, 0, 1, 1]
    assert to_dict(trajectory) == {**ROW, "end": "answer"}


def test_what_is_empty_is_left_out_and_text_is_not_escaped(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    trajectory = Trajectory("1", "1", "Où ?", ["São Paulo"], [Span(SpanKind.PROMPT, [3])])
    write_rollouts(path, [trajectory])
    text = path.read_text(encoding="utf-8")
    assert "São Paulo" in text
    assert set(json.loads(text)) == {
        *("schema", "id", "group", "step", "question", "golden_answers", "spans", "status", "end", "format_valid")
    }
    assert json.loads(text)["spans"] == [{"kind": "prompt", "ids": [3]}]


def test_empty_text_that_means_something_is_kept():
    trajectory = from_dict(row_with("answer", ""))
    assert trajectory.answer == ""
    assert to_dict(trajectory)["answer"] == ""
    searched = from_dict(row_with("spans[1].action", {"type": "search", "query": ""}))
    assert to_dict(searched)["spans"][1]["action"] == {"type": "search", "query": ""}


def test_nan_and_infinity_are_read_and_written(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    row = row_with("spans[3].logprobs", [math.nan, -math.inf])
    row["reward"] = math.nan
    write_rollouts(path, [from_dict(row)])
    assert '"logprobs": [NaN, -Infinity]' in path.read_text()
    (trajectory,) = read_rollouts(path)
    assert math.isnan(trajectory.spans[3].logprobs[0])
    assert trajectory.spans[3].logprobs[1] == -math.inf
    assert math.isnan(trajectory.reward)


@pytest.mark.parametrize("status", list(Status))
def test_an_absent_end_is_one_that_gives_the_status(status):
    trajectory = from_dict(row_with("status", status.value))
    assert trajectory.status is status
    assert STATUS_OF[trajectory.end] is status


def test_fields_that_may_be_absent_or_null_get_their_defaults():
    optional = ["data_source", "step", "answer", "format_valid", "reward", "rewards"]
    row = {name: value for name, value in ROW.items() if name not in optional}
    bare = from_dict(row)
    assert (bare.data_source, bare.step, bare.answer, bare.format_valid, bare.reward, bare.rewards) == (
        *("", 0, None, False),
        *(None, {}),
    )
    assert from_dict(row | {"reward": None, "answer": None, "step": None, "extra": None}) == bare
    assert from_dict(row_with("spans[1].logprobs", None)).spans[1].logprobs is None


def test_unknown_fields_of_a_row_are_kept_in_extra_and_elsewhere_ignored():
    row = row_with("spans[1].colour", "red") | {"hops": 2, "level": "hard", "extra": {"level": "easy", "fold": 3}}
    trajectory = from_dict(row)
    assert trajectory.extra == {"hops": 2, "level": "easy", "fold": 3}
    assert trajectory.spans == from_dict(ROW).spans
    assert from_dict(to_dict(trajectory)) == trajectory


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("schema", ..., 'schema: must be "sleuth.rollout/1", not null'),
        ("schema", "sleuth.rollout/2", 'not "sleuth.rollout/2"'),
        ("id", ..., "id: missing"),
        ("id", 3, "id: must be a string, not 3"),
        ("group", None, "group: must be a string, not null"),
        ("question", ..., "question: missing"),
        ("golden_answers", ..., "golden_answers: missing"),
        ("golden_answers", "Paris", 'golden_answers: must be a list, not "Paris"'),
        ("golden_answers", ["Paris", 3], "golden_answers: must be a list of strings, not 3 in it"),
        ("spans", ..., "spans: missing"),
        ("spans", {}, "spans: must be a list"),
        ("spans[0]", 3, "spans[0]: must be an object"),
        ("status", ..., "status: missing"),
        ("status", "won", "status: must be one of answered, no_answer, truncated, retriever_failed, aborted, not"),
        ("status", True, "status: must be a string"),
        ("end", "never", "end: must be one of answer, max_turns"),
        ("end", "max_turns", 'end: "max_turns" means status "no_answer", but status is "answered"'),
        ("step", 1.5, "step: must be an integer"),
        ("step", True, "step: must be an integer"),
        ("format_valid", 1, "format_valid: must be true or false"),
        ("reward", "1", "reward: must be a number"),
        ("reward", True, "reward: must be a number"),
        ("reward", 10**400, "reward: must be a number that a float can hold"),
        ("rewards", {"em": None}, "rewards.em: must be a number, not null"),
        ("rewards", [1], "rewards: must be an object"),
        ("counts", {"searches": 1.0}, "counts.searches: must be an integer"),
        ("extra", [], "extra: must be an object"),
        ("error", 3, "error: must be a string"),
        ("spans[0].kind", ..., "spans[0].kind: missing"),
        ("spans[0].kind", "system", "spans[0].kind: must be one of prompt, policy, observation, hint"),
        ("spans[0].ids", ..., "spans[0].ids: missing"),
        ("spans[0].ids", [1, 2.0], "spans[0].ids: must be a list of token ids, not 2.0 in it"),
        ("spans[0].ids", [1, True], "spans[0].ids: must be a list of token ids"),
        ("spans[0].ids", [-1], "spans[0].ids: must be a list of token ids"),
        ("spans[1].text", 3, "spans[1].text: must be a string"),
        ("spans[1].logprobs", [-0.1], "spans[1].logprobs: 1 values for 3 ids"),
        ("spans[1].logprobs", [], "spans[1].logprobs: 0 values for 3 ids"),
        ("spans[1].logprobs", [-0.1, None, -0.1], "spans[1].logprobs: must be a list of numbers, not null in it"),
        ("spans[1].old_logprobs", [-0.1] * 4, "spans[1].old_logprobs: 4 values for 3 ids"),
        ("spans[1].new_logprobs", [-0.1] * 2, "spans[1].new_logprobs: 2 values for 3 ids"),
        ("spans[1].ref_logprobs", [-0.1] * 2, "spans[1].ref_logprobs: 2 values for 3 ids"),
        ("spans[1].teacher_logprobs", [-0.1] * 2, "spans[1].teacher_logprobs: 2 values for 3 ids"),
        ("spans[1].stop", "eos", "spans[1].stop: must be one of action, end_of_turn, length"),
        ("spans[1].truncated", "no", "spans[1].truncated: must be true or false"),
        ("spans[1].action", "search", "spans[1].action: must be an object"),
        ("spans[1].action.type", "browse", "spans[1].action.type: must be one of search, answer, tool, invalid"),
        ("spans[1].action.type", ..., "spans[1].action.type: missing"),
        ("spans[1].action.query", ..., "spans[1].action.query: missing"),
        ("spans[3].action.text", ..., "spans[3].action.text: missing"),
        ("spans[3].action.type", "tool", "spans[3].action.name: missing"),
        ("spans[1].action.problem", "bored", "spans[1].action.problem: must be one of no_action"),
        ("spans[1].parts[0].kind", "song", "spans[1].parts[0].kind: must be one of think, query, answer, tag"),
        ("spans[1].parts[0].start", ..., "spans[1].parts[0].start: missing"),
        ("spans[1].parts[0].start", -1, "spans[1].parts[0].start: -1 to 2 is no part of a span of 3 ids"),
        ("spans[1].parts[1].end", 4, "spans[1].parts[1].start: 2 to 4 is no part of a span of 3 ids"),
        ("spans[1].parts[1].end", 1, "spans[1].parts[1].start: 2 to 1 is no part"),
        ("spans[2].documents[0].id", ..., "spans[2].documents[0].id: missing"),
        ("spans[2].documents[0].score", "high", "spans[2].documents[0].score: must be a number"),
    ],
)
def test_a_broken_row_is_named_by_file_line_and_field(tmp_path, path, value, says):
    file = tmp_path / "rollouts.jsonl"
    file.write_text(json.dumps({**ROW, "id": "good"}) + "\n\n" + json.dumps(row_with(path, value)) + "\n")
    rows = read_rollouts(file)
    assert next(rows).id == "good"
    with pytest.raises(UserError) as error:
        next(rows)
    assert f"{file}, line 3: " in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_long_wrong_value_is_cut_and_kept_on_one_line():
    with pytest.raises(InvalidRollout) as error:
        from_dict(row_with("status", "x\ny" * 1000))
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


def test_an_id_may_come_again_at_another_step_only(tmp_path):
    file = tmp_path / "rollouts.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in [ROW, {**ROW, "step": 13}, ROW]))
    rows = read_rollouts(file)
    assert [next(rows).step, next(rows).step] == [12, 13]
    with pytest.raises(UserError, match=r'line 3: id: "q17-3" was used on line 1'):
        next(rows)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        next(read_rollouts(tmp_path / "none.jsonl.zst"))


def test_a_write_that_fails_keeps_the_old_file(tmp_path):
    file = tmp_path / "rollouts.jsonl.zst"
    write_rollouts(file, [from_dict(ROW)])

    def broken():
        yield from_dict(row_with("id", "new"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rollouts(file, broken())
    assert [t.id for t in read_rollouts(file)] == ["q17-3"]
    assert len(list(tmp_path.iterdir())) == 1

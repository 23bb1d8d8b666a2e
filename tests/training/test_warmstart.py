"""Warm start: what its rows teach, and that it teaches."""

import json

import pytest

from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.anchors.passages import Passages
from sleuth.anchors.supporting import supporting_anchors
from sleuth.assembly import assemble
from sleuth.errors import UserError
from sleuth.rollouts import write_rollouts
from sleuth.training.demonstrations import demonstrations
from sleuth.training.playback import play
from sleuth.training.warmstart import IGNORED, sft_row, sft_rows, warmstart
from sleuth.types import Document, Question, SpanKind, Status
from sleuth.world.tiny import make_tiny_tokenizer

TURNS = [
    "<think> first find age of anna </think> <search> anna age </search>",
    "<think> it is otto </think> <answer> otto </answer>",
]
QUESTION = Question("q", "who is rival of anna ?", ["otto"])
FOUND = [[Document("1", "anna", "anna rival is otto")]]


def _played(**settings):
    protocol = TagProtocol(TokenCodec(make_tiny_tokenizer()), TagSettings(prompt="<bos> {question}", **settings))
    return play(QUESTION, TURNS, FOUND, protocol, Limits()), protocol


def test_a_played_demonstration_is_the_trajectory_of_a_rollout():
    trajectory, _ = _played()
    assert trajectory.status is Status.ANSWERED
    assert trajectory.answer == "otto"
    assert trajectory.format_valid
    assert [s.kind for s in trajectory.spans] == [
        SpanKind.PROMPT, SpanKind.POLICY, SpanKind.OBSERVATION, SpanKind.POLICY,
    ]  # fmt: skip


def test_only_what_the_policy_wrote_has_labels():
    trajectory, _ = _played()
    row = sft_row(trajectory)
    start = 0
    for span in trajectory.spans:
        labels = row["labels"][start : start + len(span.ids)]
        assert row["input_ids"][start : start + len(span.ids)] == span.ids
        assert labels == (span.ids if span.kind is SpanKind.POLICY else [IGNORED] * len(span.ids))
        start += len(span.ids)
    assert start == len(row["labels"]) == len(row["input_ids"])


def test_a_thought_that_the_environment_opens_is_not_written_twice():
    trajectory, protocol = _played(prepend_think=True)
    assert trajectory.format_valid
    think = protocol.codec.encode("<think>")[0]
    assert all(think not in span.ids for span in trajectory.policy_spans)
    assert sum(span.ids.count(think) for span in trajectory.spans) == 2


def test_a_demonstration_that_does_not_fit_is_left_out_whole():
    trajectory, _ = _played()
    size = len(sft_row(trajectory)["input_ids"])
    assert sft_rows([trajectory], size) == ([sft_row(trajectory)], 0)
    assert sft_rows([trajectory], size - 1) == ([], 1)


def test_a_warm_start_leaves_a_model_that_has_learned(small, tmp_path):
    from sleuth.models import load_model, load_tokenizer

    out = tmp_path / "warm"
    summary = warmstart(
        small(
            "model=tiny-untrained",
            "warmstart={count: 120, steps: 40, batch: 12, lr: 0.01}",
        ),
        out,
        quiet=True,
    )
    assert summary["loss_last"] < 0.7 * summary["loss_first"]
    assert json.loads((out / "warmstart.json").read_text()) == summary
    assert load_model(str(out)).num_parameters() > 0
    assert load_tokenizer(str(out)).convert_tokens_to_ids("</search>") is not None
    with pytest.raises(UserError, match="not empty"):
        warmstart(small(), out, quiet=True)


@pytest.mark.parametrize("source", ["world", "oracle"])
def test_a_share_of_the_demonstrations_stands_behind_the_teachers_prompt(small, tmp_path, source):
    recipe = small(f"warmstart.demonstrations={source}", "warmstart.count=8", "warmstart.with_anchors=0.25")
    parts = assemble(recipe, tmp_path)
    shown = demonstrations(recipe, parts)
    questions, passages = {q.id: q for q in parts.train}, Passages(parts.retriever)

    def prompts(t):
        question = questions[t.group]
        informed = recipe.teacher.prompt.question(question, supporting_anchors(question, passages).anchors)
        return [parts.protocol.prompt(q).ids for q in (question, informed)]

    kinds = [prompts(t).index(t.spans[0].ids) for t in shown]
    assert (len(kinds), sum(kinds)) == (8, 2)
    assert all(t.rewards["em"] == 1 for t, informed in zip(shown, kinds, strict=True) if informed)


def test_demonstrations_of_a_file_keep_the_prompts_that_they_have(small, tmp_path):
    file = tmp_path / "shown.jsonl"
    write_rollouts(file, [_played()[0]])
    with pytest.raises(UserError, match=r"with_anchors.*prompts already"):
        warmstart(small(f"warmstart.demonstrations={file}", "warmstart.with_anchors=0.5"), tmp_path / "x", quiet=True)


def test_an_unknown_source_of_demonstrations_is_refused(small, tmp_path):
    with pytest.raises(UserError, match="oracle"):
        warmstart(small("warmstart.demonstrations=nowhere.jsonl"), tmp_path / "x", quiet=True)

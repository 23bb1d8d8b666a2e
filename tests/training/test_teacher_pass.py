"""What the teacher reads: the rollout's own ids behind another prompt."""

import math

import pytest
import torch

from sleuth.agent.codec import TokenCodec
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.anchors.prompt import TeacherPrompt
from sleuth.anchors.rows import Anchor
from sleuth.training.teacher_pass import PrivilegedPrompts, at_places, behind_other_prompts, write_readings
from sleuth.types import Question, Span, SpanKind, Trajectory

PROMPT = TeacherPrompt(prompt="{attempt}{anchors} . {question}", attempt="not {answer} . ", anchor="{explanation}")
QUESTION = Question("q", "who wrote it ?", ["rome"])


@pytest.fixture
def protocol(word_tokenizer):
    return TagProtocol(TokenCodec(word_tokenizer), TagSettings(prompt="{question}"))


@pytest.fixture
def prompts(protocol):
    """``prompts(**fields)``: with one anchor for every question."""

    def make(**fields):
        given = {"anchors": lambda q: [Anchor("rome", "the capital is rome")], "prompt": PROMPT, "protocol": protocol}
        return PrivilegedPrompts(**{**given, **fields})

    return make


def _rollout(protocol, answer="paris", opened=True):
    spans = [protocol.prompt(QUESTION)]
    if opened:
        spans.append(Span(SpanKind.OBSERVATION, [3], "<think>"))
    spans += [Span(SpanKind.POLICY, [5, 6]), Span(SpanKind.OBSERVATION, [7, 8, 9]), Span(SpanKind.POLICY, [10])]
    return Trajectory("r", "g", QUESTION.question, QUESTION.golden_answers, spans, answer=answer)


def test_the_prompt_says_what_went_wrong_and_where_to_look(prompts, protocol):
    ids = prompts().ids(_rollout(protocol), QUESTION, [Anchor("rome", "the capital is rome")])
    assert protocol.codec.decode(ids[:-1]) == "<unk> paris . the capital is rome . who wrote it ?"
    assert ids[-1] == 3  # what the environment opened stands before the first token


@pytest.mark.parametrize("answer", [None, "", "  "])
def test_without_an_answer_nothing_is_called_wrong(prompts, protocol, answer):
    ids = prompts().ids(_rollout(protocol, answer, opened=False), QUESTION, [Anchor("rome", "the capital is rome")])
    assert protocol.codec.decode(ids) == "the capital is rome . who wrote it ?"


def test_only_what_is_wanted_has_anchors_and_fits_is_read(prompts, protocol):
    rollouts, questions = [_rollout(protocol)] * 3, [QUESTION] * 3
    found = prompts().readings(rollouts, questions, [True, False, True])
    assert (found.rows, found.without_anchors, found.too_long) == ([0, 2], 0, 0)
    none = prompts(anchors=lambda q: ()).readings(rollouts, questions, [True, False, True])
    assert (none.rows, none.without_anchors) == ([], 2)
    length = len(found.prompts[0]) + len(rollouts[0].completion_ids)
    assert prompts(max_context=length).readings(rollouts, questions, [True] * 3).too_long == 0
    long = prompts(max_context=length - 1).readings(rollouts, questions, [True] * 3)
    assert (long.rows, long.too_long) == ([], 3)
    assert long.statistics() == {"teacher/scored": 0, "teacher/without_anchors": 0, "teacher/too_long": 3}


def test_completions_stand_behind_the_prompts_column_by_column():
    completions = torch.tensor([[5, 6, 7], [8, 9, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    ids, attention = behind_other_prompts([[1], [2, 3, 4]], completions, mask, pad=0)
    assert ids.tolist() == [[0, 0, 1, 5, 6, 7], [2, 3, 4, 8, 9, 0]]
    assert attention.tolist() == [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]]


def test_scores_go_back_to_their_rows_and_rollouts(prompts, protocol):
    rollouts = [_rollout(protocol), _rollout(protocol)]
    readings = prompts().readings(rollouts, [QUESTION] * 2, [False, True])
    policy = torch.tensor([t.completion_mask for t in rollouts])
    values = torch.tensor([[-1.0, -2.0, -9.0, -9.0, -9.0, -3.0]])
    scores = at_places(values, readings.rows, policy)
    assert scores[0].isnan().all()
    assert scores[1, [0, 1, 5]].tolist() == [-1, -2, -3]
    assert scores[1, 2:5].isnan().all()
    write_readings(rollouts, readings, scores)
    assert [s.teacher_logprobs for s in rollouts[0].policy_spans] == [None, None]
    assert [s.teacher_logprobs for s in rollouts[1].policy_spans] == [[-1, -2], [-3]]
    assert "anchors" not in rollouts[0].extra
    assert rollouts[1].extra["anchors"] == [{"title": "rome", "explanation": "the capital is rome"}]
    assert not any(math.isnan(x) for s in rollouts[1].policy_spans for x in s.teacher_logprobs)

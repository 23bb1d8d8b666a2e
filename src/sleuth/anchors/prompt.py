"""What a teacher is shown: the question, the attempt's wrong answer, the anchors, and not to answer from them alone.

The shape is the paper's (arXiv 2608.12764, figure 3), the words are ours. It takes the place of the question in the
protocol's own prompt, so that a teacher has the same instructions and tools as the policy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, field_validator

from sleuth.anchors.rows import Anchor
from sleuth.types import Question

PROMPT = """\
{question}

{attempt}These sources help with it:
{anchors}

**Do not answer straight from this list.** It only says where to look: search, read what you find, and answer the \
question from that."""

ATTEMPT = "An earlier attempt came to the answer {answer}, which is wrong. "


class TeacherPrompt(BaseModel):
    """How the teacher's question is written.

    Attributes:
        prompt: must contain ``{question}`` and ``{anchors}``; ``{attempt}`` is where the wrong answer is said.
        attempt: with ``{answer}``; left out where the attempt gave no answer. Empty: the answer is never shown.
        anchor: one anchor, of ``{title}`` and ``{explanation}``. ``separator``: between two.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = PROMPT
    attempt: str = ATTEMPT
    anchor: str = "- {title}: {explanation}"
    separator: str = "\n"

    @field_validator("prompt")
    @classmethod
    def _complete(cls, value: str) -> str:
        for name in ("{question}", "{anchors}"):
            if name not in value:
                raise ValueError(f"must contain {name}")
        return value

    def question(self, question: Question, anchors: Sequence[Anchor], wrong_answer: str | None = None) -> Question:
        """The question as the teacher reads it. All that is filled in stays as it is: braces in it are text."""
        attempt = ""
        if wrong_answer and wrong_answer.strip():
            attempt = _fill(self.attempt, answer=wrong_answer.strip())
        listed = self.separator.join(
            _fill(self.anchor, title=anchor.title, explanation=anchor.explanation) for anchor in anchors
        )
        text = _fill(self.prompt, question=question.question.strip(), attempt=attempt, anchors=listed)
        return replace(question, question=text)


def _fill(template: str, **values: str) -> str:
    """The template with its fields filled in one pass, so that no value is taken for a template."""
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1), m.group(0)), template)

"""How passages stand in an observation, whatever the way of talking."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sleuth.agent.codec import TokenCodec
from sleuth.types import Document


class PassageSettings(BaseModel):
    """Settings that every protocol shares.

    Attributes:
        document: one passage; ``{n}`` counts from 1.
        max_document_tokens: a passage's text is cut there; None: only the whole observation is limited.
    """

    model_config = ConfigDict(extra="forbid")

    document: str = "Doc {n}(Title: {title}) {text}"
    document_separator: str = "\n"
    no_results: str = "Nothing was found for this query."
    max_document_tokens: int | None = Field(default=None, ge=1)

    @field_validator("document")
    @classmethod
    def _can_be_filled(cls, value: str) -> str:
        try:
            value.format(n=1, title="", text="")
        except (LookupError, ValueError) as error:
            raise ValueError("may hold only the fields {n}, {title} and {text}; other braces are doubled") from error
        return value

    def show(self, documents: Sequence[Document], codec: TokenCodec) -> str:
        """The body of an observation with these passages, best first."""
        if not documents:
            return self.no_results
        limit = self.max_document_tokens
        return self.document_separator.join(
            self.document.format(n=n, title=d.title, text=d.text if limit is None else codec.cut(d.text, limit))
            for n, d in enumerate(documents, start=1)
        )

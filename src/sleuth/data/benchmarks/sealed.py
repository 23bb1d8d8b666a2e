"""Benchmarks that are published encrypted, so that crawlers don't put them into training sets.

BrowseComp's rows are XORed with the SHA-256 of the row's canary, repeated, and written in base64 (Wei et al. 2025; the
key stands beside the text: this keeps text from being found, not from being read). What is decrypted here stays in
memory: caches hold the rows as published, and :func:`sealed_row` encrypts what an evaluation writes down.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import replace_surrogates
from sleuth.types import Question

CANARY = "canary"
SEALED_FIELDS = ("problem", "answer")
_MARK = "sealed:"


def encrypt(text: str, canary: str) -> str:
    """``text`` in the published form."""
    return base64.b64encode(_xor(replace_surrogates(text).encode(), canary)).decode()


def decrypt(sealed: str, canary: str) -> str:
    """The text of :func:`encrypt`.

    Raises:
        UserError: not base64, or the canary isn't its own.
    """
    try:
        return _xor(base64.b64decode(sealed, validate=True), canary).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise UserError("a sealed text can't be read with its row's canary; fetch the file again") from None


def unsealed(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """A published row in plain text, the canary left where it is.

    Raises:
        UserError: names the place.
    """
    canary = fields.get(CANARY)
    if not isinstance(canary, str) or not canary:
        raise UserError(f'{place}: no "{CANARY}", which is the key to the row; fetch the file again')
    try:
        return fields | {name: decrypt(str(fields.get(name, "")), canary) for name in SEALED_FIELDS}
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def sealed_row(
    row: dict[str, Any], question: Question, keep: Iterable[str] = ("id", "data_source", "status")
) -> dict[str, Any]:
    """``row`` as it may be written down: every text of it encrypted with the question's canary.

    A question without a canary is no sealed one, and its row comes back as it is.

    Args:
        row: anything that JSON holds; texts inside lists and objects are encrypted too, numbers stay.
        keep: fields whose text stays.
    """
    canary = question.extra.get(CANARY)
    if not canary:
        return row
    open_fields = set(keep)
    return {name: value if name in open_fields else _sealed(value, canary) for name, value in row.items()}


def opened_row(row: dict[str, Any], canary: str) -> dict[str, Any]:
    """What :func:`sealed_row` was given."""
    return {name: _opened(value, canary) for name, value in row.items()}


def _sealed(value: Any, canary: str) -> Any:
    if isinstance(value, str):
        return _MARK + encrypt(value, canary)
    if isinstance(value, dict):
        return {name: _sealed(item, canary) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sealed(item, canary) for item in value]
    return value


def _opened(value: Any, canary: str) -> Any:
    if isinstance(value, str):
        return decrypt(value.removeprefix(_MARK), canary) if value.startswith(_MARK) else value
    if isinstance(value, dict):
        return {name: _opened(item, canary) for name, item in value.items()}
    return [_opened(item, canary) for item in value] if isinstance(value, list) else value


def _xor(data: bytes, canary: str) -> bytes:
    key = hashlib.sha256(canary.encode()).digest()
    return bytes(byte ^ key[position % len(key)] for position, byte in enumerate(data))

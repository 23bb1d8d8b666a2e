"""The cache of benchmarks, and the pins that tell a changed benchmark from the one that was first seen.

One folder a benchmark: ``questions.jsonl.gz`` and ``provenance.json``. ``pins.json`` beside them holds, for each
benchmark and place, the hash at the first fetch; it stays when the cached questions go.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, write_atomically, write_jsonl

_QUESTIONS, _PROVENANCE, _PINS = "questions.jsonl.gz", "provenance.json", "pins.json"


def cache_folder() -> Path:
    """``$SLEUTH_CACHE/benchmarks``; without that variable, in the user's cache (``$XDG_CACHE_HOME``, ``~/.cache``)."""
    own = os.environ.get("SLEUTH_CACHE")
    if own:
        return Path(own).expanduser() / "benchmarks"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sleuth" / "benchmarks"


def content_sha256(rows: Iterable[dict[str, Any]], fields: tuple[str, ...]) -> str:
    """The SHA-256 of what a score depends on: ``fields`` of all rows, in the order of their ids.

    The same questions give the same hash in any order and from any file format.
    """
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: str(row["id"])):
        line = json.dumps([row.get(name) for name in fields], ensure_ascii=True, separators=(",", ":"))
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


class Store:
    """The cached benchmarks of a folder.

    Raises:
        UserError: from every method: something in the folder is damaged; says what to delete.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder or cache_folder()

    def provenance(self, name: str) -> dict[str, Any] | None:
        """What is known of the cached copy; None without one."""
        path = self.folder / name / _PROVENANCE
        return _json(path) if path.is_file() and (self.folder / name / _QUESTIONS).is_file() else None

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The cached rows."""
        return [row for _, row in read_jsonl(self.folder / name / _QUESTIONS)]

    def where(self, name: str) -> Path:
        """The cached file."""
        return self.folder / name / _QUESTIONS

    def write(self, name: str, rows: Iterable[dict[str, Any]], provenance: dict[str, Any]) -> None:
        """Replace the cached copy."""
        folder = self.folder / name
        (folder / _PROVENANCE).unlink(missing_ok=True)  # last written, first gone: rows without it are no copy
        write_jsonl(folder / _QUESTIONS, rows)
        _write_json(folder / _PROVENANCE, provenance)

    def pin(self, name: str, source: str, sha256: str, *, renew: bool = False) -> None:
        """Remember the hash at the first time, and compare with it ever after.

        Args:
            renew: accept another hash and remember it.

        Raises:
            UserError: the place gave something else before.
        """
        path = self.folder / _PINS
        pins = _json(path) if path.is_file() else {}
        known = pins.setdefault(name, {}).setdefault(source, sha256)
        if known != sha256 and not renew:
            raise UserError(
                f"{name}: {source} gave other questions than the first time (SHA-256 {sha256[:16]}…, first "
                f"{known[:16]}…); scores wouldn't compare; if you mean it: sleuth data get {name} --accept-change"
            )
        pins[name][source] = sha256
        _write_json(path, pins)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: can't be read ({error}); delete it and fetch again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object; delete it and fetch again")
    return content


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with write_atomically(path) as out:
        out.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

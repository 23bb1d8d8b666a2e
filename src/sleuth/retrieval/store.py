"""The text of the passages on disk: one memory-mapped file of JSON lines, and where each line's fields begin and end.

A line is written in one fixed form, ``{"id":"…","contents":"\\"title\\"\\ntext"}``, Search-R1's. It stays an ordinary
corpus that anything can read, and it or its fields can be taken out as they stand, still escaped, which is what a
server puts into its answers.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sleuth.errors import UserError
from sleuth.types import Document

LINES = "passages.jsonl"
PLACES = "passages.places"
"""Three positions in the file of lines for each passage: where its title and its text begin, and where its line ends.
Before the first passage there are three zeros, so that a line begins where the one before it ends."""

_IDS, _TITLES = "passages.ids", "passages.titles"
_BEFORE_ID, _BEFORE_TITLE, _BEFORE_TEXT, _TAIL = b'{"id":"', b'","contents":"\\"', b'\\"\\n', b'"}\n'
"""What stands around the fields in a line."""

_ID, _TITLE, _TEXT, _END = map(len, (_BEFORE_ID, _BEFORE_TITLE, _BEFORE_TEXT, _TAIL))
_BUFFER = 1 << 22
_POSITION = np.dtype("<i8")
_HELD = 3 << 16


class StoreWriter:
    """Writes passages one after another; :meth:`close` puts everything on the disk.

    Args:
        append_from: (bytes, passages) of a store that this one goes on from; what lies behind them is cut off.
    """

    def __init__(self, folder: Path, append_from: tuple[int, int] = (0, 0)) -> None:
        size, count = append_from
        self.bytes, self.count = size, count
        mode = "r+b" if count else "wb"
        self._lines = (folder / LINES).open(mode, buffering=_BUFFER)
        self._places = (folder / PLACES).open(mode)
        self._held = array("q", () if count else (0, 0, 0))
        for file, end in ((self._lines, size), (self._places, 3 * (count + 1) * _POSITION.itemsize if count else 0)):
            file.truncate(end)
            file.seek(end)

    def add(self, document: Document) -> None:
        identity, title, text = escaped_fields(document)
        line = line_of(identity, title, text)
        self._lines.write(line)
        at = self.bytes + _ID + len(identity) + _TITLE
        self.bytes += len(line)
        self.count += 1
        self._held.extend((at, at + len(title) + _TEXT, self.bytes))
        if len(self._held) >= _HELD:
            self._write_places()

    def close(self) -> None:
        self._write_places()
        for file in (self._lines, self._places):
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def _write_places(self) -> None:
        self._places.write(np.asarray(self._held, _POSITION).tobytes())
        self._held = array("q")


class PassageStore:
    """Reads passages by their row, counted from 0.

    Args:
        count: passages that belong to the store, None: all there are. More may stand behind them, if something was
            added that isn't in force yet.

    Raises:
        UserError: a file is missing or shorter than it should be.
    """

    def __init__(self, folder: Path, count: int | None = None) -> None:
        self.folder = folder
        try:
            places = np.memmap(folder / PLACES, _POSITION, "r").view(np.ndarray)
            places = places[: len(places) // 3 * 3].reshape(-1, 3)
            with (folder / LINES).open("rb") as file:
                self._text: mmap.mmap | bytes = (
                    mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if len(places) > 1 else b""
                )
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: the passages can't be read ({error}); build the index again") from None
        count = len(places) - 1 if count is None else count
        self._places = places[: count + 1]
        # For each passage: where its line, its title and its text begin, and where its line ends.
        self._windows = (
            np.lib.stride_tricks.sliding_window_view(places.reshape(-1)[2:], 4)[::3] if count else self._places
        )
        self.bytes = int(self._places[-1, 2]) if count else 0
        if len(places) <= count or len(self._text) < self.bytes:
            raise UserError(f"{folder}: the passages are cut off; build the index again")
        self._ids = _Lookup(folder / _IDS)
        self._titles = _Lookup(folder / _TITLES)

    def __len__(self) -> int:
        return len(self._places) - 1

    def fields(self, row: int) -> tuple[bytes, bytes, bytes]:
        """Id, title and text as UTF-8 JSON strings without their quotes."""
        place, data = self._places.item, self._text
        title, text = place(row + 1, 0), place(row + 1, 1)
        return (
            data[place(row, 2) + _ID : title - _TITLE],
            data[title : text - _TEXT],
            data[text : place(row + 1, 2) - _END],
        )

    def passages(self, rows: Sequence[int]) -> Passages:
        """Many at once, for a tenth of what :meth:`document` takes for each."""
        return Passages(self._text, self._windows[rows].tolist() if rows else [])

    def document(self, row: int, score: float | None = None) -> Document:
        identity, title, text = self.fields(row)
        return Document(_plain(identity), _plain(title), _plain(text), score)

    def documents(self) -> Iterator[Document]:
        for row in range(len(self)):
            yield self.document(row)

    def identity(self, row: int) -> str:
        return _plain(self.fields(row)[0])

    def write_lookups(self) -> list[str]:
        """Write what finds a passage by its id or title, 12 bytes a passage each; the names of the files."""
        for field, name in enumerate((_IDS, _TITLES)):
            _Lookup.write(self.folder / name, (self.fields(row)[field] for row in range(len(self))), len(self))
        return [_IDS, _TITLES]

    def rows_of_id(self, identity: str) -> list[int]:
        wanted = escaped_field(identity)
        return [row for row in self._ids.candidates(wanted) if self.fields(row)[0] == wanted]

    def rows_of_title(self, title: str) -> list[int]:
        """Rows of all passages with exactly this title, in the order of the corpus."""
        wanted = escaped_field(title)
        return [row for row in self._titles.candidates(wanted) if self.fields(row)[1] == wanted]


class Passages:
    """Some passages of a store, their lines and fields still escaped, each a list in the order of the rows."""

    def __init__(self, data: mmap.mmap | bytes, places: list[list[int]]) -> None:
        self._data, self._places = data, places

    def lines(self) -> list[bytes]:
        """JSON objects with ``id`` and ``contents``."""
        data = self._data
        return [data[start : end - 1] for start, _, _, end in self._places]

    def ids(self) -> list[bytes]:
        data = self._data
        return [data[start + _ID : title - _TITLE] for start, title, _, _ in self._places]

    def titles(self) -> list[bytes]:
        data = self._data
        return [data[title : text - _TEXT] for _, title, text, _ in self._places]

    def texts(self) -> list[bytes]:
        data = self._data
        return [data[text : end - _END] for _, _, text, end in self._places]


class _Lookup:
    """Rows by the hash of a field, sorted: (hash, row) pairs, memory-mapped."""

    _PAIR = np.dtype([("hash", "<u8"), ("row", "<u4")])

    def __init__(self, path: Path) -> None:
        there = path.is_file() and path.stat().st_size
        self._pairs = np.memmap(path, self._PAIR, "r") if there else np.empty(0, self._PAIR)

    def candidates(self, field: bytes) -> list[int]:
        value = np.uint64(field_hash(field))
        hashes = self._pairs["hash"]
        first, last = (int(np.searchsorted(hashes, value, side)) for side in ("left", "right"))
        return sorted(self._pairs["row"][first:last].tolist())

    @classmethod
    def write(cls, path: Path, fields: Iterable[bytes], count: int) -> None:
        pairs = np.empty(count, cls._PAIR)
        pairs["hash"] = np.fromiter(map(field_hash, fields), np.uint64, count)
        pairs["row"] = np.arange(count)
        pairs[np.argsort(pairs["hash"], kind="stable")].tofile(path)


def field_hash(field: bytes) -> int:
    """64 bits of a field, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(field, digest_size=8).digest(), "little")


def without_duplicates(folder: Path, hashes: np.ndarray) -> list[tuple[str, int, int]]:
    """Rewrite the store in ``folder`` so that every id is there once; the first passage with an id stays.

    Args:
        hashes: :func:`field_hash` of every id, uint64.

    Returns:
        (id, row left out, row that stays), in the old numbering, in order.
    """
    order = np.argsort(hashes, kind="stable")
    same = hashes[order][1:] == hashes[order][:-1]
    if not same.any():
        return []
    store = PassageStore(folder)
    first: dict[str, int] = {}
    out: list[tuple[str, int, int]] = []
    suspects = np.unique(np.concatenate([order[1:][same], order[:-1][same]]))
    for row in suspects.tolist():
        identity = store.identity(row)
        if identity in first:
            out.append((identity, row, first[identity]))
        else:
            first[identity] = row
    if out:
        dropped = {row for _, row, _ in out}
        rest = folder / "rest"
        rest.mkdir()
        writer = StoreWriter(rest)
        for row in range(len(store)):
            if row not in dropped:
                writer.add(store.document(row))
        writer.close()
        for name in (LINES, PLACES):
            os.replace(rest / name, folder / name)
        rest.rmdir()
    return out


def _plain(field: bytes) -> str:
    return json.loads(b'"' + field + b'"') if b"\\" in field else field.decode()


def escaped_field(text: str) -> bytes:
    """``text`` as :meth:`PassageStore.fields` gives it."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def escaped_fields(document: Document) -> tuple[bytes, bytes, bytes]:
    return escaped_field(document.id), escaped_field(document.title), escaped_field(document.text)


def line_of(identity: bytes, title: bytes, text: bytes) -> bytes:
    """The line of a passage, its newline included."""
    return b"".join((_BEFORE_ID, identity, _BEFORE_TITLE, title, _BEFORE_TEXT, text, _TAIL))

"""Lines of JSON, plain or compressed: read with errors that name file and line, written whole or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import zstandard

from sleuth.errors import UserError

_CHUNK = 1 << 20
_SURROGATES = re.compile("[\ud800-\udfff]")


def read_jsonl(
    path: str | os.PathLike[str], broken: Callable[[int, UserError], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers, counted from 1; blank lines are skipped.

    ``.gz`` and ``.zst`` are decompressed, a byte order mark is dropped, NaN and ±Infinity are read as Python's ``json``
    writes them.

    Args:
        broken: told of a line that is no JSON object (its number, what is wrong), which is then skipped; None: it is
            raised.

    Raises:
        UserError: the file is missing or damaged, or a line isn't UTF-8 or isn't one JSON object; names file and line.
    """
    path = Path(path)
    number = 0
    try:
        with _open_bytes(path) as lines:
            for number, line in enumerate(lines, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip():
                    continue
                try:
                    row = _parse(line, f"{path}, line {number}")
                except UserError as error:
                    if broken is None:
                        raise
                    broken(number, error)
                    continue
                yield number, row
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name a JSONL file inside it") from None
    except (EOFError, gzip.BadGzipFile, zstandard.ZstdError) as error:
        where = f"{path}, after line {number}"
        raise UserError(f"{where}: the compressed data is damaged or cut off ({error}); fetch the file again") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None


def write_jsonl(path: str | os.PathLike[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write one object a line, UTF-8 without ``\\u`` escapes; compressed by the name's ending ``.gz`` or ``.zst``.

    The file appears under its name only when it is complete, so that a crash or a full disk leaves the old one whole.
    Missing parent folders are made. A lone surrogate, which UTF-8 can't hold, becomes U+FFFD. NumPy and torch values
    are written as the numbers and lists that they hold.
    """
    path = Path(path)
    with write_atomically(path) as raw, _compressor(path, raw) as out:
        for row in rows:
            out.write((replace_surrogates(json.dumps(row, ensure_ascii=False, default=_as_plain)) + "\n").encode())


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes ``path``'s name, replacing what is there, when the block ends without an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as raw:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_surrogates(text: str) -> str:
    """``text`` with each lone surrogate as U+FFFD: it can then be encoded."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _as_plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} can't be written as JSON")


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError:
        raise UserError(f"{where}: not UTF-8; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        # Its own "line 1" is of the line, not of the file.
        what = f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
        raise UserError(f"{where}: not JSON ({what}); each line must be one JSON object") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON {_json_type(row)}; each line must be one JSON object")
    return row


def _json_type(value: Any) -> str:
    names: dict[type, str] = {str: "string", list: "array", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _open_bytes(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), _CHUNK)
    if path.suffix == ".zst":
        return io.BufferedReader(_ZstdReader(path.open("rb")), _CHUNK)
    return path.open("rb")


class _ZstdReader(io.RawIOBase):
    """Decompresses frame after frame, and raises EOFError where zstandard's own reader would end a cut file quietly."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            if not self._input:
                self._input = self._raw.read(_CHUNK // 8)
                if not self._input:
                    if self._frame is not None:
                        raise EOFError("the last frame isn't complete")
                    return 0
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._output = memoryview(self._frame.decompress(self._input))
            self._input = b""
            if self._frame.eof:
                self._input = self._frame.unused_data
                self._frame = None
        size = min(len(buffer), len(self._output))
        buffer[:size] = self._output[:size]
        self._output = self._output[size:]
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


@contextmanager
def _plain(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    yield raw


def _compressor(path: Path, raw: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    if path.suffix == ".gz":
        # No name and no time in the header: the same rows give the same bytes.
        return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6)  # type: ignore[return-value]
    if path.suffix == ".zst":
        return zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False)
    return _plain(raw)


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask

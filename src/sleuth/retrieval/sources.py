"""Where the rows of a corpus come from: files, folders of files, the ``datasets`` library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sleuth.data.rows import Row, read_rows
from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl
from sleuth.retrieval.chunking import Chunking, chunk_file
from sleuth.retrieval.problems import Problem, Problems

TEXT = (".txt", ".text", ".md", ".markdown")
"""Endings of the files of a folder that are cut into passages."""

_LINES = (".jsonl", ".ndjson")
_PACKED = (".gz", ".zst")


def read_sources(source: str | os.PathLike[str], problems: Problems, chunking: Chunking) -> Iterator[Row]:
    """The rows of a corpus, whatever it is kept in; see :func:`sleuth.retrieval.corpus.read_passages`.

    Raises:
        UserError: there is no such thing, it is damaged, or it holds nothing that can be read.
    """
    path = Path(os.path.expanduser(os.fspath(source)))
    if path.is_dir() and not _is_dataset(path):
        yield from _folder(path, problems, chunking)
    elif path.is_file() and path.suffix in TEXT:
        yield from _text_rows(path, path.name, problems, chunking)
    elif _has_lines(path):
        yield from _line_rows(path, problems)
    else:
        yield from read_rows(source)


def source_files(source: str | os.PathLike[str]) -> list[Path]:
    """The files that ``source`` is read from, in reading order; none for a name of the ``datasets`` library."""
    path = Path(os.path.expanduser(os.fspath(source)))
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    if _is_dataset(path):
        return sorted(file for file in path.rglob("*") if file.is_file())
    texts, rows = _files_of(path)
    return texts or rows


def _is_dataset(folder: Path) -> bool:
    return (folder / "state.json").exists() or (folder / "dataset_dict.json").exists()


def _has_lines(path: Path) -> bool:
    inner = path.with_suffix("").suffix if path.suffix in _PACKED else path.suffix
    return inner in _LINES or (path.is_file() and inner not in (".json", ".parquet"))


def _files_of(folder: Path) -> tuple[list[Path], list[Path]]:
    """(text files, files of rows) in a folder, those in its subfolders too; hidden ones are left out."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(name.startswith(".") for name in file.relative_to(folder).parts)
    )
    texts = [file for file in files if file.suffix.lower() in TEXT]
    rows = [file for file in files if file.suffix == ".parquet" or any(end in _LINES for end in file.suffixes[-2:])]
    return texts, rows


def _folder(folder: Path, problems: Problems, chunking: Chunking) -> Iterator[Row]:
    texts, rows = _files_of(folder)
    if texts and rows:
        raise UserError(
            f"{folder}: {len(texts)} text files and {len(rows)} files of rows (such as {rows[0].name}); "
            f"a corpus is one or the other: name a folder with one kind"
        )
    if not texts and not rows:
        raise UserError(f"{folder}: no passages; put .txt or .md files, or .jsonl or .parquet files, into this folder")
    for file in texts:
        yield from _text_rows(file, file.relative_to(folder).as_posix(), problems, chunking)
    for file in rows:
        yield from read_rows(file) if file.suffix == ".parquet" else _line_rows(file, problems)


def _line_rows(path: Path, problems: Problems) -> Iterator[Row]:
    def broken(number: int, error: UserError) -> None:
        problems.add(Problem.BROKEN, f"{path}, line {number}", number, str(error))

    for number, fields in read_jsonl(path, broken):
        yield Row(fields, f"{path}, line {number}", number)


def _text_rows(path: Path, name: str, problems: Problems, chunking: Chunking) -> Iterator[Row]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.add(Problem.BROKEN, str(path), 1, f"not UTF-8 (byte {error.start:,}); save the file as UTF-8")
        return
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    for number, chunk in enumerate(chunk_file(text, name, chunking), 1):
        fields: dict[str, Any] = {"id": f"{name}#{number}", "title": chunk.title, "text": chunk.text}
        yield Row(fields, f"{path}, line {chunk.line}", chunk.line)
    if not text.strip():
        problems.add(Problem.EMPTY, str(path), 1, "an empty file")

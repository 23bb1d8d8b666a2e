"""The rows of a question set, wherever it is kept, each with the place it came from."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl

# The endings of a datasets name or folder.
_SPLIT = re.compile(r"@([\w.-]+)$")
_CONFIG = re.compile(r":([\w.-]+)$")


@dataclass(frozen=True, slots=True)
class Row:
    """``fields`` as they came; ``place`` names the row in messages: ``dev.jsonl, line 3``; ``number`` counts from 1."""

    fields: dict[str, Any]
    place: str
    number: int


def read_rows(source: str | os.PathLike[str]) -> Iterator[Row]:
    """Rows one after another.

    ``source`` is one of

    * a JSONL file (``.jsonl``, ``.ndjson``, also ``.gz`` and ``.zst``), read line by line,
    * a ``.json`` or ``.json.gz`` file: a list of objects, ``{"data": […]}``, or lines after all, read whole,
    * a ``.csv`` or ``.tsv`` file with a first line of names, all values text,
    * a ``.parquet`` file, read in batches,
    * a folder that the ``datasets`` library reads (``save_to_disk``'s or one of data files) or a name on its hub, with
      ``:config`` and ``@split`` where there are several: ``hotpotqa/hotpot_qa:distractor@validation``.

    Raises:
        UserError: there is no such thing, it is damaged, or the library that reads it isn't installed.
    """
    name = os.path.expanduser(os.fspath(source))
    path = Path(name)
    if path.is_file():
        yield from _file_rows(path)
        return
    if path.is_dir():
        yield from _dataset_rows(name, name, None, None)
        return
    folder_or_hub, split = _cut(_SPLIT, name)
    folder_or_hub, config = _cut(_CONFIG, folder_or_hub)
    if not _may_be_dataset(folder_or_hub):
        raise UserError(f"{name}: no such file or folder; check the path")
    yield from _dataset_rows(name, folder_or_hub, config, split)


def _cut(ending: re.Pattern[str], name: str) -> tuple[str, str | None]:
    match = ending.search(name)
    return (name[: match.start()], match[1]) if match else (name, None)


def _may_be_dataset(name: str) -> bool:
    """A folder, or a hub name: ``owner/name`` or ``name``, without the ending of a file that isn't there."""
    if Path(name).is_dir():
        return True
    known_file = re.search(r"\.(jsonl?|ndjson|parquet|csv|txt|gz|zst)$", name)
    return not known_file and bool(re.fullmatch(r"(?:\w[\w.-]*/)?\w[\w.-]*", name))


def _file_rows(path: Path) -> Iterator[Row]:
    kind = path.with_suffix("").suffix if path.suffix in (".gz", ".zst") else path.suffix
    if kind in (".jsonl", ".ndjson"):
        yield from _line_rows(path)
    elif kind == ".parquet" and kind == path.suffix:
        yield from _parquet_rows(path)
    elif kind == ".json" and path.suffix != ".zst":
        yield from _json_rows(path)
    elif kind in (".csv", ".tsv") and path.suffix != ".zst":
        yield from _table_rows(path, "," if kind == ".csv" else "\t")
    else:
        raise UserError(f"{path}: unknown kind of file; question sets are .jsonl, .json, .csv, .tsv or .parquet")


def _line_rows(path: Path) -> Iterator[Row]:
    for line, fields in read_jsonl(path):
        yield Row(fields, f"{path}, line {line}", line)


def _json_rows(path: Path) -> Iterator[Row]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = json.loads(file.read().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            yield from _line_rows(path)
            return
        raise UserError(f"{path}: not JSON ({error})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save the file as UTF-8") from None
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: can't be read ({error}); fetch the file again") from None
    if isinstance(content, dict):
        content = content["data"] if isinstance(content.get("data"), list) else [content]
    if not isinstance(content, list):
        raise UserError(f"{path}: neither a list of rows nor an object with a list under data")
    yield from _numbered(content, str(path))


def _table_rows(path: Path, separator: str) -> Iterator[Row]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=separator)
            for number, fields in enumerate(reader, 1):
                place = f"{path}, row {number}"
                if None in fields or None in fields.values():
                    raise UserError(f"{place}: not as many values as there are names in the first line")
                yield Row(dict(fields), place, number)
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save the file as UTF-8") from None
    except (OSError, EOFError, csv.Error) as error:
        raise UserError(f"{path}: can't be read ({error}); fetch the file again") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: reading parquet needs pyarrow; pip install 'sleuth[parquet]'") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        rows = (_plain(row) for batch in file.iter_batches(1000) for row in batch.to_pylist())
        yield from _numbered(rows, str(path))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a parquet file or damaged ({_first_line(error)})") from None


def dataset_rows(name: str, config: str | None, split: str, revision: str | None = None) -> Iterator[Row]:
    """The rows of one split of a data set on the `datasets` hub; only that split is downloaded.

    Raises:
        UserError: at the call: it can't be loaded, or the library isn't installed.
    """
    source = f"{name}{f':{config}' if config else ''}@{split}"
    datasets = _datasets_library(source)
    try:
        loaded = datasets.load_dataset(name, config, split=split, revision=revision)
    except Exception as error:  # the library raises whatever its readers and the hub raise
        raise UserError(f"the datasets library can't load {source} ({_first_line(error)})") from None
    return _numbered(map(_plain, loaded), source)


def _datasets_library(source: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{source}: needs the datasets library; pip install 'sleuth[trl]'") from None
    return datasets


def _dataset_rows(source: str, name: str, config: str | None, split: str | None) -> Iterator[Row]:
    folder = Path(name)
    where = source if folder.is_dir() else f"{source} (no such file or folder here)"
    datasets = _datasets_library(where)
    try:
        if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config)
    except Exception as error:  # the library raises whatever its readers and the hub raise
        raise UserError(f"{where}: the datasets library can't load it ({_first_line(error)})") from None
    if isinstance(loaded, dict):
        loaded = _one_split(source, loaded, split)
    yield from _numbered(map(_plain, loaded), source)


def _one_split(source: str, splits: Mapping[str, Any], wanted: str | None) -> Any:
    if wanted is None and len(splits) == 1:
        return next(iter(splits.values()))
    if wanted is not None and wanted in splits:
        return splits[wanted]
    problem = "several splits" if wanted is None else f'no split "{wanted}"'
    choices = " or ".join(f"@{split}" for split in splits)
    raise UserError(f"{source}: {problem}; add {choices} to the name")


def _numbered(rows: Iterable[Any], source: str) -> Iterator[Row]:
    for number, fields in enumerate(rows, 1):
        place = f"{source}, row {number}"
        if not isinstance(fields, dict):
            raise UserError(f"{place}: not an object but {type(fields).__name__}; each row needs named fields")
        yield Row(fields, place, number)


def _plain(value: Any) -> Any:
    """``value`` with nothing in it that JSON doesn't know: dates and the like become text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""Where a benchmark's rows are read from: a folder in any layout of the field, the hub, or the authors' own file."""

from __future__ import annotations

import hashlib
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sleuth.data.benchmarks.catalogue import Benchmark, HubPlace, PublishedFile
from sleuth.data.rows import Row, dataset_rows, read_rows
from sleuth.errors import UserError

_ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".json", ".csv", ".tsv")
_TIMEOUT = 60.0
_HUB_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """Rows, and the words that say where they came from.

    Attributes:
        source: names the place; the same for the same place.
        whole: True where the place is the benchmark's own publication, so that the number of rows must be right.
    """

    source: str
    whole: bool
    rows: Iterator[Row] = field(repr=False)


def in_folder(benchmark: Benchmark, folder: Path) -> Found:
    """The rows in ``folder`` (or a file), which may hold one benchmark or a folder for each.

    Found are, in this order, ``<split>.jsonl`` (FlashRAG), ``questions.jsonl`` (Sleuth), the authors' own files, and
    what ``datasets`` saved to disk; plain or compressed.

    Raises:
        UserError: nothing of the kind is there, or the authors' own file isn't the published one.
    """
    folder = folder.expanduser()
    if folder.is_file():
        return _from_file(benchmark, folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such file or folder; check the path")
    bases = [folder / name for name in benchmark.folders if (folder / name).is_dir()]
    for base in [*bases, folder]:
        for path in _candidates(benchmark, base):
            if path.is_file():
                return _from_file(benchmark, path)
        if (base / "dataset_dict.json").is_file() or (base / "state.json").is_file():
            place = f"{base}@{benchmark.split}" if (base / "dataset_dict.json").is_file() else str(base)
            return Found(f"folder {base}", False, read_rows(place))
    wanted = [f"{benchmark.folders[0]}/{benchmark.split}.jsonl", *(file.name for file in benchmark.files)]
    raise UserError(f"{folder}: holds no {benchmark.name}; looked for {' or '.join(wanted)} in it and its folders")


def published(benchmark: Benchmark) -> Found:
    """The rows as published, through the network.

    Raises:
        UserError: can't be reached, gated, or not the file that it should be.
    """
    if benchmark.hub is not None:
        return _from_hub(benchmark, benchmark.hub)
    file = next(file for file in benchmark.files if file.url is not None)
    return _downloaded(benchmark, file)


def _candidates(benchmark: Benchmark, base: Path) -> Iterator[Path]:
    for ending in _ENDINGS:
        yield base / f"{benchmark.split}{ending}"
    for ending in _ENDINGS:
        yield base / f"questions{ending}"
    for file in benchmark.files:
        yield base / file.name
        yield base / f"{file.name}.gz"


def _from_file(benchmark: Benchmark, path: Path) -> Found:
    known = next((file for file in benchmark.files if file.name == path.name), None)
    if known is not None and known.sha256 is not None:
        check_sha256(path, known.sha256, f"{path}: not the published {known.name}")
    return Found(f"file {path}", known is not None and known.sha256 is not None, read_rows(path))


def _from_hub(benchmark: Benchmark, place: HubPlace) -> Found:
    try:
        _ask_hub(place)
        rows = dataset_rows(place.name, place.config, place.split, place.revision)
    except UserError as error:
        gated = f" (it is gated: {benchmark.gated})" if benchmark.gated else ""
        raise UserError(f"{benchmark.name}: {error}; {_instead(benchmark)}{gated}") from None
    return Found(f"hub {place}", True, rows)


def _ask_hub(place: HubPlace) -> None:
    """One request with a time-out: the datasets library itself retries an unreachable hub for half a minute, loudly."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        HfApi().dataset_info(place.name, revision=place.revision, timeout=_HUB_TIMEOUT)
    except OfflineModeIsEnabled:
        return  # the library then reads its own cache, without a retry
    except Exception as error:  # no network, a proxy's answer, no such revision
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"the hub can't be asked for {place.name} ({reason})") from None


def _downloaded(benchmark: Benchmark, file: PublishedFile) -> Found:
    assert file.url is not None
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT) as answer:
            content = answer.read()
    except (OSError, urllib.error.URLError) as error:
        reason = str(getattr(error, "reason", error)).splitlines()[0]
        raise UserError(f"{benchmark.name}: {file.url} can't be reached ({reason}); {_instead(benchmark)}") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        path.write_bytes(content)
        if file.sha256 is not None:
            check_sha256(path, file.sha256, f"{file.url}: not the published file")
        rows = list(read_rows(path))
    return Found(f"url {file.url}", True, iter(rows))


def check_sha256(path: Path, wanted: str, problem: str) -> None:
    """Raises UserError if the file's bytes have another SHA-256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise UserError(f"{problem} (SHA-256 {found[:16]}…, wanted {wanted[:16]}…); fetch it again")


def _instead(benchmark: Benchmark) -> str:
    return f"go online, or name a folder that holds it: sleuth data get {benchmark.name} --from FOLDER"

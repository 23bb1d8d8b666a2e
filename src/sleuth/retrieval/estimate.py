"""What an index will cost, said before it is built: passages, time, memory and disk, from a sample of the corpus.

Speed is measured here and now on the sample; what the libraries need per word and passage was measured once
(``benchmarks/retrieval``), so that memory and disk are good to about a third.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sleuth.retrieval.build import IndexSettings
from sleuth.retrieval.corpus import Passage, read_passages
from sleuth.retrieval.problems import Problems
from sleuth.retrieval.sources import source_files
from sleuth.retrieval.store import escaped_fields, line_of

if TYPE_CHECKING:
    from sleuth.retrieval.encoders import Encoder

_SAMPLE = 2000
_SECONDS = 2.0
_ENCODED = 16

# Of one (word, passage) pair: bytes on disk, bytes of memory while building, seconds of a core.
_PER_POSTING = {"bm25": (8.1, 60.0, 2.4e-6), "tantivy": (2.4, 0.0, 0.65e-6)}
_BASE_MEMORY = {"bm25": 0.15e9, "tantivy": 0.45e9, None: 0.15e9}
_ENCODER_MEMORY = 1.0e9


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a build; None where it can't be known beforehand.

    Attributes:
        seconds: of one core. ``memory``, ``disk``, ``scratch``: bytes; ``scratch`` is free again after the build.
        warnings: what won't fit, or what would be better.
    """

    passages: int | None
    seconds: float | None
    memory: float | None
    disk: float | None
    scratch: float
    warnings: list[str]

    def line(self) -> str:
        """One line for people."""
        if self.passages is None or self.seconds is None or self.memory is None or self.disk is None:
            return "estimate: the size of this corpus isn't known beforehand"
        scratch = f" (and {_size(self.scratch)} meanwhile)" if self.scratch > 1e6 else ""
        return (
            f"estimate: about {self.passages:,} passages, {_time(self.seconds)} on one core, "
            f"{_size(self.memory)} of memory, {_size(self.disk)} of disk{scratch}"
        )


def estimate(
    source: str, settings: IndexSettings, target: Path, encoder: Callable[[], Encoder] | None = None
) -> Estimate:
    """Read at most 2,000 passages (or two seconds' worth) and extrapolate.

    Args:
        target: where the index goes; its disk is looked at.
        encoder: gives the encoder of an index with vectors; None: it is loaded here.

    Raises:
        UserError: the corpus can't be read at all.
    """
    started = time.process_time()
    deadline = time.monotonic() + _SECONDS
    sample: list[Passage] = []
    reading = read_passages(source, Problems(), chunking=settings.chunking)
    for passage in itertools.islice(reading, _SAMPLE):
        sample.append(passage)
        if time.monotonic() > deadline:
            break
    else:
        if len(sample) < _SAMPLE:  # that was all of it
            return _of(len(sample), sample, time.process_time() - started, settings, target, encoder)
    read = time.process_time() - started
    return _of(_passages(source, sample), sample, read, settings, target, encoder)


def _of(
    passages: int | None,
    sample: list[Passage],
    read: float,
    settings: IndexSettings,
    target: Path,
    load: Callable[[], Encoder] | None,
) -> Estimate:
    if not sample or passages is None:
        return Estimate(passages, None, None, None, 0.0, [])
    started = time.process_time()
    analyzer, engine = settings.bm25.analyzer(), settings.word_engine
    postings = sum(len(set(analyzer(f"{p.document.title}\n{p.document.text}"))) for p in sample) / len(sample)
    analysed = (time.process_time() - started) / len(sample)
    text = sum(len(line) for line in _lines(sample)) / len(sample)
    disk, memory, seconds = text + 24 + (24 if engine != "tantivy" else 0), 24.0, read / len(sample) + 30e-6
    if engine is not None:
        on_disk, in_memory, cost = _PER_POSTING[engine]
        disk, memory = disk + postings * on_disk, memory + postings * in_memory
        seconds += analysed + postings * cost
    total_memory, scratch = _BASE_MEMORY[engine] + passages * memory, 0.0
    if settings.has_vectors:
        per_passage, dimension = _encoding(sample, (load or settings.load_encoder)())
        seconds += per_passage
        exact = passages <= settings.dense.get("exact_up_to", 100_000)
        disk += dimension * (4 if exact else 1) + 8
        scratch = 4.0 * dimension * passages
        total_memory += _ENCODER_MEMORY + passages * dimension * (4 if exact else 1)
    warnings = list(_warnings(passages, total_memory, disk * passages + scratch, settings, target))
    return Estimate(passages, seconds * passages, total_memory, disk * passages, scratch, warnings)


def _passages(source: str, sample: list[Passage]) -> int | None:
    files = source_files(source)
    if not files or not sample:
        return None
    if all(file.suffix == ".parquet" for file in files):
        import pyarrow.parquet

        return sum(pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in files)
    size = sum(file.stat().st_size for file in files)
    lines = b"".join(_lines(sample))
    packed = files[0].suffix in (".gz", ".zst")
    return max(len(sample), round(size / (len(zlib.compress(lines) if packed else lines) / len(sample))))


def _lines(sample: list[Passage]) -> Iterator[bytes]:
    return (line_of(*escaped_fields(passage.document)) for passage in sample)


def _encoding(sample: list[Passage], encoder: Encoder) -> tuple[float, int]:
    """Seconds a passage, measured, and the dimension."""
    from sleuth.retrieval.dense_index import passage_text

    texts = [passage_text(p.document) for p in sample[:_ENCODED]]
    encoder.passages(texts[:1])
    started = time.monotonic()
    vectors = encoder.passages(texts)
    return (time.monotonic() - started) / len(texts), vectors.shape[1]


def _warnings(passages: int, memory: float, disk: float, settings: IndexSettings, target: Path) -> Iterator[str]:
    available = _available_memory()
    if available is not None and memory > available:
        instead = "; --kind tantivy needs half a gigabyte" if settings.word_engine == "bm25" else ""
        yield f"this needs about {_size(memory)} of memory and {_size(available)} are free{instead}"
    here = next(path for path in (target, *target.absolute().parents) if path.exists())
    free = shutil.disk_usage(here).free
    if disk > free:
        yield f"this needs about {_size(disk)} of disk and {_size(free)} are free"


def _available_memory() -> float | None:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        return None


def _size(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):,.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"

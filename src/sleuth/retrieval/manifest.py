"""What an index is: kind, analyser, settings, passages and versions, in ``manifest.json``.

The manifest is written last, and lists every file with its size, so that a folder without one, or one that doesn't
agree with it, is known to be no whole index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.jsonl import write_atomically

MANIFEST = "manifest.json"
SCHEMA = "sleuth.index/2"


@dataclass(slots=True)
class Manifest:
    """See the module.

    Attributes:
        kind: bm25, tantivy, dense or hybrid.
        passages: rows of the passage store, deleted ones included.
        bytes: of the passage store's lines.
        corpus_hash: of the passages' content (:func:`sleuth.retrieval.corpus.corpus_hash`); of an index that was
            changed: of the hash before and the change.
        analyzer: how text becomes words (:meth:`sleuth.retrieval.analysis.Analyzer.description`); empty for dense.
        settings: of the kind: k1 and b, or the encoder and what was measured of the index.
        versions: of the libraries that wrote it.
        source: where the passages came from, for people.
        problems: passages that were left out, by reason.
        files: size in bytes of every file that doesn't change any more.
        opstamp: (tantivy) the commit that this manifest belongs to.
    """

    kind: str
    passages: int
    bytes: int
    corpus_hash: str
    analyzer: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    source: str = ""
    problems: dict[str, Any] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    opstamp: int | None = None

    def write(self, folder: Path, name: str = MANIFEST) -> None:
        with write_atomically(folder / name) as out:
            out.write((json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, ensure_ascii=False) + "\n").encode())

    def measure(self, folder: Path, names: Iterable[str]) -> None:
        """Note the sizes of these files."""
        self.files = {name: (folder / name).stat().st_size for name in sorted(names)}


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """The manifest of an index, its files checked against it.

    Raises:
        UserError: not an index, of another version, or not whole; says to build it (again).
    """
    if folder.is_file():
        raise UserError(f"{folder}: a file, and no index; index it first: sleuth index {folder} -o DIR")
    path = folder / name
    again = "build it again: sleuth index CORPUS -o DIR"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "no such folder" if not folder.is_dir() else f"no index in this folder ({name} is missing)"
        raise UserError(f"{folder}: {what}; build one: sleuth index CORPUS -o {folder}") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: can't be read ({error}); {again}") from None
    if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
        raise UserError(f"{path}: not of this version ({SCHEMA}); {again}")
    try:
        manifest = Manifest(**content)
    except TypeError as error:
        raise UserError(f"{path}: not a manifest of {SCHEMA} ({error}); {again}") from None
    for file, size in manifest.files.items():
        found = (folder / file).stat().st_size if (folder / file).is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found:,} bytes, not {size:,}"
            raise UserError(f"{folder}: {file} {state}; the index isn't whole: {again}")
    return manifest


def check_wanted(manifest: Manifest, wanted: Mapping[str, Any], folder: Path) -> None:
    """Refuse settings of a search that the index wasn't built with.

    Args:
        wanted: settings that the user gave (k1, b, stopwords, encoder); only these are compared.

    Raises:
        UserError: names the first that differs.
    """
    built = {**manifest.settings, **{k: v for k, v in manifest.analyzer.items() if k not in ("name", "version")}}
    for name, value in wanted.items():
        if name not in built:
            raise UserError(f"{folder}: a {manifest.kind} index has no setting {name}; it has {', '.join(built)}")
        if built[name] != value:
            raise UserError(
                f"{folder} was built with {name}={built[name]}, not {value}; drop the setting, "
                f"or build an index with it"
            )

"""What `sleuth report` is given: a run folder, a rollouts file, or the folder of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sleuth.errors import UserError

COMPARISON = "comparison.json"


class Kind(StrEnum):
    RUN = "run"
    ROLLOUTS = "rollouts"
    COMPARISON = "comparison"


@dataclass(frozen=True, slots=True)
class Source:
    """Attributes:
    path: as given. ``run``: the run folder, or the one that a rollouts file lies in; None where there is none.
    """

    kind: Kind
    path: Path
    run: Path | None

    @property
    def default_output(self) -> Path:
        """Where the report goes unless told otherwise: into the folder, or beside the file."""
        if self.kind is not Kind.ROLLOUTS:
            return self.path / "report.html"
        stem = self.path.name.split(".jsonl")[0]
        return self.path.with_name(f"{stem}-report.html")


def find_source(path: Path) -> Source:
    """What ``path`` is.

    Raises:
        UserError: nothing is there, or nothing that a report can be made of.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or folder; name a run folder, a rollouts file or a comparison's folder")
    if not path.is_dir():
        return Source(Kind.ROLLOUTS, path, _run_around(path))
    if (path / COMPARISON).is_file():
        return Source(Kind.COMPARISON, path, None)
    if (path / "metrics.jsonl").is_file() or (path / "recipe.yaml").is_file():
        return Source(Kind.RUN, path, path)
    raise UserError(
        f"{path}: neither a run folder (metrics.jsonl) nor a comparison ({COMPARISON}); "
        "of other trainers' runs name the rollouts file"
    )


def step_files(run: Path) -> list[tuple[int, Path]]:
    """The rollouts files of a run with their steps, in order."""
    found = []
    for file in (run / "rollouts").glob("step-*.jsonl*"):
        digits = file.name.removeprefix("step-").split(".")[0]
        if digits.isdigit():
            found.append((int(digits), file))
    return sorted(found)


def spread(items: Sequence[int], limit: int, wanted: Sequence[int] = ()) -> list[int]:
    """At most ``limit`` of the sorted ``items``, evenly: first and last, and as far as there is room the ``wanted``."""
    if len(items) <= limit:
        return list(items)
    kept = [item for item in dict.fromkeys(wanted) if item in set(items)][: max(limit - 2, 0)]
    room = limit - len(kept)
    rest = [item for item in items if item not in set(kept)]
    even = [rest[round(i * (len(rest) - 1) / max(room - 1, 1))] for i in range(room)]
    return sorted({*kept, *even})


def _run_around(file: Path) -> Path | None:
    """The run folder that ``file`` lies in, as ``rollouts/step-…`` and ``evaluation/…`` do."""
    folder = file.resolve().parent.parent
    return folder if (folder / "recipe.yaml").is_file() else None

"""The folder of a comparison: ``comparison.json``, the base recipe, an ordinary run folder for each run, the charts."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sleuth.errors import UserError
from sleuth.lab.arms import Arm
from sleuth.lab.comparison import SCHEMA, Comparison
from sleuth.lab.design import Cell, Design
from sleuth.lab.results import Result, read_result
from sleuth.recipes.loader import dump_recipe, load_recipe
from sleuth.training.run_folder import write_text


class ComparisonFolder:
    """A comparison on disk. What its runs have reached is read from their own folders, so that a killed comparison
    loses nothing.

    Args:
        path: the folder.

    Attributes:
        design: what is compared. ``cells``: the runs that it has, in their order.
    """

    def __init__(self, path: Path, design: Design, cells: Sequence[Cell]):
        self.path = path
        self.design = design
        self.cells = list(cells)

    @staticmethod
    def holds(path: Path) -> bool:
        """Whether there is a comparison at ``path``."""
        return (path / "comparison.json").is_file()

    @classmethod
    def read(cls, path: Path) -> ComparisonFolder:
        """The comparison at ``path``.

        Raises:
            UserError: there is none, or its files are damaged.
        """
        file = path / "comparison.json"
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
            if written["schema"] != SCHEMA:
                raise UserError(f"{file}: schema {written['schema']!r}, but this version reads {SCHEMA}")
            recipe = load_recipe(path / "base-recipe.yaml", check_required=False)
            arms = {name: Arm(name, arm["objective"], arm["settings"]) for name, arm in written["arms"].items()}
            design = Design(recipe, written["regimes"], list(arms.values()), written["tuned"])
            cells = [Cell(cell["regime"], arms[cell["arm"]], cell["seed"]) for cell in written["cells"]]
        except FileNotFoundError:
            if (path / "recipe.yaml").is_file():
                raise UserError(
                    f"{path}: this is one training run, not a comparison of several; look at it with "
                    f"`sleuth report {path}`, score it with `sleuth eval {path}`"
                ) from None
            raise UserError(f"{path}: no comparison there (no comparison.json); check the path") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{file}: not a comparison of ours ({type(error).__name__}: {error})") from None
        return cls(path, design, cells)

    def add(self, design: Design, cells: Sequence[Cell]) -> None:
        """Take in further regimes, arms and runs.

        Raises:
            UserError: they can't be compared with what is there.
        """
        self.design = self.design.joined(design)
        known = {cell.run for cell in self.cells}
        self.cells += [cell for cell in cells if cell.run not in known]

    def results(self, running: Collection[str] = ()) -> list[Result]:
        """What every run has reached. ``running``: folders of those in work."""
        return [
            read_result(self.path, regime=c.regime, arm=c.arm.name, seed=c.seed, run=c.run, running=c.run in running)
            for c in self.cells
        ]

    def as_it_stands(self, running: Collection[str] = ()) -> Comparison:
        """Table and verdict by the state of the runs. ``running``: as of :meth:`results`."""
        return Comparison.of(self.design, self.results(running))

    def write(self, running: Collection[str] = ()) -> Comparison:
        """Write ``comparison.json`` by the state of the runs."""
        self.path.mkdir(parents=True, exist_ok=True)
        base = self.path / "base-recipe.yaml"
        if not base.is_file():
            write_text(base, dump_recipe(self.design.recipe))
        comparison = self.as_it_stands(running)
        write_text(self.path / "comparison.json", json.dumps(comparison.to_dict(), ensure_ascii=False) + "\n")
        return comparison

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for the time of a block. Runs in work hold it too, also when whoever started them is gone.

        Raises:
            UserError: somebody else has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.path}: another comparison is at work in it; wait for it, or stop it") from None
            yield

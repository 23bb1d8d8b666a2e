"""One round of the schedule: where its stages are, and what they left in the run's folder.

rounds/N/rl/       an ordinary run, with the recipe of this round
rounds/N/pool/     every rollout of the round's pool, and what they say together
rounds/N/distill/  the pairs, an update's metrics a line
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleuth.recipes.schema import Recipe
from sleuth.seeds import derive_seed
from sleuth.training.run_folder import RunFolder
from sleuth.training.search_e1.pool import Pool


@dataclass(slots=True)
class Round:
    """A round, begun or finished; what it says of itself is read from its files.

    Attributes:
        recipe: of the whole schedule. ``number``: from 1.
        start: the policy that the round starts from; None: the recipe's model.
        first: steps of the whole run before this round.
    """

    recipe: Recipe
    run: RunFolder
    number: int
    start: Path | None
    first: int

    @property
    def folder(self) -> Path:
        return self.run.path / "rounds" / str(self.number)

    @property
    def rl(self) -> RunFolder:
        return RunFolder(self.folder / "rl")

    @property
    def pool(self) -> Pool:
        return Pool(self.folder / "pool")

    @property
    def distill(self) -> Path:
        return self.folder / "distill"

    @property
    def distills(self) -> bool:
        """Whether this round ends with a distillation."""
        return self.number < self.recipe.search_e1.rounds or self.recipe.search_e1.end_on == "distill"

    @property
    def distilled(self) -> dict[str, Any] | None:
        """What the finished distillation says of itself."""
        return read_json(self.distill / "distill.json")

    def drop_distill_checkpoints(self) -> None:
        """Delete what only an unfinished distillation needs."""
        shutil.rmtree(self.distill / "checkpoints", ignore_errors=True)

    @property
    def last_step(self) -> int:
        """Steps of the whole run at this round's end."""
        updates = (self.distilled or {}).get("updates", 0) if self.distills else 0
        return self.first + self.recipe.trainer.steps + updates

    @property
    def rl_result(self) -> Path:
        """The checkpoint that reinforcement learning kept."""
        return self.rl.path / (read_json(self.rl.summary) or {})["checkpoint"]

    @property
    def policy(self) -> Path:
        """What the next round starts from."""
        return self.run.checkpoint(self.last_step) if self.distills else self.rl_result

    def rl_recipe(self) -> Recipe:
        """The recipe of this round's reinforcement learning; the first round's is that of a run without a schedule."""
        changes: dict[str, Any] = {"schedule": "rl", "name": f"{self.recipe.name}-round-{self.number}"}
        if self.start is not None:
            changes |= {"model": str(self.start), "seed": derive_seed(self.recipe.seed, "round", self.number) % 2**31}
        return self.recipe.model_copy(update=changes)


def read_json(file: Path) -> dict[str, Any] | None:
    """What a file holds; None where there is none."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None

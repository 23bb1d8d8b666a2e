"""When to checkpoint, under which name, and which checkpoints stay.

A checkpoint falls on the end of a rollout batch (a half-used batch is not saved by the engine), is written under a
temporary name and renamed when it is whole, so that a killed run never leaves half a checkpoint that looks like one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sleuth.training.run_folder import RunFolder


def publish(trainer: Trainer, run: RunFolder, step: int) -> Path:
    """Give the checkpoint that the engine just wrote its final name, ``checkpoints/step-N``.

    Raises:
        RuntimeError: the engine wrote none for its present update.
    """
    written = run.checkpoints / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    if not (written / "trainer_state.json").is_file():
        raise RuntimeError(f"no whole checkpoint at {written}")
    final = run.checkpoint(step)
    if final.exists():
        shutil.rmtree(final)
    written.rename(final)
    return final


def remove_unfinished(run: RunFolder) -> None:
    """Delete what a killed run left half written."""
    for folder in run.checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(folder)

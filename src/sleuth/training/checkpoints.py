"""When to checkpoint, under which name, which checkpoints stay, and which can be trusted.

A checkpoint falls on the end of a rollout batch (a half-used batch is not saved by the engine). It is written under a
temporary name, flushed to the disk, sealed with a list of its files and their digests, and renamed: a killed run never
leaves half a checkpoint that looks like one, and one that the disk has lost a part of is found out before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from sleuth.errors import RunFailed
from sleuth.training.run_folder import TRAINING_STATE, RunFolder, write_text

SEAL = "files.json"
"""File → bytes and SHA-256; what is not in it (a model card) was added later."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def publish(trainer: Trainer, run: RunFolder, step: int) -> Path:
    """Give the checkpoint that the engine just wrote its final name, ``checkpoints/step-N``.

    Raises:
        RuntimeError: the engine wrote none for its present update.
    """
    written = run.checkpoints / f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    if not (written / "trainer_state.json").is_file():
        raise RuntimeError(f"no whole checkpoint at {written}")
    final = run.checkpoint(step)
    with full_disk_is_said(run, step):
        seal(written)
        if final.exists():
            shutil.rmtree(final)
        written.rename(final)
        _flush(run.checkpoints)
    return final


def seal(folder: Path) -> None:
    """Flush a checkpoint's files to the disk and write down what they are."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL):
        _flush(file)
        files[file.relative_to(folder).as_posix()] = {"bytes": file.stat().st_size, "sha256": _digest(file)}
    write_text(folder / SEAL, json.dumps(files, indent=1) + "\n")
    _flush(folder)


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is as it was written, or was written without a seal.

    An optimiser's or a teacher's state that is gone was dropped to save space, and is no damage; a part of it is.
    """
    try:
        files = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"{SEAL} can't be read ({error})"
    for name, known in files.items():
        file = folder / name
        if not file.is_file():
            state = name.split("/")[0]
            if state not in TRAINING_STATE or (folder / state).exists():
                return f"{name} is missing"
        elif (size := file.stat().st_size) != known["bytes"]:
            return f"{name} has {size:,} of {known['bytes']:,} bytes"
        elif _digest(file) != known["sha256"]:
            return f"{name} has other bytes than were written"
    return None


def newest_whole(run: RunFolder, say: Callable[[str], None]) -> int | None:
    """The step of the newest checkpoint that is undamaged; damaged ones after it are set aside, and that is said."""
    for step in reversed(run.checkpoint_steps()):
        folder = run.checkpoint(step)
        problem = damage(folder)
        if problem is None:
            return step
        aside = folder.with_name(f"damaged-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        then = "the one before it is used" if run.checkpoint_steps() else "as there is no other, the run starts over"
        say(f"the checkpoint of step {step} is damaged ({problem}): kept as {aside}, and {then}")
    return None


def remove_unfinished(run: RunFolder) -> None:
    """Delete what a killed run left half written."""
    for folder in run.checkpoints.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(folder)


@contextmanager
def tied_weights_are_not_missing() -> Iterator[None]:
    """Within, the engine loads a checkpoint without a warning: it takes tied weights, which a file holds once, for
    missing ones."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def full_disk_is_said(run: RunFolder, step: int) -> Iterator[None]:
    """A checkpoint that finds no room ends the run with a line; what was written of it is removed.

    Raises:
        RunFailed: the disk is full, whichever library found out.
    """
    with no_room_is_said(
        f"the checkpoint of step {step} in {run.checkpoints}",
        f"{run.how_to_continue}, which continues from the checkpoint before it",
        tidy=lambda: remove_unfinished(run),
    ):
        yield


@contextmanager
def no_room_is_said(what: object, then: str, *, tidy: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within, a full disk ends the run with a line.

    Args:
        what: found no room. ``then``: what to do once some is free.
        tidy: removes what was written of it.

    Raises:
        RunFailed: the disk is full, whichever library found out.
    """
    try:
        yield
    except Exception as error:
        if not _is_full(error):
            raise
        tidy()
        raise RunFailed(f"the disk is full: no room for {what}; free some space and {then}") from None


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    # safetensors and tokenizers tell the reason in words only, and torch's writer not at all.
    said = str(error)
    if "No space left" in said or "os error 28" in said or "Disk quota exceeded" in said:
        return True
    return isinstance(error, RuntimeError) and _torch_found_no_room(said)


def _torch_found_no_room(said: str) -> bool:
    return "PytorchStreamWriter" in said or "file write failed" in said or "unexpected pos" in said


def _digest(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the system write a file, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

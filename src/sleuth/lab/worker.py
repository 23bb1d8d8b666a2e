"""What happens in the process of one run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from multiprocessing.connection import wait
from pathlib import Path

from sleuth.assembly import Material
from sleuth.errors import RunFailed, RunStopped, UserError
from sleuth.jsonl import write_atomically
from sleuth.lab.results import ERROR
from sleuth.recipes.schema import Recipe

STOPPED = 130
"""Exit code of a run that was asked to stop and can be resumed."""

FAILED = 1


def train_in_process(recipe: Recipe, run_dir: Path, material: Material | None) -> None:
    """Train a run, or go on with it, in the process that was made for it, and end that process.

    The run's output goes to ``log.txt`` in its folder, the line that says why it failed to ``error.txt``. One thread:
    runs side by side would only wait for each other's. When the process that started this one is gone, this one ends
    too; its folder is then that of a killed run.

    Args:
        material: questions and retriever that all runs share; None: load them here.
    """
    _leave_the_terminal(run_dir)
    _end_with_parent()
    (run_dir / ERROR).unlink(missing_ok=True)
    code = 0
    try:
        import torch

        from sleuth.training.run import train
        from sleuth.training.run_folder import RunFolder

        torch.set_num_threads(1)
        run = RunFolder(run_dir)
        train(recipe, run_dir, resume=run.recipe.exists(), quiet=True, material=material)
        run.drop_optimizers()
    except (RunStopped, KeyboardInterrupt):
        code = STOPPED
    except (UserError, RunFailed) as error:
        code = fail(run_dir, str(error))
    except BaseException as error:
        traceback.print_exc()
        code = fail(run_dir, f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: what the parent process had registered for its own end is not ours to do.
    os._exit(code)


def fail(run_dir: Path, message: str) -> int:
    """Note why a run failed, in one line."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with write_atomically(run_dir / ERROR) as out:
        out.write((" ".join(message.split()) + "\n").encode())
    return FAILED


def _leave_the_terminal(run_dir: Path) -> None:
    """Own output, and an own process group: Ctrl-C is for the comparison, which then stops its runs in order."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_dir.mkdir(parents=True, exist_ok=True)
    log = os.open(run_dir / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    # Whatever wraps the parent's streams, a display for instance, stays behind.
    sys.stdout, sys.stderr = (os.fdopen(fd, "w", 1, closefd=False) for fd in (1, 2))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True).start()

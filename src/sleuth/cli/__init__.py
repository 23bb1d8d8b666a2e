"""The command line: verbs, arguments and exit codes. What a verb does is a function elsewhere, imported when it runs.

Exit codes: 0 done, 1 a run that failed, 2 a wrong input, 130 interrupted. A user's mistake is one line on stderr.
"""

from __future__ import annotations

import errno
import sys
from typing import Any

import typer

# isort: off
# Each module registers its verbs; their order is that of --help.
from sleuth.cli import training, sizing, evaluation, diagnosis, retrieval, data  # noqa: F401

# isort: on
from sleuth.cli.app import app
from sleuth.errors import INTERRUPTED, OtherProcess, RunFailed, RunStopped, UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRONG_PATH = (errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOENT)

_UsageError: Any = typer.BadParameter.__base__
"""A wrong option or argument: click's class, which some versions of typer bundle and others import."""


def main() -> None:
    """Entry point of ``sleuth``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = app(arguments or ["--help"], prog_name="sleuth", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        return _fail(str(error), 2)
    except _UsageError as error:
        usage = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
        return _fail(error.format_message() + usage, 2)
    except RunFailed as error:
        return _fail(str(error), 1)
    except OtherProcess as error:
        return error.code
    except (RunStopped, KeyboardInterrupt, typer.Abort) as error:
        return _fail(str(error) or "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone, as in `sleuth recipes | head -1`
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.errno in _WRONG_PATH and error.filename:
            reason = str(error.strerror).lower()
            return _fail(f"{error.filename}: {reason}; check the path and who may read and write it", 2)
        if error.errno not in _FULL:
            raise
        where = f" while writing {error.filename}" if error.filename else ""
        return _fail(f"the disk is full{where}; free some space and run it again (a training run: with --resume)", 1)
    if code == INTERRUPTED:  # newer versions of typer catch Ctrl-C themselves
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print("sleuth: " + " ".join(message.split()), file=sys.stderr)
    return code

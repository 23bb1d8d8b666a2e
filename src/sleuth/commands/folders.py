"""Where output goes: never over something else, and found out to be possible before any work is done."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection
from pathlib import Path

from sleuth.errors import UserError


def free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, … that doesn't exist."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def check_output_folder(folder: Path, *, instead: str = "choose", may_hold: Collection[str] = ()) -> None:
    """Refuse a folder that can't take new output; leaves nothing behind.

    Args:
        instead: what to do, before "another folder with -o".
        may_hold: names that may be in it.

    Raises:
        UserError: it holds something else, is no folder, or can't be made or written.
    """
    check_writable(folder)
    if folder.exists() and any(path.name not in may_hold for path in folder.iterdir()):
        raise UserError(f"{folder} is not empty; {instead} another folder with -o")


def check_output_file(file: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless ``force``, or that can't be written; leaves nothing behind.

    Raises:
        UserError: as said.
    """
    check_writable(file.parent)
    if file.is_dir():
        raise UserError(f"{file} is a folder; name the file to write")
    if file.exists() and not force:
        raise UserError(f"{file} is there already; choose another name, or write over it with --force")


def check_writable(folder: Path) -> None:
    """Refuse a folder that can't be written, or made where it isn't there.

    Raises:
        UserError: names the part of the path that is in the way.
    """
    here = folder
    try:
        here = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
        if not here.is_dir():
            raise UserError(f"{folder} can't be written: {here} is not a folder; choose another path")
        # Only a file that was made tells: permission bits say nothing of root, of /proc or of a read-only disk.
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(f"{folder} can't be written: {here}: {error.strerror}; choose another path") from None

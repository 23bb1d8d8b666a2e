"""Small disks that tests fill."""

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pytest


@contextmanager
def small_disk(folder, megabytes):
    """A file system of that size; skips where none can be mounted."""
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system can be mounted by root alone")
    options = f"size={megabytes}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Lazily, as weights that this process has read may still be mapped.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file):
    """Write until nothing more fits."""
    with file.open("wb", buffering=0) as out, suppress(OSError):
        while out.write(bytes(1 << 16)):
            pass

"""Real servers in processes of their own: ours, and one that misbehaves as it is told."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SECONDS = 60


class Server:
    """A server process and its address."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextlib.contextmanager
def started(*command: str, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """Run a command that says ``… at http://…`` on stderr once it serves."""
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    )
    try:
        said = ""
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if match := re.search(r"at (http://\S+)$", line.strip()):
                yield Server(process, match[1])
                break
        else:
            raise AssertionError(f"the server has not started: {said}")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def serving(folder: Path, *options: str, **environment: str) -> contextlib.AbstractContextManager[Server]:
    """``sleuth serve`` on a free port."""
    return started(
        sys.executable, "-m", "sleuth.cli", "serve", str(folder), "--port", "0", *options, environment=environment
    )

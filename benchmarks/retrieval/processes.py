"""Server processes that are measured: started, asked for their CPU time and memory, stopped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


class Server:
    """A command that says ``… at http://…`` on stderr."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if match := re.search(r"at http://([\d.]+):(\d+)$", line.strip()):
                self.host, self.port = match[1], int(match[2])
                return
        raise RuntimeError(f"{' '.join(command)} has not started: {said}")

    @classmethod
    def ours(cls, folder: Path, *options: str) -> Server:
        return cls(sys.executable, "-m", "sleuth.cli", "serve", str(folder), "--port", "0", *options)

    @classmethod
    def plain(cls, folder: Path, *options: str) -> Server:
        return cls(sys.executable, "-m", "benchmarks.retrieval.plain_server", str(folder), *options)

    def cpu_seconds(self) -> float:
        """Of all threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> float:
        """Resident memory now, mapped files included."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

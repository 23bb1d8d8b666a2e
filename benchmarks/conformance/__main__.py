"""Puts every grader that can be installed to the suite, and prints one table.

    python -m benchmarks.conformance --install --peers FOLDER

``--install`` puts the peers that are no part of an environment into FOLDER, each apart and without its dependencies.
verl is run in ``.venv-verl``. What isn't there is said and left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_VERL = "verl.utils.reward_score.search_r1_like_qa_em"
_SKYRL = "skyrl_gym.envs.search.utils"
_OURS = "benchmarks.conformance.peers"


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool. ``packages``: what to install; ``python``: whose environment; ``arguments``: its functions."""

    name: str
    arguments: Sequence[str]
    packages: Sequence[str] = ()
    python: str = ".venv/bin/python"

    @property
    def folder(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.name.lower())


PEERS = [
    Peer("Sleuth", []),
    Peer(
        "Search-R1 (rule)",
        ["--grader", f"{_OURS}:search_r1_em", "--cover-em", f"{_OURS}:search_r1_cover", "--with-prompt"],
    ),
    Peer(
        "verl 0.9.1",
        ["--grader", f"{_VERL}:compute_score", "--cover-em", f"{_VERL}:compute_score_subem"],
        python=".venv-verl/bin/python",
    ),
    Peer(
        "skyrl-gym 0.4.0",
        [
            *("--grader", f"{_SKYRL}:compute_score"),
            *("--cover-em", f"{_SKYRL}:compute_score_subem"),
            *("--parser", f"{_OURS}:skyrl_turn"),
        ],
        packages=["skyrl-gym==0.4.0", "omegaconf", "antlr4-python3-runtime==4.9.3"],
    ),
    Peer(
        "FlashRAG 0.1.2",
        ["--grader", f"{_OURS}:flashrag_em", "--cover-em", f"{_OURS}:flashrag_cover"],
        packages=["flashrag-dev==0.1.2"],
    ),
    Peer(
        "TRL 1.16 accuracy",
        ["--grader", "trl.rewards:accuracy_reward"],
        packages=["math-verify==0.9.0", "latex2sympy2_extended", "antlr4-python3-runtime==4.13.2"],
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder for packages and results")
    parser.add_argument("--install", action="store_true", help="install what is missing with pip")
    parser.add_argument("--form", default="markdown", help="text, markdown, latex or html")
    options = parser.parse_args()
    results = [result for peer in PEERS if (result := _run(peer, options.peers, options.install)) is not None]
    table = [sys.executable, "-m", "sleuth.cli", "conformance", "--form", options.form]
    return subprocess.run([*table, *(part for result in results for part in ("--table", str(result)))]).returncode


def _run(peer: Peer, folder: Path, install: bool) -> Path | None:
    site = folder / peer.folder
    if install and peer.packages and not site.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), *peer.packages]
        if subprocess.run(pip).returncode:
            print(f"{peer.name}: can't be installed, left out", file=sys.stderr)
            return None
    result = folder / f"{peer.folder}.json"
    result.unlink(missing_ok=True)
    command = [peer.python, "-m", "sleuth.cli", "conformance", "--name", peer.name, "-o", str(result), *peer.arguments]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(site.resolve())},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        print(f"{peer.name}: no {peer.python}, left out", file=sys.stderr)
        return None
    if not result.is_file():
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        print(f"{peer.name}: {' '.join(reason)}; left out", file=sys.stderr)
        return None
    return result


if __name__ == "__main__":
    sys.exit(main())

"""Trains five steps on two machines: two network namespaces with a cable (veth) between them, one process in each.

    python -m benchmarks.two_machines [-o RUN_DIR] [KEY=VALUE …]

Needs root and ``ip``. Each machine sees its own loopback and its end of the cable, and nothing else. The launchers meet
at the first one's address; gradients and rollouts cross the cable. The same five steps in one process follow. The first
step must be the same but for rounding; what differs in later ones is printed, since rounding may move a draw. The
namespaces are removed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sleuth.training.run_folder import RunFolder

STEPS = 5
PORT = 29517
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SAME = ("reward", "em", "searches", "policy_tokens")
ROUNDED = ("loss", "entropy", "grad_norm", "ratio/mean")


@contextmanager
def two_machines() -> Iterator[list[str]]:
    """Names of two namespaces that reach each other.

    Raises:
        SystemExit: none can be made here.
    """
    names = [f"sleuth-{os.getpid()}-{n}" for n in (1, 2)]
    ends = [f"sl{os.getpid() % 10**7}{n}" for n in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            with contextlib.suppress(SystemExit):
                _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ip {' '.join(arguments)}: {done.stderr.strip()}; run this as root, where namespaces are allowed")


def crossed(machine: str) -> int:
    """Bytes that a machine has sent over the cable."""
    read = ["ip", "netns", "exec", machine, "cat", "/proc/net/dev"]
    lines = subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines if not line.strip().startswith("lo:"))


def train_on(machines: list[str], folder: Path, settings: list[str]) -> list[int]:
    """Exit codes of both launchers."""
    processes = []
    for n, machine in enumerate(machines):
        device = subprocess.run(
            ["ip", "-n", machine, "-o", "-4", "address"], capture_output=True, text=True, check=True
        ).stdout
        end = next(line.split()[1] for line in device.splitlines() if ADDRESSES[n] in line)
        command = [
            *("ip", "netns", "exec", machine, sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=two"),
            # A namespace has no name of its own by which the launcher could tell which machine is meant.
            f"--rdzv-conf=is_host={int(n == 0)},timeout=600,read_timeout=300",
            *(f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}", f"--local-addr={ADDRESSES[n]}"),
            *("-m", "sleuth.cli", "train", "laptop", *settings, "-o", str(folder)),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": end}
        processes.append(subprocess.Popen(command, env=environment))
    return [process.wait() for process in processes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="keep the run's folder")
    parser.add_argument("settings", nargs="*", help="of the recipe laptop")
    args = parser.parse_args()
    if shutil.which("ip") is None:
        sys.exit("no command ip here: install iproute2")
    settings = [f"trainer.steps={STEPS}", "trainer.eval_every=0", "evaluation.enabled=false", *args.settings]
    with tempfile.TemporaryDirectory() as name:
        folder = args.output or Path(name) / "two"
        with two_machines() as machines:
            codes = train_on(machines, folder, settings)
            sent = [crossed(machine) for machine in machines]
        if any(codes):
            sys.exit(f"the launchers ended with {codes}")
        alone = Path(name) / "one"
        one = [sys.executable, "-m", "sleuth.cli", "train", "laptop", *settings, "-o", str(alone)]
        subprocess.run(one, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        two, whole = RunFolder(folder).read_metrics(), RunFolder(alone).read_metrics()
    wrong = compared(two, whole)
    seconds = [r["seconds/rollout"] + r["seconds/update"] for r in two]
    print(f"{len(two)} steps on two machines, {min(seconds):.1f} to {max(seconds):.1f} s each")
    print(f"sent over the cable: {sent[0] / 1e6:.1f} and {sent[1] / 1e6:.1f} MB")
    print("every step as in one process" if not wrong else "\n".join(f"differs: {line}" for line in wrong))
    sys.exit(1 if len(two) != STEPS or any(line.startswith("step 1:") for line in wrong) else 0)


def compared(two: list[dict], one: list[dict]) -> list[str]:
    """What differs between the steps of two runs by more than rounding."""
    wrong = [] if len(two) == len(one) == STEPS else [f"{len(two)} and {len(one)} steps"]
    for a, b in zip(two, one, strict=False):
        wrong += [f"step {a['step']}: {key} {a[key]} and {b[key]}" for key in SAME if a[key] != b[key]]
        wrong += [
            f"step {a['step']}: {key} {a[key]} and {b[key]}"
            for key in ROUNDED
            if abs(a[key] - b[key]) > 1e-5 + 1e-3 * abs(b[key])
        ]
    return wrong


if __name__ == "__main__":
    main()

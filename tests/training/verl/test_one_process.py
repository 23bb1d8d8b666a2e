"""The agent loop, credit, loss and worker inside verl's own workers: rollouts that train, numbers that are ours."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not in this environment")

CPU = Path(__file__).parent / "cpu"


def run(tmp_path, objective):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(CPU), "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, str(CPU / "one_process.py"), str(tmp_path), objective],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["calibadv+search_sapo+llds", "sspo+search_sapo"])
def test_updates_on_verls_workers_are_those_of_our_objective(tmp_path, objective):
    steps = run(tmp_path, objective)
    for step in steps:
        assert step["turns"] > 1
        assert step["documents"] > 0
        assert step["sampler_gap"] < 1e-4
        assert step["credit_gap"] < 1e-6
        for update in step["updates"]:
            assert update["loss"] == pytest.approx(update["ours"], rel=1e-4, abs=1e-6)
            assert update["grad_norm"] > 0
    if "sspo" in objective:
        assert sum(step["statistics"]["teacher/scored"] for step in steps) > 0

"""Results made up for tests."""

from sleuth.lab.results import Result, Status

HEALTHY = [0.4] * 20
COLLAPSED = [0.4] * 8 + [0.0] * 12


def result(regime, arm, seed, rewards, status=Status.DONE, error=None):
    return Result(regime, arm, seed, f"cells/{regime}/{arm}/seed-{seed}", status, error, tuple(rewards))


def runs(regime, arm, *rewards, first=0):
    """Finished runs with seeds from ``first``."""
    return [result(regime, arm, seed, r) for seed, r in enumerate(rewards, first)]

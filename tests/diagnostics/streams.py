"""Step records for the tests of alarms: a healthy run, and the same with something going wrong."""

import random

HEALTHY = {
    "reward": (0.4, 0.03), "format": (0.99, 0.005), "entropy": (0.3, 0.01), "grad_norm": (0.4, 0.1),
    "loss": (0.0, 0.01), "searches": (2.2, 0.1), "repeated_queries": (0.1, 0.02), "degenerate": (0.002, 0.002),
    "share/no_answer": (0.01, 0.005), "share/truncated": (0.01, 0.005), "share/retriever_failed": (0.0, 0.0),
    "ratio/mean_log": (-0.004, 0.001), "ratio/clipped": (0.02, 0.004), "likelihood/pos": (-0.3, 0.01),
    "ratio/pos/q01": (0.85, 0.04), "ratio/pos/min": (0.2, 0.05), "ratio/neg/max": (4.0, 1.0),
    "sequence/pos/below_0.9": (0.01, 0.005), "zero_variance_groups": (3, 1),
}  # fmt: skip
"""Statistic → its level and noise in a healthy run."""


def stream(steps=40, seed=0, **changes):
    """Records of a run; ``changes`` maps a statistic (``/`` and ``.`` as ``__`` and ``_p_``) to a function of the step
    that gives its value, or None to leave it healthy."""
    rng = random.Random(seed)
    wrong = {name.replace("__", "/").replace("_p_", "."): f for name, f in changes.items()}
    records = []
    for step in range(1, steps + 1):
        record = {"step": step, "groups": 16}
        for name, (level, noise) in HEALTHY.items():
            record[name] = level + rng.uniform(-noise, noise)
        record["zero_variance_groups"] = round(record["zero_variance_groups"])
        for name, change in wrong.items():
            value = change(step)
            if value is not None:
                record[name] = value
        records.append(record)
    return records


def after(start, value):
    """A change to ``value`` from step ``start`` on."""
    return lambda step: value if step >= start else None

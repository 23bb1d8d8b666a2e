"""What verl's entry point ``verl.plugins`` loads: registrations, and nothing else.

verl hides whatever a plug-in raises, and a run then dies much later with "Unknown advantage estimator". So everything
that goes wrong here is said on stderr first.
"""

from __future__ import annotations

import sys

from sleuth.training.verl.registration import register

try:
    register()
except Exception as error:
    print(
        f"sleuth: its verl plug-in could not be loaded: {type(error).__name__}: {error}\n"
        "sleuth: python -m sleuth.training.verl check says more",
        file=sys.stderr,
        flush=True,
    )
    raise

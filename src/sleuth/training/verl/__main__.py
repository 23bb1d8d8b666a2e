"""``python -m sleuth.training.verl check [SETTINGS …]``: is everything in order for a run on verl?"""

from __future__ import annotations

import sys

from sleuth.errors import UserError
from sleuth.training.verl.check import check

USAGE = "usage: python -m sleuth.training.verl check [SETTING=VALUE …]  (settings of verl.trainer.main_ppo)"


def main(arguments: list[str]) -> int:
    """Exit code: 0 all in order, 2 something isn't."""
    if not arguments or arguments[0] != "check":
        print(USAGE, file=sys.stderr)
        return 2
    try:
        for line in check(arguments[1:]):
            print(f"ok  {line}", flush=True)
    except UserError as error:
        print(f"sleuth: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where this process computes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def own_device() -> torch.device:
    """This process's GPU, which a launcher numbers in ``LOCAL_RANK``; the CPU where there is none."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

"""Search-E1-style training (arXiv 2605.22511): rounds of reinforcement learning, each followed by self-distillation."""

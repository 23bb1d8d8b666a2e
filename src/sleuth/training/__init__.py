"""Training: engines as thin adapters around the same rollouts, rewards and objectives."""

import warnings

# TRL and transformers still use a name of their own that transformers has renamed; nobody who trains can act on it.
warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)

"""Sleuth trains language models to search, by reinforcement learning on the outcome."""

__version__ = "0.1.0"

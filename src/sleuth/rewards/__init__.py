"""Golden answers, graders and reward functions."""

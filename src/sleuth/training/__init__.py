"""Training: engines as thin adapters around the same rollouts, rewards and objectives."""

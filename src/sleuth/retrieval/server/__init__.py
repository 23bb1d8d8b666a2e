"""An index over HTTP: for Sleuth's own rollouts, and in the words that other trainers speak."""

"""What a report of 5,000 rollouts costs: to make, to keep, to open."""

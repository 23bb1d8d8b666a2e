"""What each objective's loss costs beside TRL's own: time and peak memory of loss and backward, in one run."""

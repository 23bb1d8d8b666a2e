"""What a run needs before it is started: memory, tokens, time, and a simulated step on many GPUs."""

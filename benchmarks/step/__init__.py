"""Where a training step's time goes: inside the model (forward, backward, optimiser) or outside of it."""

"""What rollouts show of an objective and of the policy's drift; nothing here needs a model."""

"""The agent: how it talks (protocols), the rules of one rollout (Episode, without I/O), what drives many of them."""

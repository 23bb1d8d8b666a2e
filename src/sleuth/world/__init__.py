"""HopWorld: synthetic worlds of entities and relations as passages, questions about them, a tiny policy to train."""

"""What the drift statistics cost."""

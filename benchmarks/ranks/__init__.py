"""What a second process brings on one machine."""

"""Runs that are killed again and again, and what is left of them."""

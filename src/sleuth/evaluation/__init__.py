"""Scoring a search agent on question sets: rollouts, grades, intervals, tables."""

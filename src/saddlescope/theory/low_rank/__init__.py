"""Incremental learning with full weights: greedy low-rank learning, one singular direction at a time."""

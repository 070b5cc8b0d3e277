"""Incremental learning with diagonal weights: Algorithm 1 and its transitions between saddles."""

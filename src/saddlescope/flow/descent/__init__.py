"""Gradient descent and stochastic gradient descent with checkpoints."""

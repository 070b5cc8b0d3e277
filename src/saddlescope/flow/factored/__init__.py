"""Gradient flow of losses of matrix products W_1 W_2^T, from any initial scale."""

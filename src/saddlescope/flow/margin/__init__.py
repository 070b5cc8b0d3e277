"""Gradient flow of losses of attention margins, to ln t = 1e7."""

"""Slow twins: plain float64 (or exact) versions of what the package computes fast. They are its specification."""

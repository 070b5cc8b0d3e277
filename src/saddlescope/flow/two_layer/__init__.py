"""Gradient flow of the symmetric two-layer linear network x -> U U^T x, by Taylor series."""

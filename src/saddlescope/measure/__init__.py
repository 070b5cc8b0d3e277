"""Numbers from arrays: spectra, ranks and staircases, for NumPy, JAX and PyTorch through the array API."""

from saddlescope.measure.stages import Stage, Staircase

__all__ = ["Stage", "Staircase"]

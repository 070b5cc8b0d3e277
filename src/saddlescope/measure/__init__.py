"""Numbers from arrays: spectra, ranks and staircases, for NumPy, JAX and PyTorch through the array API."""

from saddlescope.measure.extrapolation import richardson
from saddlescope.measure.matching import Comparison, compare
from saddlescope.measure.rank import effective_rank, energy_rank, numerical_rank, stable_rank
from saddlescope.measure.spectrum import (
    Spectrum,
    product_spectrum,
    product_update_spectrum,
    spectrum,
    update_spectrum,
)
from saddlescope.measure.stages import Stage, Staircase, find_stages

__all__ = [
    "Comparison",
    "Spectrum",
    "Stage",
    "Staircase",
    "compare",
    "effective_rank",
    "energy_rank",
    "find_stages",
    "numerical_rank",
    "product_spectrum",
    "product_update_spectrum",
    "richardson",
    "spectrum",
    "stable_rank",
    "update_spectrum",
]

"""Numbers from arrays: spectra, ranks and staircases, for NumPy, JAX and PyTorch through the array API."""

from saddlescope.measure.spectrum import (
    Spectrum,
    product_spectrum,
    product_update_spectrum,
    spectrum,
    update_spectrum,
)
from saddlescope.measure.stages import Stage, Staircase

__all__ = [
    "Spectrum",
    "Stage",
    "Staircase",
    "product_spectrum",
    "product_update_spectrum",
    "spectrum",
    "update_spectrum",
]

"""Updates of single matrices: their leading singular values and vectors, exactly or by a randomised method."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.measure import update_noise_floor
from saddlescope.ranks.finite_tensors import all_finite
from saddlescope.ranks.randomized_svd import RandomizedSVD, pays, randomized_svd, scaled
from saddlescope.ranks.tracker.records import Spectra
from saddlescope.ranks.tracker.singular_vectors import Bases

_TOLERANCE = 1e-3  # of the certificate, over |D|_F, as for extracted adapters


def leading_spectra(after: Float[Tensor, "m n"], before: Float[Tensor, "m n"], top: int) -> Spectra | None:
    """Return the largest singular values of W - W0 by a randomised method, with bounds on their errors.

    Returns:
        The spectra; None for a matrix so small that all values take less time, or if no bound was found.

    Raises:
        InputError: weights that are not finite.
    """
    if not pays(after.shape, top):
        return None
    floor = float(update_noise_floor(after, before))
    update, unit = scaled(after.double() - before.double())
    found = _checked(update, top)
    if found is None:
        return None
    values, errors = (part.cpu().numpy() * unit for part in (found.values, found.value_errors))
    return Spectra.leading(values, errors, floor, math.sqrt(found.energy) * unit)


def leading_vectors(
    after: Float[Tensor, "m n"], before: Float[Tensor, "m n"], k: int, spectra: Spectra, *, randomized: bool
) -> Bases:
    """Return the leading singular vectors of W - W0, and how many of its spectra are above the noise floor.

    Exactly, these are eigenvectors of the smaller of D D^T and D^T D, and their images: vectors of values below 1e-8 of
    the largest are inaccurate.
    """
    update, _ = scaled(after.double() - before.double())
    found = _checked(update, k) if randomized and pays(update.shape, k) else None
    if found is not None:
        left, right = found.left, found.right.T
    else:
        wide = update.shape[0] <= update.shape[1]
        short = update if wide else update.T
        near = torch.linalg.eigh(short @ short.T).eigenvectors[:, -k:].flip(1)
        far = torch.linalg.qr(short.T @ near)
        far = far.Q * far.R.diagonal().sgn()
        left, right = (near, far) if wide else (far, near)
    counted = np.asarray((spectra.values[:k] > spectra.noise_floor).sum())
    return Bases(left.cpu().numpy(), right.cpu().numpy(), counted)


def _checked(update: Tensor, rank: int) -> RandomizedSVD | None:
    """Return the decomposition, or None without a bound."""
    if not all_finite(update):
        raise InputError("weights must be finite; got NaN or infinity.")
    found = randomized_svd(update, rank, tolerance=_TOLERANCE)
    return found if math.isfinite(found.slack) else None

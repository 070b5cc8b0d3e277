"""Noise of the rounding of quantised weights, in addition to that of the type in which they are computed."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from saddlescope.ranks.tracker.records import Spectra
from saddlescope.ranks.tracker.tracked_matrices import Weights


def rounding_noise(weights: Sequence[Weights], roundoff: float) -> list[np.ndarray]:
    """Return for each member the norm of the rounding errors of its stored weights, with the labels (heads,) or ().

    As the noise floors of `saddlescope.measure.spectrum`, of entries with a relative error of this size.
    """
    return [np.asarray(_noise([part.float() for part in member], roundoff).cpu()) for member in weights]


def _noise(member: Sequence[Tensor], roundoff: float) -> Tensor:
    norms = [torch.linalg.matrix_norm(part) for part in member]
    entries = [norm / math.sqrt(3 * math.prod(part.shape[-2:])) for norm, part in zip(norms, member, strict=True)]
    rows = [math.sqrt(part.shape[-2]) for part in member]
    if len(member) == 1:
        return roundoff * entries[0] * (rows[0] + math.sqrt(member[0].shape[-1]))
    largest = [torch.linalg.matrix_norm(part, ord=2) for part in member]
    left, right = (entries[k] * (rows[k] * largest[1 - k] + norms[1 - k]) for k in (0, 1))
    return roundoff * torch.hypot(left, right)


def with_noise(spectra: Spectra, noise: np.ndarray) -> Spectra:
    """Return spectra with noise added to their floors; those below it have no ranks."""
    floor = np.hypot(spectra.noise_floor, noise)
    measurable = spectra.values[..., 0] > floor
    ranks = {name: np.where(measurable, getattr(spectra, name), np.nan) for name in ("stable_rank", "effective_rank")}
    return replace(spectra, noise_floor=floor, **ranks)

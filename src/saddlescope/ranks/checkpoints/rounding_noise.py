"""Noise of the rounding of quantised weights, in addition to that of the type in which they are computed."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from saddlescope.ranks.tracker.records import Spectra
from saddlescope.ranks.tracker.tracked_matrices import Weights


def rounding_noise(weights: Sequence[Weights], roundoff: float) -> np.ndarray:
    """Return the norms of the rounding errors of stored weights, with the labels of a record; 0 if they are exact.

    As the noise floors of `saddlescope.measure.spectrum`, of entries with a relative error of this size.
    """
    if not roundoff:
        return np.zeros(())
    found = [np.asarray(_noise([part.float() for part in member], roundoff).cpu()) for member in weights]
    return np.stack(found, axis=-1)[None] if len(found) > 1 else np.stack(found)


def _noise(member: Sequence[Tensor], roundoff: float) -> Tensor:
    norms = [torch.linalg.matrix_norm(part) for part in member]
    entries = [norm / math.sqrt(3 * math.prod(part.shape[-2:])) for norm, part in zip(norms, member, strict=True)]
    rows = [math.sqrt(part.shape[-2]) for part in member]
    if len(member) == 1:
        return roundoff * entries[0] * (rows[0] + math.sqrt(member[0].shape[-1]))
    largest = [torch.linalg.matrix_norm(part, ord=2) for part in member]
    left, right = (entries[k] * (rows[k] * largest[1 - k] + norms[1 - k]) for k in (0, 1))
    return roundoff * torch.hypot(left, right)


def with_noise(spectra: Spectra, before: np.ndarray, after: np.ndarray) -> Spectra:
    """Return spectra of an update with the noise of both weights added to their floors; those below have no ranks."""
    if not (np.any(before) or np.any(after)):
        return spectra
    floor = np.hypot(spectra.noise_floor, np.hypot(before, after))
    measurable = spectra.values[..., 0] > floor
    ranks = {name: np.where(measurable, getattr(spectra, name), np.nan) for name in ("stable_rank", "effective_rank")}
    return replace(spectra, noise_floor=floor, **ranks)

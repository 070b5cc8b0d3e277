"""Ranks of the layers of a deep network on the plateaus of its loss.

The rank of a layer on a plateau is the number of its singular values that, as the plateau begins, are greater than

- a tenth of the layer's largest until the next plateau begins, and
- 1.5 times the largest at the first record, so that the initial bulk does not count, and
- 0.8 times their values as it ends, both relative to the largest.

The last condition excludes the direction that will leave the plateau. It grows long before the loss shows it: at depth
3, from a tenth of its final size on, for a large part of the plateau. Values as a plateau begins or ends are medians
over its first or last quarter.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope.measure.loss_levels import part_of
from saddlescope.measure.records import Series, extreme_exponent, recorded_rows

_SHARE, _MARGIN, _SETTLED = 0.1, 1.5, 0.8


def checked_spectra(singular_values: Sequence[Any], steps: Series) -> list[np.ndarray]:
    """Return the singular values of each layer, checked, ascending."""
    spectra = [recorded_rows(f"singular_values[{layer}]", s, steps) for layer, s in enumerate(singular_values)]
    if not spectra:
        raise InputError("singular_values must have one array per layer; got none.")
    for layer, s in enumerate(spectra):
        if np.any(s < 0):
            raise InputError(f"singular_values[{layer}] must be at least 0; got {float(np.min(s))!r}.")
    return [np.sort(np.ldexp(s, -extreme_exponent(s)), axis=1) for s in spectra]  # ranks do not depend on the scale


def plateau_ranks(s: Float[np.ndarray, "n r"], steps: Series, plateaus: Sequence[tuple[float, float]]) -> list[int]:
    """Return the rank of a layer on each plateau, given the steps at which they begin and end."""
    ranks = []
    onsets = [part_of(steps, *ends, 0.0, 0.25) for ends in plateaus]
    ends = [part_of(steps, *ends, 0.75, 1.0) for ends in plateaus]
    untils = [int(onset[-1]) for onset in onsets[1:]] + [len(s) - 1]
    for onset, end, until in zip(onsets, ends, untils, strict=True):
        first, last = np.median(s[onset], axis=0), np.median(s[end], axis=0)
        level = max(_SHARE * float(np.max(s[: until + 1])), _MARGIN * float(np.max(s[0])))
        ranks.append(int(np.sum((first > level) & (first * last[-1] > _SETTLED * last * first[-1]))))
    return ranks

"""Merging of equal units: each of them follows the first one, in a given order, that it is near to.

    key      weights into a unit of one layer, scaled to norm 1 or as they are
    distance |u - v| / |u| with the leader's key u, for each layer; the sign of v is free where the layer has a parity

Candidates come from a tree over projections to a few dimensions, which shorten distances. So many units cost little
more than their number, unless they are all alike in these dimensions.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import KDTree

_DIMENSIONS = 8  # of the projection of each layer
_FEW = 64  # units that are compared without a tree
_ROUNDING = 1e-9  # of projections, relative


def leaders_of(
    keys: Sequence[Float[np.ndarray, "m _"]], parities: Sequence[int], tolerance: float
) -> tuple[Int[np.ndarray, "m"], Float[np.ndarray, "m"]]:
    """Return for each unit the number of its leader, and the sign of its feature in units of the leader's.

    Leaders are numbered from 0 in the order of the units. A unit that is near to no leader before it is one.

    Args:
        keys: weights into the units, by layer.
        parities: of each layer: 1 or -1 if the feature keeps or changes its sign with the weights, else 0.
        tolerance: largest distance of equal units.
    """
    count = len(keys[0])
    sizes = [np.linalg.norm(key, axis=1) for key in keys]
    turns = list(product(*((1.0, -1.0) if parity else (1.0,) for parity in parities)))
    near = _Candidates(keys, sizes, turns, tolerance) if count > _FEW else None
    leaders, signs = np.full(count, -1), np.ones(count)
    found = 0
    for n in range(count):
        if leaders[n] >= 0:
            continue
        leaders[n] = found
        some = np.arange(n + 1, count) if near is None else near.of(n)
        some = some[leaders[some] < 0]
        if len(some):
            equal, sign = np.ones(len(some), bool), np.ones(len(some))
            for key, size, parity in zip(keys, sizes, parities, strict=True):
                own, others, allowed = key[n], key[some], tolerance * size[n]
                same = np.linalg.norm(others - own, axis=1) <= allowed
                turned = np.linalg.norm(others + own, axis=1) <= allowed if parity else np.zeros(len(some), bool)
                equal &= same | turned
                sign *= np.where(same, 1.0, float(parity))
            leaders[some[equal]], signs[some[equal]] = found, sign[equal]
        found += 1
    return leaders, signs


class _Candidates:
    """Units that may be near to another one: all that are, and few others."""

    def __init__(
        self,
        keys: Sequence[Float[np.ndarray, "m _"]],
        sizes: Sequence[Float[np.ndarray, "m"]],
        turns: Sequence[tuple[float, ...]],
        tolerance: float,
    ) -> None:
        rng = np.random.default_rng(0)
        self._parts = [_projected(key, rng) for key in keys]
        self._turns = turns
        self._radii = (tolerance + _ROUNDING) * np.sqrt(sum(size**2 for size in sizes))
        self._tree = KDTree(np.concatenate(self._parts, axis=1))

    def of(self, n: int) -> Int[np.ndarray, "_"]:
        """Return the candidates of unit n."""
        found = []
        for turn in self._turns:
            point = np.concatenate([sign * part[n] for sign, part in zip(turn, self._parts, strict=True)])
            found += self._tree.query_ball_point(point, self._radii[n])
        return np.unique(np.array(found, int))


def _projected(key: Float[np.ndarray, "m p"], rng: np.random.Generator) -> Float[np.ndarray, "m _"]:
    if key.shape[1] <= _DIMENSIONS:
        return key
    return key @ np.linalg.qr(rng.standard_normal((key.shape[1], _DIMENSIONS)))[0]

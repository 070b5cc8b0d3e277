"""Number of distinct active units of a PyTorch model: equal ones merged, small ones left out.

    in, out    weights into a unit and out of it
    size       of the order of a product of two weights, so that sizes of different units compare:
               (|in|^k |out|)^(2/(k+1)) of a neuron or kernel whose feature grows with the k-th power of `in`, with one
               factor, and one more k, for each of several layers; |in| |out| where it grows with none, as of tanh;
               |W_V W_O^T| of a head

Two neurons are one if their features are in proportion, and its `out` is the sum of both: the fixed points of narrow
networks are embedded in wide ones in this way. Those with the same direction of `in` are, where the feature grows with
a power of it, as of ReLU; elsewhere those with the same `in`. The sign of `in` does not matter where the activation is
odd or even. Gated neurons are compared layer by layer. Two heads with the same W_K W_Q^T are one head. No size changes
when a factor moves between layers that allow it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.ranks.finite_tensors import all_finite
from saddlescope.ranks.units.equal_units import leaders_of
from saddlescope.ranks.units.unit_groups import UnitGroup, units_of

_FLOOR = 1e-3  # share of the largest size below which the smallest units together are not merged, and count as 0
_TINY = 1e-300


class WeightsNotFiniteError(InputError):
    """A group of units has weights that are NaN or infinite."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ActiveUnits(TableMixin):
    """Sizes of the distinct units of each group.

    Attributes:
        names: names of the groups.
        sizes: for each group, sizes of its distinct units, descending.
        counts: number of units in each group, duplicates and silent ones included.
        level: size from which a unit is active.
    """

    names: tuple[str, ...]
    sizes: tuple[Float[np.ndarray, "_"], ...]
    counts: tuple[int, ...]
    level: float

    @property
    def active(self) -> tuple[int, ...]:
        """Number of distinct active units of each group."""
        return tuple(int(np.sum(sizes >= self.level)) for sizes in self.sizes)

    def __repr__(self) -> str:
        return f"ActiveUnits({sum(self.active)} of {sum(self.counts)} units, level {self.level:.3g})"

    def _table(self) -> Table:
        rows = (
            (name, count, active, float(sizes[0]) if len(sizes) else 0.0)
            for name, count, active, sizes in zip(self.names, self.counts, self.active, self.sizes, strict=True)
        )
        return ("units", "number", "active", "largest size"), rows


@validate_arguments
def active_units(
    model: nn.Module | tuple[UnitGroup, ...], *, level: float | None = None, tolerance: float = 0.01
) -> ActiveUnits:
    """Count the distinct active units of a model.

    Args:
        model: a model, or groups from `units_of`, which looks for units once.
        level: size from which a unit is active; None: a tenth of the largest.
        tolerance: distance up to which two units are the same: |u - v| of the directions, or |u - v| / |u| where norms
            matter, as of tanh neurons and heads, in every layer into the units.

    Raises:
        InputError: as `units_of`; level or tolerance out of range; weights that are not finite.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(1, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))
    >>> with torch.no_grad():  # two copies of one neuron, another one, and a silent one
    ...     _ = model[0].weight.copy_(torch.tensor([[1.0], [2.0], [-1.0], [0.0]])), model[2].weight.fill_(1.0)
    >>> active_units(model).active
    (2,)
    """
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1; got {tolerance!r}.")
    groups = model if isinstance(model, tuple) else units_of(model)
    sizes = tuple(distinct_sizes(group, tolerance) for group in groups)
    largest = max((float(one[0]) for one in sizes if len(one)), default=0.0)
    return ActiveUnits(
        names=tuple(group.name for group in groups),
        sizes=sizes,
        counts=tuple(group.count for group in groups),
        level=level if level is not None else 0.1 * largest or 1.0,
    )


@torch.no_grad()
def distinct_sizes(group: UnitGroup, tolerance: float) -> Float[np.ndarray, "_"]:
    """Return the sizes of the distinct units of a group, descending; 0 for those left out and for duplicates.

    Raises:
        WeightsNotFiniteError: weights that are not finite.
    """
    into, out = group.weights_by_layer()
    if not all(all_finite(each) for each in (*into, out)):
        raise WeightsNotFiniteError(f"weights must be finite; got NaN or infinity in {group.name}.")
    scaled, keys, powers = out.cpu().numpy().copy(), [], 1.0  # a copy: these may be the weights themselves
    for layer, weights in enumerate(into):
        key = weights.cpu().numpy()
        if group.kind != "heads":
            norms, degree = np.linalg.norm(key, axis=1), group.degrees[layer]
            power = 1.0 if np.isnan(degree) else degree
            scaled, powers = scaled * np.power(norms, power)[:, None], powers + power
            if not np.isnan(degree):
                key = key / np.maximum(norms, _TINY)[:, None]
        keys.append(key)
    sizes = np.linalg.norm(scaled, axis=1)
    order = np.argsort(-sizes, kind="stable")
    order = order[np.cumsum(sizes[order][::-1])[::-1] > _FLOOR * sizes[order[0]]]
    leaders, signs = leaders_of([key[order] for key in keys], group.parities or (0,), tolerance)
    merged = np.zeros((int(leaders.max(initial=-1)) + 1, scaled.shape[1]))
    np.add.at(merged, leaders, signs[:, None] * scaled[order])
    found = np.zeros(group.count)
    found[: len(merged)] = np.linalg.norm(merged, axis=1)
    return np.sort(found)[::-1] ** (1.0 if group.kind == "heads" else 2 / powers)

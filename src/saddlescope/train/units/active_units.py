"""Number of distinct active units of a PyTorch model: equal ones merged, small ones left out.

    in, out    weights into a unit and out of it
    size       |in| |out| of a neuron or kernel, |W_V W_O^T| of a head: neither changes when scale moves between layers

Two neurons with the same direction of `in` (up to a sign where the activation is odd or even) are one neuron, whose
`out` is the sum of both, each times |in|: the fixed points of narrow networks are embedded in wide ones in this way.
Two heads with the same W_K W_Q^T are one head.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.train.units.unit_groups import UnitGroup, units_of

_FLOOR = 1e-3  # units below this share of the largest are not merged, and count as 0


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
        tolerance: distance of directions, |u - v| of unit vectors, up to which two units are the same.

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
    """Return the sizes of the distinct units of a group, descending; those below a thousandth of the largest are 0.

    Raises:
        InputError: weights that are not finite.
    """
    into, out = group.weights()
    if not (torch.isfinite(into).all() and torch.isfinite(out).all()):
        raise InputError(f"weights must be finite; got NaN or infinity in {group.name}.")
    heads = group.kind == "heads"
    norms = torch.linalg.vector_norm(into, dim=1)
    scaled = out if heads else out * norms[:, None]
    sizes = torch.linalg.vector_norm(scaled, dim=1)
    order = torch.argsort(sizes, descending=True)
    order = order[sizes[order] > _FLOOR * sizes[order[0]]]
    directions = into if heads else into / norms.clamp_min(1e-300)[:, None]
    leaders: list[int] = []
    merged: list[Tensor] = []
    for n in order.tolist():
        place, sign = _same(directions, leaders, n, tolerance, parity=group.parity, relative=heads)
        if place is None:
            leaders.append(n)
            merged.append(scaled[n].clone())
        else:
            merged[place] += sign * scaled[n]
    found = np.zeros(group.count)
    found[: len(merged)] = [float(torch.linalg.vector_norm(one)) for one in merged]
    return np.sort(found)[::-1]


def _same(
    directions: Tensor, leaders: list[int], n: int, tolerance: float, *, parity: int, relative: bool
) -> tuple[int | None, float]:
    """Return the place of the leader that unit n equals, and the sign of its feature; None without one."""
    if not leaders:
        return None, 1.0
    known, own = directions[leaders], directions[n]
    allowed = tolerance * (torch.linalg.vector_norm(known, dim=1).clamp_min(1e-300) if relative else 1.0)
    for turned, sign in ((1.0, 1.0), (-1.0, float(parity))) if parity else ((1.0, 1.0),):
        near = torch.linalg.vector_norm(known - turned * own, dim=1) <= allowed
        if near.any():
            return int(near.int().argmax()), sign
    return None, 1.0

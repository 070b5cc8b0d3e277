"""Number of distinct active units of a PyTorch model: equal ones merged, small ones left out.

    in, out    weights into a unit and out of it
    size       of the order of a product of two weights, so that sizes of different units compare:
               (|in|^k |out|)^(2/(k+1)) of a neuron or kernel whose feature grows with the k-th power of `in`, with one
               factor, and one more k, for each of several layers; |in| |out| where it grows with none, as of tanh;
               |W_V W_O^T| of a head

Two neurons are one if their features are in proportion, and its `out` is the sum of both: the fixed points of narrow
networks are embedded in wide ones in this way. Those with the same direction of `in` are, where the feature grows with
a power of it, as of ReLU; elsewhere those with the same `in`. The sign of `in` does not matter where the activation is
odd or even. Gated neurons are compared layer by layer. Two heads with the same W_K W_Q^T, and the same
W_K b_Q of the biases of queries, are one head. No size changes when a factor moves between layers that allow it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.ranks.attention.recorded_calls import run_model
from saddlescope.ranks.finite_tensors import all_finite
from saddlescope.ranks.units.equal_units import leaders_of
from saddlescope.ranks.units.unit_features import Convolution
from saddlescope.ranks.units.unit_groups import UnitGroup, units_of

_FLOOR = 1e-3  # share of the largest size below which the smallest units together are not merged, and count as 0
_FIRES = 1e-6  # share of the largest part in what a group gives below which a unit counts as one that never fires


class WeightsNotFiniteError(InputError):
    """A group of units has weights that are NaN or infinite."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ActiveUnits(TableMixin):
    """Sizes of the distinct units of each group.

    Attributes:
        names: names of the groups.
        log_sizes: for each group, logarithms of the sizes of its distinct units, descending; -inf of all others.
        counts: number of units in each group, duplicates and silent ones included.
        log_level: logarithm of the size from which a unit is active.
        on_inputs: True if units that never fire on given inputs are left out. Without inputs, units count by the size
            of their weights and biases, those that no input reaches included.
    """

    names: tuple[str, ...]
    log_sizes: tuple[Float[np.ndarray, "_"], ...]
    counts: tuple[int, ...]
    log_level: float
    on_inputs: bool = False

    @property
    def sizes(self) -> tuple[Float[np.ndarray, "_"], ...]:
        """Sizes of the distinct units of each group, descending; 0 or infinity where float64 has no such number."""
        return tuple(exponentials(one) for one in self.log_sizes)

    @property
    def level(self) -> float:
        """Size from which a unit is active."""
        return float(exponentials(np.array([self.log_level]))[0])

    @property
    def active(self) -> tuple[int, ...]:
        """Number of distinct active units of each group."""
        return tuple(int(np.sum(sizes >= self.log_level)) for sizes in self.log_sizes)

    def __repr__(self) -> str:
        counted = "that fire on the inputs" if self.on_inputs else "by weights alone"
        return f"ActiveUnits({sum(self.active)} of {sum(self.counts)} units {counted}, level {self.level:.3g})"

    def _table(self) -> Table:
        rows = (
            (name, count, active, float(sizes[0]) if len(sizes) else 0.0)
            for name, count, active, sizes in zip(self.names, self.counts, self.active, self.sizes, strict=True)
        )
        return ("units", "number", "active", "largest size"), rows


@validate_arguments
def active_units(
    model: nn.Module | tuple[UnitGroup, ...],
    *,
    inputs: Any = None,
    pairs: Mapping[str, str] | None = None,
    level: float | None = None,
    tolerance: float = 0.01,
) -> ActiveUnits:
    """Count the distinct active units of a model.

    Sizes are those of weights. A unit that no input reaches, such as a ReLU with a large negative bias, has a size,
    too, and may be the largest: with `inputs`, only units that fire on them count.

    Args:
        model: a model, or groups from `units_of`, which looks for units once.
        inputs: arguments of the model's forward pass: a tensor, a tuple or a dictionary. Units whose features are 0 on
            all of them do not count, and those whose features times `out` are below 1e-6 of the group's largest. None
            counts all; heads always count.
        pairs: further layers of a model, as in `units_of`.
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
    groups = model if isinstance(model, tuple) else units_of(model, pairs=pairs)
    if isinstance(model, tuple) and (inputs is not None or pairs):
        raise InputError("inputs and pairs need the model; got groups of units. Pass the model.")
    features = {} if inputs is None else largest_features(model, groups, inputs)  # type: ignore[arg-type]
    sizes = tuple(log_sizes(group, tolerance, features.get(group.name)) for group in groups)
    largest = max((float(one[0]) for one in sizes if len(one)), default=-np.inf)
    relative = largest + np.log(0.1) if largest > -np.inf else 0.0
    return ActiveUnits(
        names=tuple(group.name for group in groups),
        log_sizes=sizes,
        counts=tuple(group.count for group in groups),
        log_level=float(np.log(level)) if level is not None else relative,
        on_inputs=inputs is not None,
    )


def exponentials(logarithms: Float[np.ndarray, "_"]) -> Float[np.ndarray, "_"]:
    """Return sizes by their logarithms."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(logarithms)


@torch.no_grad()
def log_sizes(
    group: UnitGroup, tolerance: float, features: Float[np.ndarray, "_"] | None = None
) -> Float[np.ndarray, "_"]:
    """Return the logarithms of the sizes of the distinct units of a group, descending.

    Those left out and duplicates have size 0, -inf. Weights may be of any size.

    Args:
        group: the units.
        tolerance: as in `active_units`.
        features: largest features of the units, of which those that give too little do not count; None counts all.

    Raises:
        WeightsNotFiniteError: weights that are not finite.
    """
    into, out = group.weights_by_layer()
    if not all(all_finite(each) for each in (*into, out)):
        raise WeightsNotFiniteError(f"weights must be finite; got NaN or infinity in {group.name}.")
    scaled, exponents = _rows_to_one(out.cpu().numpy())
    if features is not None:
        with np.errstate(divide="ignore"):
            given = np.log(features) + np.log(np.abs(out.cpu().numpy()).max(axis=1))
        scaled = scaled * (given > given.max() + np.log(_FIRES))[:, None]
    powers, keys = 1.0, []
    for layer, weights in enumerate(into):
        key = _to_one(weights.cpu().numpy())
        if group.kind != "heads":
            rows, own = _rows_to_one(weights.cpu().numpy())
            norms, degree = np.linalg.norm(rows, axis=1), group.degrees[layer]
            power = 1.0 if np.isnan(degree) else degree
            scaled, powers = scaled * np.power(norms, power)[:, None], powers + power
            exponents += power * own
            if not np.isnan(degree):
                key = rows / np.maximum(norms, np.finfo(float).tiny)[:, None]
        keys.append(key)
    unit = exponents.max(initial=-np.inf, where=scaled.any(axis=1))
    scaled = scaled * np.exp2(np.minimum(exponents - unit, 0.0))[:, None]
    sizes = np.linalg.norm(scaled, axis=1)
    order = np.argsort(-sizes, kind="stable")
    order = order[np.cumsum(sizes[order][::-1])[::-1] > _FLOOR * sizes[order[0]]]
    leaders, signs = leaders_of([key[order] for key in keys], group.parities or (0,), tolerance)
    merged = np.zeros((int(leaders.max(initial=-1)) + 1, scaled.shape[1]))
    np.add.at(merged, leaders, signs[:, None] * scaled[order])
    found = np.zeros(group.count)
    found[: len(merged)] = np.linalg.norm(merged, axis=1)
    with np.errstate(divide="ignore"):
        return (np.log(np.sort(found)[::-1]) + unit * np.log(2)) * (1.0 if group.kind == "heads" else 2 / powers)


def _rows_to_one(weights: Float[np.ndarray, "m _"]) -> tuple[Float[np.ndarray, "m _"], Float[np.ndarray, "m"]]:
    """Return rows over powers of 2, with largest entries between 1/2 and 1, and the exponents; this is exact."""
    exponents = np.frexp(np.abs(weights).max(axis=1, initial=0.0))[1]
    return np.ldexp(weights, -exponents[:, None]), exponents.astype(float)


def _to_one(weights: Float[np.ndarray, "m _"]) -> Float[np.ndarray, "m _"]:
    """Return weights over their largest entry, whose squares are numbers of any float64."""
    return weights / (np.abs(weights).max(initial=0.0) or 1.0)


@torch.no_grad()
def largest_features(model: nn.Module, groups: Sequence[UnitGroup], inputs: Any) -> dict[str, Float[np.ndarray, "_"]]:
    """Return by name of the group the largest size of each unit's feature on the inputs."""
    found: dict[str, Tensor] = {}
    hooks = []

    def watch(group: UnitGroup, out: nn.Module) -> None:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            features = given[0].detach().abs()
            if isinstance(out, Convolution):
                most = features.transpose(0, 1).flatten(1).amax(1)
            else:
                most = features.reshape(-1, group.count, features.shape[-1] // group.count).amax(dim=(0, 2))
            found[group.name] = torch.maximum(found.get(group.name, most), most)

        hooks.append(out.register_forward_pre_hook(hook))

    for group in groups:
        if group.out is not None:
            watch(group, group.out)
    run_model(model, inputs, hooks)
    if broken := next((name for name, one in found.items() if not all_finite(one)), None):
        raise InputError(f"inputs must give finite features; got NaN or infinity in {broken}. Check the inputs.")
    return {
        group.name: found.get(group.name, torch.zeros(group.count)).double().cpu().numpy()
        for group in groups
        if group.out is not None
    }

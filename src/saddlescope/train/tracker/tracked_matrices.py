"""What a tracker follows: single matrices or products of two factors, their weights at the start, how to measure them.

    member      one matrix, or the products L R^T of all heads of a layer, with a place in the arrays of the records
    group       members of equal shapes, measured in one call
    before      the weights at the start: copies on the host

Measuring reads the weights and nothing else: no random numbers, no gradients, no change of mode, no in-place operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope.measure import (
    Spectrum,
    principal_angles,
    product_spectrum,
    product_update_spectrum,
    product_update_subspaces,
    spectrum,
    update_spectrum,
)
from saddlescope.train.tracker.records import SIDES, Spectra

# The weights of one member: (W,) for a single matrix; (L, R), (heads, rows, columns) each, for the products L R^T.
Weights: TypeAlias = tuple[Tensor, ...]

_TOGETHER = 2**23  # entries beyond which a group takes no more members: memory stays near that of one layer


@dataclass(frozen=True, eq=False)
class _Group:
    """Members with weights of equal shapes."""

    members: tuple[int, ...]
    before: Weights  # stacked along a first axis of members

    @property
    def values(self) -> int:
        """How many singular values an update can have: its rank is at most twice that of a product."""
        rows, columns = [part.shape[-2] for part in self.before], self.before[0].shape[-1]
        return min(*rows, 2 * columns) if len(rows) == 2 else min(*rows, columns)


@dataclass(frozen=True, eq=False)
class _Bases:
    """Leading singular subspaces of the members of a group at one record."""

    left: Float[np.ndarray, "members heads left_rows subspace"]
    right: Float[np.ndarray, "members heads right_rows subspace"]
    counted: Any  # (members, heads), how many of the directions are above the noise floor


class Tracked:
    """Members of one kind: their weights at the start, and the spectra of their updates.

    Args:
        weights: at the start, by member; copied to the host.
        members: how many there are.
        heads: the largest number of heads of a member, or None for single matrices.
        top: how many singular values to keep; None keeps all. Norms and ranks are of all in any case.
        subspace: dimension of the leading singular subspaces to follow from record to record; 0 follows none.
        rounded: whether the weights at the start may have been rounded when they were stored, as in a checkpoint: their
            rounding then counts to the noise floor. Those of a running model are what it started from, exactly.

    Attributes:
        initial: spectra of the weights at the start.
    """

    def __init__(
        self,
        weights: Callable[[int], Weights],
        members: int,
        *,
        heads: int | None,
        top: int | None,
        subspace: int,
        rounded: bool = False,
    ) -> None:
        self._labels = (members,) if heads is None else (members, heads)
        self._subspace = subspace
        self._groups = tuple(_groups([_copied(weights(member), rounded) for member in range(members)]))
        most = max((group.values for group in self._groups), default=0)
        self._values = most if top is None else min(top, most)
        self._former: list[_Bases | None] = [None] * len(self._groups)
        of_start = spectrum if heads is None else product_spectrum
        self.initial = self._assembled([_spectra(of_start(*group.before)) for group in self._groups])

    def measure(self, weights: Callable[[int], Weights]) -> tuple[Spectra, tuple[int, ...]]:
        """Spectra of the updates, and the members whose weights are not finite: their spectra are NaN.

        Args:
            weights: at present, by member.
        """
        found, broken = [], []
        for number, group in enumerate(self._groups):
            joined = _joined([tuple(part.to("cpu") for part in weights(member)) for member in group.members])
            finite = torch.stack([part.isfinite().flatten(1).all(dim=1) for part in joined]).all(dim=0)
            for place in (~finite).nonzero().flatten().tolist():
                broken.append(group.members[place])
                for part, before in zip(joined, group.before, strict=True):
                    part[place] = before[place]
            if len(joined) == 2:
                spectra = _spectra(product_update_spectrum(*joined, *group.before))
                spectra = self._with_angles(number, spectra, joined)
            else:
                spectra = _spectra(update_spectrum(*joined, *group.before))
            for array in spectra.arrays().values():
                array[~finite.numpy()] = np.nan
            found.append(spectra)
        return self._assembled(found), tuple(sorted(broken))

    def _with_angles(self, number: int, spectra: Spectra, after: Weights) -> Spectra:
        """The spectra with the angles between the leading subspaces now and at the former record."""
        if not self._subspace:
            return spectra
        group, former = self._groups[number], self._former[number]
        k = min(self._subspace, group.values)
        bases = product_update_subspaces(*after, *group.before, k=k)
        counted = (spectra.values[..., :k] > spectra.noise_floor[..., None]).sum(axis=-1)
        present = _Bases(np.asarray(bases.left), np.asarray(bases.right), counted)
        angles = np.full((*counted.shape, len(SIDES), self._subspace), np.nan)
        if former is not None:
            common = np.minimum(counted, former.counted)
            for size in set(common[common > 0].tolist()):
                at = common == size
                for side, name in enumerate(SIDES):
                    then, now = (getattr(one, name)[at][..., :size] for one in (former, present))
                    angles[at, side, :size] = principal_angles(then, now)
        self._former[number] = present
        return replace(spectra, angles=angles)

    def _assembled(self, parts: Sequence[Spectra]) -> Spectra:
        """Spectra of the groups as one, with the members in their places."""
        trailing = {"values": (self._values,), "angles": (len(SIDES), self._subspace)}
        whole = {}
        for name in Spectra.__dataclass_fields__:
            shape = (*self._labels, *trailing.get(name, ()))
            whole[name] = np.full(shape, np.nan)
            for group, spectra in zip(self._groups, parts, strict=True):
                for member, array in zip(group.members, getattr(spectra, name), strict=True):
                    place = whole[name][member, : len(array)] if len(self._labels) == 2 else whole[name][member, ...]
                    if name == "values":  # short spectra end in zeros
                        kept = array[..., : self._values]
                        place[...] = np.where(np.isnan(kept[..., :1]), np.nan, 0.0)
                        place[..., : kept.shape[-1]] = kept
                    elif name != "angles" or array.shape[-1]:
                        place[...] = array
        return Spectra(**whole)

    def state_dict(self) -> dict[str, Any]:
        """The weights at the start, their spectra and the subspaces of the last record."""
        former = [
            None if one is None else [torch.from_numpy(part) for part in (one.left, one.right, one.counted)]
            for one in self._former
        ]
        return {
            "before": [list(group.before) for group in self._groups],
            "initial": as_tensors(self.initial),
            "former": former,
        }

    def fits(self, state: dict[str, Any]) -> bool:
        """Whether a state is of members of the same shapes."""
        theirs = [[part.shape for part in before] for before in state["before"]]
        shapes = [[part.shape for part in group.before] for group in self._groups]
        return theirs == shapes and state["initial"]["values"].shape == self.initial.values.shape

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a state that `fits`: its initial weights replace those found when this was made."""
        self._groups = tuple(
            _Group(group.members, tuple(part.clone() for part in before))
            for group, before in zip(self._groups, state["before"], strict=True)
        )
        self.initial = from_tensors(state["initial"])
        self._former = [
            None if one is None else _Bases(*(part.numpy().copy() for part in one)) for one in state["former"]
        ]


def as_tensors(spectra: Spectra) -> dict[str, Tensor]:
    """The arrays of spectra as tensors, for snapshots."""
    return {name: torch.from_numpy(array) for name, array in spectra.arrays().items()}


def from_tensors(arrays: dict[str, Tensor]) -> Spectra:
    """Spectra from the tensors of a snapshot."""
    return Spectra(**{name: array.numpy().copy() for name, array in arrays.items()})


def _spectra(found: Spectrum) -> Spectra:
    """In NumPy, in arrays of their own."""
    return Spectra.of(np.asarray(found.values).copy(), np.asarray(found.noise_floor).copy())


def _copied(weights: Weights, rounded: bool) -> Weights:
    """Copies on the host: aliases of the weights would follow them, and every update would be 0.

    Exact ones in float32 or better: half precision would be taken for rounding, which it is in a checkpoint alone.
    """
    kinds = [part.dtype if rounded else torch.promote_types(part.dtype, torch.float32) for part in weights]
    return tuple(part.detach().to("cpu", kind, copy=True) for part, kind in zip(weights, kinds, strict=True))


def _joined(weights: Sequence[Weights]) -> Weights:
    """The weights of several members along a first axis."""
    return tuple(torch.stack(parts) for parts in zip(*weights, strict=True))


def _groups(weights: Sequence[Weights]) -> list[_Group]:
    """Members of equal shapes and types together, as many as memory should hold at once."""
    alike: dict[tuple[Any, ...], list[list[int]]] = {}
    for member, parts in enumerate(weights):
        key = tuple((part.shape, part.dtype) for part in parts)
        batches = alike.setdefault(key, [[]])
        size = sum(part.numel() for part in parts)
        if batches[-1] and (len(batches[-1]) + 1) * size > _TOGETHER:
            batches.append([])
        batches[-1].append(member)
    return [
        _Group(tuple(batch), _joined([weights[member] for member in batch]))
        for batches in alike.values()
        for batch in batches
    ]

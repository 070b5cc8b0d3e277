"""Tracked matrices: single matrices or products of two factors, with copies of their weights at the start.

    member      one matrix, or the products L R^T of all heads of a layer, with an index in the arrays of the records
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

from saddlescope._shared.errors import InputError
from saddlescope.measure import (
    Spectrum,
    principal_angles,
    product_spectrum,
    product_update_spectrum,
    product_update_subspaces,
    spectrum,
    update_spectrum,
)
from saddlescope.train.tracker.matrix_selection import MatrixSelection
from saddlescope.train.tracker.records import SIDES, Spectra

# The weights of one member: (W,) for a single matrix; (L, R), (heads, rows, columns) each, for the products L R^T.
Weights: TypeAlias = tuple[Tensor, ...]

_GROUP_ENTRIES = 2**23  # largest number of entries of a group with several members: bounds memory


@dataclass(frozen=True, eq=False)
class _Group:
    """Members with weights of equal shapes."""

    members: tuple[int, ...]
    before: Weights  # stacked along a first axis of members

    @property
    def values(self) -> int:
        """Largest number of singular values of an update: its rank is at most twice that of a product."""
        rows, columns = [part.shape[-2] for part in self.before], self.before[0].shape[-1]
        return min(*rows, 2 * columns) if len(rows) == 2 else min(*rows, columns)


@dataclass(frozen=True, eq=False)
class _Bases:
    """Leading singular subspaces of the members of a group at one record."""

    left: Float[np.ndarray, "members heads left_rows subspace"]
    right: Float[np.ndarray, "members heads right_rows subspace"]
    counted: Any  # (members, heads), number of directions above the noise floor


class TrackedMatrices:
    """Members of one kind: their weights at the start, and the spectra of their updates.

    Args:
        weights: function from the index of a member to its weights at the start; they are copied to the host.
        members: number of members.
        heads: the largest number of heads of a member, or None for single matrices.
        top: number of singular values to record; None records all. Norms and ranks always use all.
        subspace: dimension of the leading singular subspaces to compare from record to record; 0 for none.
        rounded: True if the weights at the start may have been rounded when they were stored, as in a checkpoint: their
            rounding then counts to the noise floor. Weights of a running model are exact.

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
        self._groups = tuple(_make_groups([_copy(weights(member), rounded) for member in range(members)]))
        most = max((group.values for group in self._groups), default=0)
        self._values = most if top is None else min(top, most)
        self._former: list[_Bases | None] = [None] * len(self._groups)
        of_start = spectrum if heads is None else product_spectrum
        self.initial = self._assemble([_spectra(of_start(*group.before)) for group in self._groups])

    def measure(self, weights: Callable[[int], Weights]) -> tuple[Spectra, tuple[int, ...]]:
        """Return the spectra of the updates, and the members whose weights are not finite: their spectra are NaN.

        Args:
            weights: function from the index of a member to its present weights.
        """
        found, broken = [], []
        for number, group in enumerate(self._groups):
            stacked = _stack([tuple(part.to("cpu") for part in weights(member)) for member in group.members])
            finite = torch.stack([part.isfinite().flatten(1).all(dim=1) for part in stacked]).all(dim=0)
            for index in (~finite).nonzero().flatten().tolist():
                broken.append(group.members[index])
                for part, before in zip(stacked, group.before, strict=True):
                    part[index] = before[index]
            if len(stacked) == 2:
                spectra = _spectra(product_update_spectrum(*stacked, *group.before))
                spectra = self._with_angles(number, spectra, stacked)
            else:
                spectra = _spectra(update_spectrum(*stacked, *group.before))
            for array in spectra.arrays().values():
                array[~finite.numpy()] = np.nan
            found.append(spectra)
        return self._assemble(found), tuple(sorted(broken))

    def _with_angles(self, number: int, spectra: Spectra, after: Weights) -> Spectra:
        """Return the spectra with the angles between the leading subspaces now and at the previous record."""
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

    def _assemble(self, parts: Sequence[Spectra]) -> Spectra:
        """Combine the spectra of the groups, members in order."""
        trailing = {"values": (self._values,), "angles": (len(SIDES), self._subspace)}
        arrays = {}
        for name in Spectra.__dataclass_fields__:
            shape = (*self._labels, *trailing.get(name, ()))
            arrays[name] = np.full(shape, np.nan)
            for group, spectra in zip(self._groups, parts, strict=True):
                for member, array in zip(group.members, getattr(spectra, name), strict=True):
                    target = arrays[name][member, : len(array)] if len(self._labels) == 2 else arrays[name][member, ...]
                    if name == "values":  # short spectra end in zeros
                        top = array[..., : self._values]
                        target[...] = np.where(np.isnan(top[..., :1]), np.nan, 0.0)
                        target[..., : top.shape[-1]] = top
                    elif name != "angles" or array.shape[-1]:
                        target[...] = array
        return Spectra(**arrays)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights at the start, their spectra and the subspaces of the last record."""
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
        """Return True for a state of members of the same shapes."""
        theirs = [[part.shape for part in before] for before in state["before"]]
        shapes = [[part.shape for part in group.before] for group in self._groups]
        return theirs == shapes and state["initial"]["values"].shape == self.initial.values.shape

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `fits`: its initial weights replace those found when this object was built."""
        self._groups = tuple(
            _Group(group.members, tuple(part.clone() for part in before))
            for group, before in zip(self._groups, state["before"], strict=True)
        )
        self.initial = from_tensors(state["initial"])
        self._former = [
            None if one is None else _Bases(*(part.numpy().copy() for part in one)) for one in state["former"]
        ]


def check_options(*, attention: bool, matrices: MatrixSelection | None, top: int | None, subspace: int) -> None:
    """Raise InputError for options of a tracker, or of `checkpoint_spectra`, that measure nothing."""
    if not attention and matrices is None:
        raise InputError("attention must be True if no matrices are selected; got False, which measures nothing.")
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, or None for all singular values; got {top!r}.")
    if subspace < 0:
        raise InputError(f"subspace must be at least 1, or 0 for no angles; got {subspace!r}.")


def as_tensors(spectra: Spectra) -> dict[str, Tensor]:
    """Return the arrays of spectra as tensors, for checkpoints."""
    return {name: torch.from_numpy(array) for name, array in spectra.arrays().items()}


def from_tensors(arrays: dict[str, Tensor]) -> Spectra:
    """Return spectra from the tensors of a checkpoint."""
    return Spectra(**{name: array.numpy().copy() for name, array in arrays.items()})


def _spectra(found: Spectrum) -> Spectra:
    """Copy a spectrum to NumPy."""
    return Spectra.of(np.asarray(found.values).copy(), np.asarray(found.noise_floor).copy())


def _copy(weights: Weights, rounded: bool) -> Weights:
    """Copy weights to the host: aliases would change with the weights, and every update would be 0.

    Exact weights go to float32 or better: half precision would count as rounding, which it is only in a checkpoint.
    """
    kinds = [part.dtype if rounded else torch.promote_types(part.dtype, torch.float32) for part in weights]
    return tuple(part.detach().to("cpu", kind, copy=True) for part, kind in zip(weights, kinds, strict=True))


def _stack(weights: Sequence[Weights]) -> Weights:
    """Stack the weights of several members along a first axis."""
    return tuple(torch.stack(parts) for parts in zip(*weights, strict=True))


def _make_groups(weights: Sequence[Weights]) -> list[_Group]:
    """Group members of equal shapes and types, as many as should be in memory at once."""
    alike: dict[tuple[Any, ...], list[list[int]]] = {}
    for member, parts in enumerate(weights):
        key = tuple((part.shape, part.dtype) for part in parts)
        batches = alike.setdefault(key, [[]])
        size = sum(part.numel() for part in parts)
        if batches[-1] and (len(batches[-1]) + 1) * size > _GROUP_ENTRIES:
            batches.append([])
        batches[-1].append(member)
    return [
        _Group(tuple(batch), _stack([weights[member] for member in batch]))
        for batches in alike.values()
        for batch in batches
    ]

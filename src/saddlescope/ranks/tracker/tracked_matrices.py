"""Tracked matrices: spectra of the updates of single matrices, or of products of two factors, since a start.

    unit        what is read at once: an attention layer with all its products, or a single matrix
    member      one matrix, or the products L R^T of all heads of a layer, with an index in the arrays of the records
    before      the weights at the start, read a unit at a time whenever a record is made; see `initial_weights`

Measuring reads the weights and nothing else: no random numbers, no gradients, no change of mode, no in-place operation.
It works where the weights are, and only singular values and angles travel to the host.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.measure import (
    Spectrum,
    principal_angles,
    product_spectrum,
    product_update_orders,
    product_update_spectrum,
    product_update_subspaces,
    spectrum,
    update_spectrum,
)
from saddlescope.ranks.finite_tensors import all_finite
from saddlescope.ranks.tracker.matrix_updates import leading_spectra, leading_vectors
from saddlescope.ranks.tracker.recorders import Angles, Increments, Orders, Recorder, Values, Vectors, recorder
from saddlescope.ranks.tracker.records import ORDERS, PRODUCTS, SIDES, Spectra
from saddlescope.ranks.tracker.singular_vectors import Bases
from saddlescope.ranks.tracker.unit_owners import UnitOwners, merge

# The weights of one member: (W,) for a single matrix; (L, R), (heads, rows, columns) each, for the products L R^T.
Weights: TypeAlias = tuple[Tensor, ...]
# Function from a unit to the weights of its members: both products of a layer, or one matrix.
ReadUnit: TypeAlias = Callable[[int], Sequence[Weights]]
# The same of a sharded model, called in all processes: None in those that do not own the unit.
ReadSharedUnit: TypeAlias = Callable[[int], Sequence[Weights] | None]

_ENTRIES = 2**18  # entries of weights converted at once, for each thread of the host: a head of GPT-2 small
_ACCELERATOR_ENTRIES = 2**25


@dataclass(frozen=True, eq=False)
class Record:
    """Record of all members.

    Attributes:
        step: number of steps.
        update: spectra of the updates since the start; NaN for members without.
        increment: of the updates since the previous record; None if they are not recorded.
        vectors: leading singular vectors of the updates, of members that have any.
        lost: members without spectra, with the reason.
    """

    step: int
    update: Spectra
    increment: Spectra | None
    vectors: dict[int, Bases]
    lost: dict[int, str]


@dataclass
class _Found:
    """Measurements of one member for a `Record`."""

    update: Spectra | None = None
    increment: Spectra | None = None
    vectors: Bases | None = None
    lost: str = ""


class TrackedMatrices:
    """Members of one kind: the spectra of their weights at the start and of their updates.

    Args:
        before: function from a unit to its weights at the start. It is called again for each record.
        units: number of units.
        heads: the largest number of heads of a layer, or None for single matrices.
        recorders: what to record; subspaces and orders are those of products, and randomised values of single matrices.
        rounded: True if the weights at the start may have been rounded when they were stored, as in a checkpoint: their
            rounding then counts to the noise floor. Weights of a running model are exact.
        device: device of the arithmetic; None is that of the weights, or the host if that has no float64.
        owners: processes that measure the units, of a sharded model. `before` is called for owned units only.

    Attributes:
        increments: True if updates since the previous record are recorded.
        initial: spectra of the weights at the start.
        unreadable: members whose weights at the start are not finite; their spectra are NaN.
        records: all records so far, by `append`; spectra of products have the labels (layer, head, product) there.
    """

    def __init__(
        self,
        before: ReadUnit,
        units: int,
        *,
        heads: int | None,
        recorders: Sequence[Recorder] = (),
        rounded: bool = False,
        device: torch.device | None = None,
        owners: UnitOwners = UnitOwners(),  # noqa: B008  (has no state)
    ) -> None:
        self._before, self._units, self._device, self._owners = before, units, device, owners
        self._of_unit = 1 if heads is None else len(PRODUCTS)
        self._labels = (units,) if heads is None else (len(PRODUCTS) * units, heads)
        self.rounded, self.records = rounded, list[Record]()
        self._kept, self._vectors = recorder(recorders, Values) or Values(), recorder(recorders, Vectors)
        self.increments, angles = recorder(recorders, Increments) is not None, recorder(recorders, Angles)
        self._subspace = 0 if angles is None or heads is None else angles.k
        self._orders = len(ORDERS) if recorder(recorders, Orders) is not None and heads is not None else 0
        self._randomized = self._kept.randomized and heads is None
        self._former: list[Bases | None] = [None] * self._labels[0]
        found, unreadable, most = dict[int, Spectra](), list[int](), 0
        with owners.together():
            for unit in filter(owners.owns, range(units)):
                for member, start in enumerate(before(unit), self._of_unit * unit):
                    most = max(most, _values_of_update(start))
                    try:
                        found[member] = self._initial_spectra(start)
                    except InputError:
                        if all(map(all_finite, start)):
                            raise
                        unreadable.append(member)
        everything = owners.exchange((found, unreadable, most))
        most = max(most for _, _, most in everything)
        self._values = most if self._kept.top is None else min(self._kept.top, most)
        self._bounded = self._values if self._randomized else 0
        self.initial = self._assemble(merge(found for found, _, _ in everything))
        self.unreadable = tuple(sorted(member for _, unreadable, _ in everything for member in unreadable))

    def _initial_spectra(self, start: Weights) -> Spectra:
        if self._randomized:
            zero = start[0].new_zeros(()).expand_as(start[0])
            if (found := self._leading(start, (zero,), self.rounded)) is not None:
                return found
        return self._cut((), start, _initial_spectrum, rounded=self.rounded)

    @property
    def start(self) -> Spectra:
        """Spectra of the weights at the start, with the labels of the records."""
        return self._by_layer(self.initial)

    def measure(self, step: int, present: ReadSharedUnit, previous: ReadUnit | None = None) -> "Record":
        """Measure the updates of all members.

        Args:
            step: number of steps, on which it depends whether the record has vectors.
            present: function from a unit to its present weights, which all processes call for all units, in order; None
                in those that do not own it.
            previous: function from an owned unit to its weights at the previous record, exact, to measure increments
                from; None for the first record, whose increment is the update.
        """
        vectors, found = self._vectors, dict[int, _Found]()
        k = vectors.k if vectors is not None and (vectors.at is None or vectors.at(step)) else 0
        with self._owners.together():
            failed: Exception | None = None
            for units in self._owners.rounds(self._units):  # all processes go through all of them, whatever fails
                weights: list[tuple[int, Sequence[Weights]]] = []
                for unit in units:
                    try:
                        weights += [(unit, now)] if (now := present(unit)) is not None else []
                    except Exception as error:
                        failed = failed or error
                for unit, now in weights:
                    try:
                        found |= self._measured_unit(unit, now, previous, k)
                    except Exception as error:
                        failed = failed or error
            if failed is not None:
                raise failed
        found = merge(self._owners.exchange(found))
        for member, one in found.items():
            if one.lost:
                self._former[member] = None

        def of_members(name: str) -> dict[int, Any]:
            return {member: held for member, one in found.items() if (held := getattr(one, name))}

        update = since = self._by_layer(self._assemble(of_members("update")))
        if previous is not None:
            since = self._by_layer(self._assemble(of_members("increment")))
        return Record(step, update, since if self.increments else None, of_members("vectors"), of_members("lost"))

    def _measured_unit(self, unit: int, now: Sequence[Weights], previous: ReadUnit | None, k: int) -> dict[int, _Found]:
        """Return what a record has of the members of a unit, with k singular vectors."""
        found = {member: _Found() for member in range(self._of_unit * unit, self._of_unit * (unit + 1))}
        then: Sequence[Weights] = ()
        try:
            then = self._before(unit)
        except InputError as error:  # of files that have changed: no reason to end a training run
            for one in found.values():
                one.lost = str(error)
        for (member, one), weights, start in zip(found.items(), now, then, strict=False):
            try:
                one.update, one.vectors = self._measured(member, weights, start, k)
            except InputError as error:  # beyond float64 at the latest: no reason to end a training run either
                one.lost = str(error) if all(map(all_finite, weights)) else _NOT_FINITE
        then = () if previous is None else previous(unit)
        for one, weights, start in zip(found.values(), now, then, strict=False):
            try:
                one.increment = self._spectra(weights, start, rounded=False)
            except InputError:  # `lost` has the reason, or the previous record had it
                continue
        return found

    def _measured(self, member: int, after: Weights, before: Weights, k: int) -> tuple[Spectra, Bases | None]:
        """Return the spectra of the update of a member, and its k leading singular vectors if there are any."""
        spectra, most = self._spectra(after, before, rounded=self.rounded), _values_of_update(after)
        if len(after) == 1:
            if not k:
                return spectra, None
            now, then = next(_slices(after, before, self.rounded, self._device))
            found = leading_vectors(now, then, min(k, most), spectra, randomized=self._randomized)
            return spectra, found.single()
        if not (size := min(max(self._subspace, k), most)):
            return spectra, None
        parts = [
            product_update_subspaces(*slices, k=size) for slices in _slices(after, before, self.rounded, self._device)
        ]
        counted = (spectra.values[..., :size] > spectra.noise_floor[..., None]).sum(axis=-1)
        left, right = (np.concatenate([_on_host(getattr(part, side)) for part in parts]) for side in SIDES)
        bases = Bases(left, right, counted)
        if self._subspace:
            spectra = self._with_angles(member, spectra, bases.leading(self._subspace))
        return spectra, bases.leading(k).single() if k else None

    def _spectra(self, after: Weights, before: Weights, *, rounded: bool) -> Spectra:
        """Return the spectra of an update, with the norms and stable ranks of both of its orders if they are asked."""
        spectra = self._leading(after, before, rounded) if self._randomized else None
        if spectra is None:
            measure = product_update_spectrum if len(after) == 2 else update_spectrum
            spectra = self._cut(after, before, measure, rounded=rounded)
        if not self._orders:
            return spectra
        parts = [product_update_orders(*slices) for slices in _slices(after, before, rounded, self._device)]
        orders = [_joined([getattr(part, name) for part in parts]) for name in ORDERS]
        norm, rank = (np.stack([getattr(one, name) for one in orders], axis=-1) for name in ("norm", "stable_rank"))
        return replace(spectra, order_norm=norm, order_stable_rank=rank)

    def _leading(self, after: Weights, before: Weights, rounded: bool) -> Spectra | None:
        """Return the leading values of the update of a large matrix, with bounds; None if all are to be computed."""
        assert self._kept.top is not None
        now, then = next(_slices(after, before, rounded, self._device))
        return leading_spectra(now, then, self._kept.top)

    def _with_angles(self, member: int, spectra: Spectra, present: Bases) -> Spectra:
        """Return the spectra with the angles between the leading subspaces now and at the previous record."""
        former = self._former[member]
        angles = np.full((*present.counted.shape, len(SIDES), self._subspace), np.nan)
        if former is not None:
            common = np.minimum(present.counted, former.counted)
            for size in set(common[common > 0].tolist()):
                at = common == size
                for side, name in enumerate(SIDES):
                    then, now = (getattr(one, name)[at][..., :size] for one in (former, present))
                    angles[at, side, :size] = principal_angles(then, now)
        self._former[member] = present
        return replace(spectra, angles=angles)

    def _cut(self, after: Weights, before: Weights, measure: Callable[..., Spectrum], *, rounded: bool) -> Spectra:
        """Return the spectra of a member, some heads at a time."""
        return _joined([measure(*weights) for weights in _slices(after, before, rounded, self._device)])

    def _assemble(self, found: dict[int, Spectra]) -> Spectra:
        """Combine the spectra of the members; NaN for those without, and for heads that a layer does not have."""
        trailing = {"values": (self._values,), "errors": (self._bounded,), "angles": (len(SIDES), self._subspace)}
        trailing |= dict.fromkeys(("order_norm", "order_stable_rank"), (self._orders,))
        arrays = {
            name: np.full((*self._labels, *trailing.get(name, ())), np.nan) for name in Spectra.__dataclass_fields__
        }
        for member, spectra in found.items():
            for name, array in spectra.arrays().items():
                target = arrays[name][member, : len(array)] if len(self._labels) == 2 else arrays[name][member, ...]
                if name in ("values", "errors"):  # short spectra end in zeros, and exact ones have no errors
                    top = array[..., : trailing[name][0]]
                    target[...] = 0.0
                    target[..., : top.shape[-1]] = top
                elif name not in trailing or array.shape[-1]:
                    target[...] = array
        return Spectra(**arrays)

    def _by_layer(self, spectra: Spectra) -> Spectra:
        """Reshape spectra of products from members (layer and product, head) to layer, head, product."""
        if self._of_unit == 1:
            return spectra

        shape = self._units, len(PRODUCTS)
        return spectra.each(lambda array: np.moveaxis(array.reshape(*shape, *array.shape[1:]), 1, 2))

    def state_dict(self) -> dict[str, Any]:
        """Return the spectra at the start and the subspaces of the last record."""
        bases = merge(
            self._owners.exchange({member: one for member, one in enumerate(self._former) if one is not None})
        )
        former = map(bases.get, range(len(self._former)))
        return {"initial": as_tensors(self.initial), "former": [one and one.tensors() for one in former]}

    def fits(self, state: dict[str, Any]) -> bool:
        """Return True for a state of members of the same numbers."""
        ours = self.initial.arrays()
        return len(state["former"]) == len(self._former) and all(
            name in ours and tuple(tensor.shape) == ours[name].shape for name, tensor in state["initial"].items()
        )

    def load_state_dict(self, state: dict[str, Any], *, rounded: bool) -> None:
        """Restore a state that `fits`.

        Args:
            state: a state.
            rounded: as when this object was built, of the weights at the start that `before` now returns.
        """
        self.rounded = rounded
        self.initial = from_tensors(state["initial"])
        self._former = [None if one is None else Bases.of(one) for one in state["former"]]


_NOT_FINITE = "weights must be finite; got NaN or infinity: lower the learning rate."


def as_tensors(spectra: Spectra) -> dict[str, Tensor]:
    """Return the arrays of spectra as tensors, for checkpoints."""
    return {name: torch.from_numpy(array) for name, array in spectra.arrays().items()}


def from_tensors(arrays: dict[str, Tensor]) -> Spectra:
    """Return spectra from the tensors of a checkpoint; those of earlier versions have fewer."""
    found = {name: array.numpy().copy() for name, array in arrays.items()}
    return Spectra(**{"errors": np.full((*found["norm"].shape, 0), np.nan)} | found)


def _on_host(array: Tensor) -> np.ndarray:
    """Copy a result to NumPy."""
    return array.cpu().numpy().copy()


def _joined(parts: Sequence[Spectrum]) -> Spectra:
    """Return the spectra of some heads after the other on the host, or that of a matrix, which is one part."""
    values, floors = ([_on_host(getattr(part, name)) for part in parts] for name in ("values", "noise_floor"))
    return Spectra.of(*(found[0] if len(found) == 1 else np.concatenate(found) for found in (values, floors)))


def _values_of_update(weights: Weights) -> int:
    """Return the largest number of singular values of an update: its rank is at most twice that of a product."""
    rows, columns = [part.shape[-2] for part in weights], weights[0].shape[-1]
    return min(*rows, 2 * columns) if len(rows) == 2 else min(*rows, columns)


def _initial_spectrum(*weights: Tensor) -> Spectrum:
    """Return the spectrum of a product; that of a matrix as its update from 0, which is faster than `spectrum`."""
    if len(weights) == 2:
        return product_spectrum(*weights)
    (W,) = weights
    return spectrum(W) if W.dtype == torch.float64 else update_spectrum(W, W.new_zeros(()).expand_as(W))


def _slices(
    after: Weights, before: Weights, rounded: bool, device: torch.device | None
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the weights of some heads at a time, on the device of the arithmetic: conversion takes little memory.

    Weights at the start that are exact go to float32 or better: half precision would count as rounding.
    """
    parts = (*after, *before)
    where = _device_of_arithmetic(parts[0].device) if device is None else device
    ranges = [slice(None)]
    if parts[0].ndim == 3:
        entries = _ENTRIES * torch.get_num_threads() if where.type == "cpu" else _ACCELERATOR_ENTRIES
        heads = len(parts[0])
        step = max(1, entries * heads // sum(part.numel() for part in parts))
        ranges = [slice(start, start + step) for start in range(0, heads, step)]
    for these in ranges:
        now, then = ([part.detach()[these].to(where) for part in side] for side in (after, before))
        if not rounded:
            then = [part.to(torch.promote_types(part.dtype, torch.float32)) for part in then]
        yield (*now, *then)


def _device_of_arithmetic(device: torch.device) -> torch.device:
    """Return the device itself, or the host for a device without float64."""
    return torch.device("cpu") if device.type == "mps" else device

"""Rank tracker: spectra of the updates of attention weights, head by head, while any PyTorch model trains.

    tracker = RankTracker(model).watch(optimizer)
    ...                                     # the training loop, untouched
    tracker.stable_rank("KQ")               # (records, layers, heads)

    KQ      W_K W_Q^T - W_K(0) W_Q(0)^T, the update of the product that decides where a head looks
    VO      W_V W_O^T - W_V(0) W_O(0)^T, the update of the product that decides what it moves
    (0)     the weights when the tracker was built, or those of a saved checkpoint

Single matrices, such as those of the MLPs, are selected by name. The products are never formed; see
`saddlescope.measure.product_update_spectrum`.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError, unknown
from saddlescope.ranks.attention.attention_blocks import (
    FoundAttention,
    checked_coverage,
    find_attention,
    require_attention,
)
from saddlescope.ranks.attention.coverage import AttentionCoverage, warn_of_missed
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.module_names import first_few, unwrap_model
from saddlescope.ranks.shards import require_readable, shapes_only
from saddlescope.ranks.state_files import damage_refused
from saddlescope.ranks.tracker import tracker_state
from saddlescope.ranks.tracker.initial_weights import HeldWeights, Reference, require_reference
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection, select_matrices
from saddlescope.ranks.tracker.rank_file import RankFile
from saddlescope.ranks.tracker.recorders import Recorder, Vectors, recorder, require_recorders
from saddlescope.ranks.tracker.records import PRODUCTS, RankRecords, Updates, product_index, stack_records
from saddlescope.ranks.tracker.scheduled_tracker import ScheduledTracker
from saddlescope.ranks.tracker.schedules import Geometric, Schedule
from saddlescope.ranks.tracker.singular_vectors import SingularVectors
from saddlescope.ranks.tracker.tracked_matrices import TrackedMatrices
from saddlescope.ranks.tracker.unit_owners import owners_of
from saddlescope.ranks.tracker.unit_weights import Unit, UnitWeights, layer_unit, matrix_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from saddlescope.ranks.checkpoints.weights_in_memory import Source


class RankTracker(ScheduledTracker):
    """Recorder of the spectra of the updates of W_K W_Q^T and W_V W_O^T of every attention head, and of matrices.

    Build it before training starts: updates are counted from the weights at that moment, which are copied to the host
    in their own type, each parameter once. For a model that was trained before, updates are those since then.

    Args:
        model: any model; `torch.compile` and DistributedDataParallel may wrap it.
        schedule: function from the number of optimiser steps to whether to measure. The default grows geometrically and
            costs a fraction of the run's time that falls with its length.
        layouts: possible layouts of the attention weights; see `saddlescope.ranks.attention.layouts`.
        attention: track the attention heads.
        matrices: single matrices to track in addition: patterns such as "*.mlp.*" on the names of parameters or of
            their modules, or a function of name and parameter; see `saddlescope.ranks.tracker.matrix_selection`. The
            experts of a mixture are matrices "name[k]" of one parameter.
        recorders: what to record beside norms, ranks and all singular values: `Values(top)`, `Vectors(k)`, `Angles(k)`,
            `Orders()`, `Increments()`; see `saddlescope.ranks.tracker.recorders`.
        initial: a saved checkpoint (a file or folder of safetensors, or of `torch.save`; or a mapping or pytree of
            arrays) to count updates from, for a model whose training has begun; None counts from the present weights.
            Each record reads a file a layer at a time, unless `reference` keeps a copy.
        reference: place of the initial weights: `InMemory()`, in bfloat16 with `InMemory(torch.bfloat16)`, or
            `OnDisk(folder)`. None keeps them in memory, or in the checkpoint `initial`.
        device: device of the arithmetic, such as "cpu"; None is that of the weights (the host for one without float64).
        strict: raise if any attention of the model cannot be tracked; otherwise a warning names it.
        file: file to which each record is appended, such as "ranks.jsonl"; `saddlescope watch` draws it while the model
            trains, and `saddlescope.store.read_log` reads it. None writes none.

    Raises:
        InputError: no attention found and no matrices selected (the message lists the names looked for), a pattern
            that matches nothing, weights that are not finite, or an initial checkpoint of another model.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        schedule: Schedule = Geometric(),  # noqa: B008  (frozen)
        layouts: Sequence[AttentionLayout] = LAYOUTS,
        attention: bool = True,
        matrices: MatrixSelection | None = None,
        recorders: Sequence[Recorder] = (),
        initial: "Source | None" = None,
        reference: Reference | None = None,
        device: str | torch.device | None = None,
        strict: bool = False,
        file: str | Path | None = None,
    ) -> None:
        super().__init__(schedule)
        require_recorders(recorders, attention=attention, matrices=matrices)
        self._recorders = tuple(recorders)
        require_reference(reference)
        if device is not None:
            try:
                torch.empty(0, device=device)
            except (AssertionError, RuntimeError) as error:  # without CUDA, or of an unknown name
                raise InputError(f"device must be one of this machine; got {device!r}. Pass 'cpu'.") from error
        require_readable(model)
        self._owners = owners_of(model)
        with shapes_only(model):
            found = find_attention(model, layouts) if attention else FoundAttention((), AttentionCoverage())
            self._blocks, self._coverage = found
            if strict and self._coverage.missed:
                row = self._coverage.missed[0]
                raise InputError(f"all attention must be trackable with strict=True; got {row.name}: {row.reason}.")
            if attention and matrices is None:
                require_attention(found, model)
            self._matrices = {} if matrices is None else select_matrices(model, matrices)
            self._weights = UnitWeights(
                [layer_unit(block) for block in self._blocks],
                [matrix_unit(name, parameter) for name, parameter in self._matrices.items()],
                self._owners,
            )
        warn_of_missed(self._coverage, stacklevel=2)
        self._reference = reference
        self._initial = self._weights.store(model, initial, reference)
        self._products, self._single = self._start(None if device is None else torch.device(device))
        self._file = RankFile(Path(file)) if file is not None and self._owners.rank == 0 else None
        self._previous: HeldWeights | None = None  # at the last record, for increments

    def _start(self, device: torch.device | None) -> tuple[TrackedMatrices, TrackedMatrices]:
        """Measure the initial weights."""
        rounded = any(self._owners.exchange(self._initial.rounded))

        def tracked(units: Sequence[Unit], heads: int | None) -> TrackedMatrices:
            return TrackedMatrices(
                lambda number: self._weights.then(units, self._initial, number), len(units), heads=heads,
                recorders=self._recorders, rounded=rounded, device=device, owners=self._owners,
            )  # fmt: skip

        most = max((block.heads for block in self._blocks), default=0)
        products, single = tracked(self._weights.layers, most), tracked(self._weights.matrices, None)
        for name in (*map(self._layer_of, products.unreadable), *map(self.matrices.__getitem__, single.unreadable)):
            raise InputError(f"initial weights must be finite; got NaN or infinity in {name}.")
        return products, single

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the attention modules, in the model's order."""
        return tuple(block.name for block in self._blocks)

    @property
    def coverage(self) -> AttentionCoverage:
        """All modules that look like attention: tracked (verified or unchecked), refused or skipped, and why."""
        return self._coverage

    def check(self, model: nn.Module, inputs: Any) -> AttentionCoverage:
        """Compare every product with the model's own scores and outputs on your inputs, and return the new coverage.

        The model runs once, in evaluation mode; its weights, buffers and mode are the same afterwards. Use it for
        modules that are "unchecked" since they could not be called alone.

        Args:
            model: the tracked model.
            inputs: arguments of its forward pass: a tensor, a tuple, or a dict of keyword arguments.

        Raises:
            InputError: another model, one that fails on the inputs, or products that differ from what it computes.
        """
        self._coverage = checked_coverage(unwrap_model(model), self._blocks, self._coverage, inputs)
        return self._coverage

    def __str__(self) -> str:
        return f"{self!r}\n{self._coverage}"

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the single matrices, in the model's order."""
        return tuple(self._matrices)

    @property
    def tracked(self) -> tuple[nn.Parameter, ...]:
        """The parameters that are read at each record, in the model's order."""
        return tuple(self._weights.trained.values())

    def __repr__(self) -> str:
        return (
            f"RankTracker({len(self.layers)} attention layers, {len(self.matrices)} matrices; "
            f"{len(self._steps)} records in {self._made} steps)"
        )

    def _trained(self) -> Mapping[str, Tensor]:
        return self._weights.trained

    def _record(self) -> None:
        last, weights = self._previous, self._weights
        products, single = (
            kind.measure(self._made, partial(weights.now, units), last and partial(weights.then, units, last))
            for kind, units in ((self._products, weights.layers), (self._single, weights.matrices))
        )
        self._products.records.append(products)
        self._single.records.append(single)
        if self._products.increments:
            self._previous = weights.copied(last)
        self._steps.append(self._made)
        lost: dict[str, list[str]] = {}
        for members, name_of in ((products.lost, self._layer_of), (single.lost, self.matrices.__getitem__)):
            for member, reason in members.items():
                lost.setdefault(reason, []).append(name_of(member))
        for reason, names in lost.items():
            self._warn(reason, [name for name in dict.fromkeys(names) if name not in self._warned])
        if self._file is not None:
            self._file.update(self._steps, lambda first: self._records_since(first).to_xarray())

    def _layer_of(self, member: int) -> str:
        """Return the name of the layer of a product, for messages."""
        return self._weights.layers[member // len(PRODUCTS)].label

    def _warn(self, reason: str, names: list[str]) -> None:
        """Warn of layers and matrices whose record is NaN, each once."""
        if not names:
            return
        self._warned.update(names)
        warnings.warn(
            f"{reason} Records of {first_few(names, 5)} are NaN from step {self._made} on, until they can be measured "
            "again; everything else is recorded.",
            stacklevel=4,
        )

    @property
    def records(self) -> RankRecords:
        """All records so far."""
        return self._records_since(0)

    def _records_since(self, first: int) -> RankRecords:
        """Return the records from this one on."""
        return RankRecords(
            steps=np.array(self._steps[first:], dtype=np.int64),
            products=_updates(self._products, self.layers, first),
            matrices=_updates(self._single, self.matrices, first),
        )

    def singular_vectors(self, name: str, product: str | None = None) -> SingularVectors:
        """Return the recorded singular vectors of the updates of one layer or matrix.

            tracker.singular_vectors("blocks.0.attn", "KQ").overlap()    # (records, records, heads)

        Args:
            name: a layer, or a single matrix.
            product: "KQ" or "VO" of a layer; None for a matrix.

        Raises:
            InputError: the tracker records no vectors, or none of this name.
        """
        names, kind = (self.matrices, self._single) if product is None else (self.layers, self._products)
        if recorder(self._recorders, Vectors) is None:
            raise InputError(
                "recorders must have Vectors to record singular vectors; got none. Pass "
                "RankTracker(model, recorders=[Vectors(4)])."
            )
        if name not in names:
            raise unknown("name", name, names)
        member = names.index(name) if product is None else len(PRODUCTS) * names.index(name) + product_index(product)
        found = {record.step: record.vectors[member] for record in kind.records if member in record.vectors}
        if not found:
            raise InputError(
                f"name must be of a matrix with a record of its vectors; got {name!r}, which has none yet."
            )
        return SingularVectors.of(list(found), list(found.values()))

    def stable_rank(self, product: str) -> Float[np.ndarray, "records layers heads"]:
        """Return the stable rank ||M||_F^2 / ||M||_2^2 of one product's update M; NaN where rounding hides it.

        Raises:
            InputError: `product` is neither "KQ" nor "VO".
        """
        return self.records.products.update.stable_rank[..., product_index(product)]

    def to_xarray(self) -> xr.Dataset:
        """Return the records with named dimensions; see `saddlescope.ranks.spectra_dataset`."""
        return self.records.to_xarray()

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the stable rank of the updates over the steps: thin lines are layers, bold ones the mean.

        Args:
            ax: Matplotlib axes to draw on; None: those of a new figure.

        Returns:
            The axes.
        """
        return self.records.plot(ax)

    def identity(self) -> str:
        """Return schedule, names and shapes, by which a checkpoint recognizes its run."""
        schedule = getattr(self._schedule, "__qualname__", None) or repr(self._schedule)
        shapes = [kind.initial.angles.shape + kind.initial.values.shape for kind in (self._products, self._single)]
        return repr((schedule, self.layers, self.matrices, shapes))

    def state_dict(self, *, folder: str | Path | None = None) -> dict[str, Any]:
        """Return all that a resumed run needs, as tensors and plain values: initial weights, steps made, records.

        For a sharded model all processes must call this. The state of the first has all initial weights and can be
        loaded in each; that of another process has the weights that it measures. Initial weights that are in a file
        (`OnDisk`, or a checkpoint `initial`) are not part of it.

        Args:
            folder: where to write initial weights that are in memory, once: the state then refers to the file by its
                digest, and states of later steps to the same file. None makes them part of the state, and so does a
                sharded model.

        Raises:
            InputError: the folder cannot be written to.
        """
        previous = {} if self._previous is None else dict(self._previous.tensors)
        return {
            "version": tracker_state.VERSION,
            "layers": list(self.layers),
            "matrices": list(self.matrices),
            "made": self._made,
            "stepped": list(self._stepped if self._watched is None else self._watched.stepped),
            "steps": torch.tensor(self._steps, dtype=torch.int64),
            **tracker_state.weights_state(self._initial, self._owners, folder),
            "rounded": self._products.rounded,
            "heads": self._products.state_dict(),
            "single": self._single.state_dict(),
            **tracker_state.records_state(self._products.records, self._single.records),
            "previous": self._owners.collect(previous),
        }

    def load_state_dict(self, state: dict[str, Any], *, folder: str | Path | None = None) -> None:
        """Restore `state_dict`: its initial weights replace those found when this tracker was built.

        Args:
            state: a state.
            folder: folder with the file of the initial weights, for a state that refers to one. None looks in that of
                `OnDisk`.

        Raises:
            InputError: the state is of a model with other attention blocks or matrices, of a tracker with other
                options, or in a format that this version does not read; or the file of its initial weights is missing.
        """
        tracked = {"heads": self._products, "single": self._single}
        with damage_refused(self):
            tracker_state.require_version(state)
            tracker_state.require_fit(
                state,
                layers=self.layers,
                matrices=self.matrices,
                kinds=tracked,
                increments=self._products.increments,
                weights=self._initial.names,
            )
            self._initial = tracker_state.restored_weights(state, self._initial, self._reference, folder)
            for name, kind in tracked.items():
                kind.load_state_dict(state[name], rounded=self._initial.rounded)
            self._made, self._stepped = int(state["made"]), tuple(state["stepped"])
            self._steps = state["steps"].tolist()
            self._products.records, self._single.records = tracker_state.restored_records(state)
            previous = {name: state["previous"][name].clone() for name in self._initial.names if state["previous"]}
            self._previous = HeldWeights(previous, rounded=False) if previous else None


def _updates(kind: TrackedMatrices, names: tuple[str, ...], first: int) -> Updates:
    """Return the records of the products, or of the single matrices, from the first one on."""
    records = kind.records[first:]
    increments = [record.increment for record in records if record.increment is not None]
    return Updates(
        names,
        kind.start,
        stack_records([record.update for record in records], kind.start),
        stack_records(increments, kind.start) if kind.increments else None,
    )

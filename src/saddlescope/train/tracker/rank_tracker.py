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
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.attention_blocks import AttentionBlock, attention_blocks, unrecognized_attention
from saddlescope.train.tracker.initial_weights import (
    HeldWeights,
    InitialWeights,
    InMemory,
    OnDisk,
    Reference,
    parameters_read,
    require_reference,
)
from saddlescope.train.tracker.layouts import LAYOUTS, AttentionLayout, HeadFactors
from saddlescope.train.tracker.matrix_selection import MatrixSelection, canonical_name, select_matrices
from saddlescope.train.tracker.records import PRODUCTS, RankRecords, Spectra, Updates, product_index, stack_records
from saddlescope.train.tracker.schedules import Geometric, Schedule
from saddlescope.train.tracker.shards import full_tensor, require_readable
from saddlescope.train.tracker.tracked_matrices import TrackedMatrices, Weights, as_tensors, check_options, from_tensors


class RankTracker:
    """Recorder of the spectra of the updates of W_K W_Q^T and W_V W_O^T of every attention head, and of matrices.

    Build it before training starts: updates are counted from the weights at that moment, which are copied to the host
    in their own type, each parameter once. For a model that was trained before, updates are those since then.

    Args:
        model: any model; `torch.compile` and DistributedDataParallel may wrap it.
        schedule: function from the number of optimiser steps to whether to measure. The default grows geometrically and
            costs a fraction of the run's time that falls with its length.
        layouts: possible layouts of the attention weights; see `saddlescope.train.tracker.layouts`.
        attention: track the attention heads. If matrices are selected and no layout matches the model's attention, a
            warning states that only the matrices are tracked.
        matrices: single matrices to track in addition: patterns such as "*.mlp.*" on the names of parameters or of
            their modules, or a function of name and parameter; see `saddlescope.train.tracker.matrix_selection`.
        top: number of singular values to record per spectrum; None records all. Norms and ranks use all of them.
        subspace: dimension of the leading singular subspaces of each head whose principal angles from record to record
            are recorded; 0 for none.
        initial: a saved checkpoint (a file or folder of safetensors, or of `torch.save`) to count updates from, for a
            model whose training has begun; None counts from the present weights. Each record reads it a layer at a
            time, unless `reference` keeps a copy.
        reference: place of the initial weights: `InMemory()`, in bfloat16 with `InMemory(torch.bfloat16)`, or
            `OnDisk(folder)`. None keeps them in memory, or in the checkpoint `initial`.
        increments: record the updates since the previous record, too. It keeps a second copy of the tracked weights in
            memory, and in the tracker's state.
        orders: split each update of a product into its first and second order in the updates of its factors, and record
            their norms and stable ranks; see `saddlescope.measure.product_update_orders`.
        device: device of the arithmetic, such as "cpu"; None is that of the weights (the host for one without float64).

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
        top: int | None = None,
        subspace: int = 0,
        initial: str | Path | None = None,
        reference: Reference | None = None,
        increments: bool = False,
        orders: bool = False,
        device: str | torch.device | None = None,
    ) -> None:
        if not callable(schedule):
            raise InputError(
                f"schedule must be a function from the number of steps to True or False; got {schedule!r}. Pass "
                "Geometric(1.5), Every(100) or AtSteps(1, 10, 100)."
            )
        check_options(attention=attention, matrices=matrices, top=top, subspace=subspace)
        require_reference(reference)
        require_readable(model)
        self._blocks = attention_blocks(model, layouts, required=matrices is None) if attention else ()
        self._matrices = {} if matrices is None else select_matrices(model, matrices)
        if attention and not self._blocks and (unknown := unrecognized_attention(model)):
            warnings.warn(
                f"Only the selected matrices are tracked: {unknown[0]} has its weights under unknown names. Name them "
                "by layouts=, or pass attention=False.",
                stacklevel=2,
            )
        self._schedule = schedule
        self._hook: Any = None
        self._made = 0
        self._steps: list[int] = []
        self._records: list[tuple[Spectra, Spectra]] = []
        self._steps_taken: list[tuple[Spectra, Spectra]] = []  # increments, one for each record
        self._warned: set[str] = set()
        self._read = [_names_read(block) for block in self._blocks]
        self._reference = reference
        self._initial = self._keep(model, initial, reference)
        self._products, self._single = self._start(
            top, subspace, orders, None if device is None else torch.device(device)
        )
        self._increments = increments
        self._previous: HeldWeights | None = None  # at the last record, for increments

    def _keep(self, model: nn.Module, initial: str | Path | None, reference: Reference | None) -> InitialWeights:
        """Store the initial weights, or find them in a checkpoint."""
        parameters: dict[str, nn.Parameter] = dict(self._matrices)
        names = {id(parameter): name for name, parameter in parameters.items()}
        for number, block in enumerate(self._blocks):
            own = dict(block.module.named_parameters())
            for local, name in self._read[number].items():
                first = names.setdefault(id(own[local]), name)  # each shared parameter once
                self._read[number][local] = first
                parameters[first] = own[local]
        if initial is None:
            return (reference or InMemory()).keep(
                list(parameters), lambda name: full_tensor(parameters[name]), rounded=False
            )
        from saddlescope.train.tracker.reference_weights import weights_in_checkpoint  # imports the checkpoint readers

        stored = weights_in_checkpoint(initial, model, parameters)
        if reference is None:
            return stored
        return reference.keep(list(parameters), lambda name: stored.of([name])[name], rounded=stored.rounded)

    def _start(
        self, top: int | None, subspace: int, orders: bool, device: torch.device | None
    ) -> tuple[TrackedMatrices, TrackedMatrices]:
        """Measure the initial weights."""
        heads = max((block.heads for block in self._blocks), default=0)
        common: dict[str, Any] = {"top": top, "rounded": self._initial.rounded, "device": device}
        products = TrackedMatrices(
            self._initial_factors, len(self._blocks), heads=heads, subspace=subspace, orders=orders, **common
        )
        single = TrackedMatrices(self._initial_matrix, len(self._matrices), heads=None, subspace=0, **common)
        for name in (*map(self._layer_of, products.unreadable), *map(self.matrices.__getitem__, single.unreadable)):
            raise InputError(f"initial weights must be finite; got NaN or infinity in {name}.")
        return products, single

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the attention modules, in the model's order."""
        return tuple(block.name for block in self._blocks)

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the single matrices, in the model's order."""
        return tuple(self._matrices)

    @property
    def steps(self) -> tuple[int, ...]:
        """Number of optimiser steps at each record, without building the records."""
        return tuple(self._steps)

    def __repr__(self) -> str:
        return (
            f"RankTracker({len(self.layers)} attention layers, {len(self.matrices)} matrices; "
            f"{len(self._steps)} records in {self._made} steps)"
        )

    def step(self) -> None:
        """Count a step of the optimiser, and measure if the schedule says so."""
        self._made += 1
        if self._schedule(self._made):
            self.measure()

    def watch(self, optimizer: torch.optim.Optimizer) -> "RankTracker":
        """Call `step` after every `optimizer.step()` until `close` or the end of a `with` block.

        Raises:
            InputError: the optimiser has made steps already, so the present weights are not the initial ones.
        """
        if self._hook is not None:
            raise InputError("The tracker must watch one optimizer at a time; close it first.")
        if self._made == 0 and optimizer.state:
            raise InputError(
                f"optimizer must not have made a step yet; got state for {len(optimizer.state)} parameters. Build the "
                "tracker before training starts, load its own state, or call tracker.step() to count updates from here."
            )
        self._hook = optimizer.register_step_post_hook(lambda *_: self.step())
        return self

    def close(self) -> None:
        """Stop watching; the records remain."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def __enter__(self) -> "RankTracker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @torch.no_grad()
    def measure(self) -> None:
        """Record the present spectra, unless the present step is recorded already.

        Weights that are not finite have no spectra: their record is NaN, and a warning names each layer once.
        """
        if self._steps and self._steps[-1] == self._made:
            return
        last = self._previous
        products = self._products.measure(self._factors, last and partial(self._stored_factors, last))
        single = self._single.measure(self._matrix, last and partial(self._stored_matrix, last))
        self._records.append((_by_layer(products.update), single.update))
        if self._increments:  # the first is the update itself
            self._steps_taken.append(
                (_by_layer(products.increment or products.update), single.increment or single.update)
            )
            self._remember()
        self._steps.append(self._made)
        lost: dict[str, list[str]] = {}
        for members, name_of in ((products.lost, self._layer_of), (single.lost, self.matrices.__getitem__)):
            for member, reason in members.items():
                lost.setdefault(reason, []).append(name_of(member))
        for reason, names in lost.items():
            self._warn(reason, [name for name in dict.fromkeys(names) if name not in self._warned])

    def _warn(self, reason: str, names: list[str]) -> None:
        """Warn of layers and matrices whose record is NaN, each once."""
        if not names:
            return
        self._warned.update(names)
        several = f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
        warnings.warn(
            f"{reason} Records of {several} are NaN from step {self._made} on, until they can be measured again; "
            "everything else is recorded.",
            stacklevel=3,
        )

    @property
    def records(self) -> RankRecords:
        """All records so far."""
        products, single = _by_layer(self._products.initial), self._single.initial
        return RankRecords(
            steps=np.array(self._steps, dtype=np.int64),
            products=self._updates(0, self.layers, products),
            matrices=self._updates(1, self.matrices, single),
        )

    def _updates(self, kind: int, names: tuple[str, ...], initial: Spectra) -> Updates:
        """Return the records of the products (0) or of the single matrices (1)."""
        update = stack_records([record[kind] for record in self._records], initial)
        increments = stack_records([one[kind] for one in self._steps_taken], initial) if self._increments else None
        return Updates(names, initial, update, increments)

    def _remember(self) -> None:
        """Copy the present weights, from which the next increment counts."""
        present = dict[str, nn.Parameter](self._matrices)
        for names, block in zip(self._read, self._blocks, strict=True):
            own = dict(block.module.named_parameters())
            present |= {full: own[local] for local, full in names.items()}
        if self._previous is None:
            kept = InMemory().keep(self._initial.names, lambda name: full_tensor(present[name]), rounded=False)
            assert isinstance(kept, HeldWeights)
            self._previous = kept
            return
        for name, tensor in self._previous.tensors.items():
            tensor.copy_(full_tensor(present[name]))

    def stable_rank(self, product: str) -> Float[np.ndarray, "records layers heads"]:
        """Return the stable rank ||M||_F^2 / ||M||_2^2 of one product's update M; NaN where rounding hides it.

        Raises:
            InputError: `product` is neither "KQ" nor "VO".
        """
        return self.records.products.update.stable_rank[..., product_index(product)]

    def to_xarray(self) -> xr.Dataset:
        """Return the records with named dimensions; see `saddlescope.train.spectra_dataset`."""
        return self.records.to_xarray()

    def identity(self) -> str:
        """Return schedule, names and shapes, by which a checkpoint recognizes its run."""
        schedule = getattr(self._schedule, "__qualname__", None) or repr(self._schedule)
        shapes = [kind.initial.angles.shape + kind.initial.values.shape for kind in (self._products, self._single)]
        return repr((schedule, self.layers, self.matrices, shapes))

    def state_dict(self, *, folder: str | Path | None = None) -> dict[str, Any]:
        """Return all that a resumed run needs, as tensors and plain values: initial weights, steps made, records.

        Initial weights that are in a file (`OnDisk`, or a checkpoint `initial`) are not part of it.

        Args:
            folder: where to write initial weights that are in memory, once: the state then refers to the file by its
                digest, and states of later steps to the same file. None makes them part of the state.

        Raises:
            InputError: the folder cannot be written to.
        """
        records, held, digest = self.records, self._initial, None
        if folder is not None or not isinstance(held, HeldWeights):
            digest = held.digest()
        if folder is not None and isinstance(held, HeldWeights):
            from saddlescope.train.tracker.reference_weights import StoredWeights  # imports the checkpoint readers

            StoredWeights.write(held.names, held.tensors.__getitem__, folder, rounded=held.rounded)
        return {
            "layers": list(self.layers),
            "matrices": list(self.matrices),
            "made": self._made,
            "steps": torch.from_numpy(records.steps),
            "weights": held.of(held.names) if digest is None else {},
            "digest": digest,
            "rounded": held.rounded,
            "heads": self._products.state_dict(),
            "single": self._single.state_dict(),
            "records": [[as_tensors(one) for one in record] for record in self._records],
            "increments": [[as_tensors(one) for one in record] for record in self._steps_taken],
            "previous": {} if self._previous is None else dict(self._previous.tensors),
        }

    def load_state_dict(self, state: dict[str, Any], *, folder: str | Path | None = None) -> None:
        """Restore `state_dict`: its initial weights replace those found when this tracker was built.

        Args:
            state: a state.
            folder: folder with the file of the initial weights, for a state that refers to one. None looks in that of
                `OnDisk`.

        Raises:
            InputError: the state is of a model with other attention blocks or matrices, or of another tracker; or the
                file of its initial weights is missing.
        """
        tracked = {"heads": self._products, "single": self._single}
        theirs, ours = (*state["layers"], *state["matrices"]), (*self.layers, *self.matrices)
        if (
            theirs != ours
            or not all(kind.fits(state[name]) for name, kind in tracked.items())
            or (len(state["steps"]) > 0 and self._increments != bool(state["increments"]))
            or (state["digest"] is None and set(state["weights"]) != set(self._initial.names))
        ):
            raise InputError(
                f"state must be of a tracker of the same model; got one of {', '.join(theirs)}, while this one has "
                f"{', '.join(ours)}, or their shapes or numbers of values differ."
            )
        self._initial = self._restored_weights(state, folder)
        for name, kind in tracked.items():
            kind.load_state_dict(state[name], rounded=self._initial.rounded)
        self._made = state["made"]
        self._steps = state["steps"].tolist()
        self._records = [(from_tensors(heads), from_tensors(single)) for heads, single in state["records"]]
        self._steps_taken = [(from_tensors(heads), from_tensors(single)) for heads, single in state["increments"]]
        previous = {name: tensor.clone() for name, tensor in state["previous"].items()}
        self._previous = HeldWeights(previous, rounded=False) if previous else None

    def _restored_weights(self, state: dict[str, Any], folder: str | Path | None) -> InitialWeights:
        """Return the initial weights of a state: its own, those that this tracker has, or those in a file."""
        digest, rounded, names = state["digest"], state["rounded"], self._initial.names
        if digest is None:
            return HeldWeights({name: tensor.clone() for name, tensor in state["weights"].items()}, rounded=rounded)
        if self._initial.digest() == digest and self._initial.rounded == rounded:
            return self._initial
        from saddlescope.train.tracker.reference_weights import StoredWeights, file_of, read_from_folder

        own = self._reference.folder if isinstance(self._reference, OnDisk) else None
        folders = [place for place in (folder, own) if place is not None]
        for place in folders:
            if (stored := read_from_folder(place, digest, names, rounded=rounded)) is not None:
                if own is None:
                    return HeldWeights({name: one.clone() for name, one in stored.of(names).items()}, rounded=rounded)
                if isinstance(self._initial, StoredWeights) and self._initial.created:
                    self._initial.path.unlink()  # the weights of the moment of resumption, which nobody needs
                return stored
        raise InputError(
            f"The initial weights of the state must be in {file_of('', digest)}; got no such file in "
            f"{' or '.join(map(str, folders)) or 'any folder: pass folder='}. Copy it there, or pass the checkpoint "
            "that updates were counted from as initial= again."
        )

    def _layer_of(self, member: int) -> str:
        """Return the name of the layer of a product, for messages."""
        return self._blocks[member // len(PRODUCTS)].label

    def _factors(self, layer: int) -> list[Weights]:
        """Return the left and right factors of both products of a layer, in the order KQ, VO."""
        return _products(self._blocks[layer].factors())

    def _initial_factors(self, layer: int) -> list[Weights]:
        """Return the factors of both products of a layer at the start."""
        return self._stored_factors(self._initial, layer)

    def _stored_factors(self, weights: InitialWeights, layer: int) -> list[Weights]:
        """Return the factors of both products of a layer from stored weights, on the device of the layer."""
        names, block = self._read[layer], self._blocks[layer]
        stored, present = weights.of(names.values()), dict(block.module.named_parameters())
        return _products(block.factors({own: stored[name].to(present[own].device) for own, name in names.items()}))

    def _matrix(self, number: int) -> list[Weights]:
        """Return a single matrix."""
        return [(full_tensor(self._matrices[self.matrices[number]]),)]

    def _initial_matrix(self, number: int) -> list[Weights]:
        """Return a single matrix at the start."""
        return self._stored_matrix(self._initial, number)

    def _stored_matrix(self, weights: InitialWeights, number: int) -> list[Weights]:
        """Return a single matrix from stored weights, on the device of the matrix."""
        name = self.matrices[number]
        return [(weights.of([name])[name].to(self._matrices[name].device),)]


def _products(factors: HeadFactors) -> list[Weights]:
    return [factors.product(index) for index in range(len(PRODUCTS))]


def _names_read(block: AttentionBlock) -> dict[str, str]:
    """Return the names of the parameters that a layer's factors depend on: in its module, and in the model."""
    prefix = f"{block.name}." if block.name else ""
    return {name: canonical_name(f"{prefix}{name}") for name in parameters_read(block.module, block.factors)}


def _by_layer(spectra: Spectra) -> Spectra:
    """Reshape spectra from members (layer and product, head) to layer, head, product."""

    def reordered(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array.reshape(len(array) // len(PRODUCTS), len(PRODUCTS), *array.shape[1:]), 1, 2)

    return Spectra(**{name: reordered(array) for name, array in spectra.arrays().items()})

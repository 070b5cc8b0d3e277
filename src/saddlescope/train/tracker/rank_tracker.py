"""The tracker: spectra of what attention has learnt, head by head, while anybody's model trains.

    tracker = RankTracker(model).watch(optimizer)
    ...                                     # the training loop, untouched
    tracker.stable_rank("KQ")               # (records, layers, heads)

    KQ      W_K W_Q^T - W_K(0) W_Q(0)^T, the update of the product that decides where a head looks
    VO      W_V W_O^T - W_V(0) W_O(0)^T, the update of the product that decides what it moves
    (0)     the weights when the tracker was made, or those of a saved checkpoint

Single matrices, such as those of the MLPs, are followed by name. The products are never formed; see
`saddlescope.measure.product_update_spectrum`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.attention_blocks import attention_blocks, unread_attention
from saddlescope.train.tracker.layouts import LAYOUTS, AttentionLayout
from saddlescope.train.tracker.records import PRODUCTS, RankRecords, Spectra, Updates, product_index, stacked
from saddlescope.train.tracker.schedules import Geometric, Schedule
from saddlescope.train.tracker.shards import refuse_shards, whole
from saddlescope.train.tracker.tracked_matrices import Tracked, Weights, as_tensors, from_tensors
from saddlescope.train.tracker.weight_matrices import Choice, chosen_matrices

if TYPE_CHECKING:
    import xarray as xr


class RankTracker:
    """Records the spectra of the updates of W_K W_Q^T and W_V W_O^T of every attention head, and of chosen matrices.

    Make it before training starts: updates are counted from the weights the model has at that moment, which are copied
    (to the host, in float32 or better). For a model that was trained before, what is measured is the update since.

    Args:
        model: any model; `torch.compile` and DistributedDataParallel may be around it.
        schedule: after which optimiser steps to measure. The default grows geometrically and costs a fraction of the
            run's time that falls with its length.
        layouts: how the model may keep its attention weights; see `saddlescope.train.tracker.layouts`.
        attention: whether to follow the attention heads. Where matrices are chosen and the model has attention that no
            layout knows, a warning says that the matrices alone are followed.
        matrices: single matrices to follow besides: patterns such as "*.mlp.*" on the names of parameters or of their
            modules, or a function of name and parameter; see `saddlescope.train.tracker.weight_matrices`.
        top: how many singular values to keep of each spectrum; None keeps all. Norms and ranks are of all of them.
        subspace: dimension of the leading singular subspaces of each head whose principal angles from record to record
            are wanted; 0 for none.
        initial: a saved checkpoint (a file or folder of safetensors, or of `torch.save`) to count updates from, for a
            model that has been trained already; None counts from the present weights.

    Raises:
        InputError: no attention found and no matrices asked for (the message says which names were looked for), a
            pattern that matches nothing, weights that are not finite, or an initial checkpoint of another model.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        schedule: Schedule = Geometric(),  # noqa: B008  (frozen)
        layouts: Sequence[AttentionLayout] = LAYOUTS,
        attention: bool = True,
        matrices: Choice | None = None,
        top: int | None = None,
        subspace: int = 0,
        initial: str | Path | None = None,
    ) -> None:
        if not callable(schedule):
            raise InputError(
                f"schedule must be a function from the number of steps to yes or no; got {schedule!r}. Take "
                "Geometric(1.5), Every(100) or AtSteps(1, 10, 100)."
            )
        if top is not None and top < 1:
            raise InputError(f"top must be at least 1, or None for all singular values; got {top!r}.")
        if subspace < 0:
            raise InputError(f"subspace must be at least 1, or 0 to follow none; got {subspace!r}.")
        if not attention and matrices is None:
            raise InputError("attention must be True where no matrices are chosen; got False, which tracks nothing.")
        refuse_shards(model)
        self._blocks = attention_blocks(model, layouts, required=matrices is None) if attention else ()
        self._matrices = {} if matrices is None else chosen_matrices(model, matrices)
        if attention and not self._blocks and (unread := unread_attention(model)):
            warnings.warn(
                f"The chosen matrices alone are tracked: {unread[0]} keeps its weights under unknown names. Name them "
                "by layouts=, or give attention=False.",
                stacklevel=2,
            )
        self._schedule = schedule
        self._hook: Any = None
        self._made = 0
        self._steps: list[int] = []
        self._records: list[tuple[Spectra, Spectra]] = []
        self._of_heads, self._of_matrices = self._start(model, top, subspace, initial)

    def _start(
        self, model: nn.Module, top: int | None, subspace: int, initial: str | Path | None
    ) -> tuple[Tracked, Tracked]:
        """Copies the initial weights, and measures them."""
        if initial is None:
            factors, matrix = self._factors, self._matrix
        else:
            from saddlescope.train.tracker.reference_weights import (
                ReferenceWeights,  # reads checkpoints, which few runs need
            )

            stored = ReferenceWeights(initial, model)

            def factors(member: int) -> Weights:
                return self._factors(member, stored.of(self._blocks[member // len(PRODUCTS)].matrices))

            def matrix(member: int) -> Weights:
                return tuple(stored.of({"": self._matrices[self.matrices[member]]}).values())

        def finite(weights: Callable[[int], Weights], label: Callable[[int], str], member: int) -> Weights:
            parts = weights(member)
            if not all(bool(torch.isfinite(part).all()) for part in parts):
                raise InputError(f"initial weights must be finite; got NaN or infinity in {label(member)}.")
            return parts

        heads = max((block.heads for block in self._blocks), default=0)
        count, single = len(PRODUCTS) * len(self._blocks), len(self._matrices)
        common: dict[str, Any] = {"top": top, "rounded": initial is not None}
        return (
            Tracked(partial(finite, factors, self._layer_of), count, heads=heads, subspace=subspace, **common),
            Tracked(partial(finite, matrix, self.matrices.__getitem__), single, heads=None, subspace=0, **common),
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the attention modules, in the model's order."""
        return tuple(block.name for block in self._blocks)

    @property
    def matrices(self) -> tuple[str, ...]:
        """The names of the single matrices, in the model's order."""
        return tuple(self._matrices)

    @property
    def steps(self) -> tuple[int, ...]:
        """Optimiser steps made at each record; where the records themselves are not wanted."""
        return tuple(self._steps)

    def __repr__(self) -> str:
        return (
            f"RankTracker({len(self.layers)} attention layers, {len(self.matrices)} matrices; "
            f"{len(self._steps)} records in {self._made} steps)"
        )

    def step(self) -> None:
        """Says that the optimiser has made a step; measures when the schedule says so."""
        self._made += 1
        if self._schedule(self._made):
            self.measure()

    def watch(self, optimizer: torch.optim.Optimizer) -> "RankTracker":
        """Calls `step` after every `optimizer.step()` from now on, until `close`, or the end of a `with` block.

        Raises:
            InputError: the optimiser has made steps already, so that the present weights are not the initial ones.
        """
        if self._hook is not None:
            raise InputError("The tracker must watch one optimizer at a time; close it first.")
        if self._made == 0 and optimizer.state:
            raise InputError(
                f"optimizer must not have made a step yet; got state for {len(optimizer.state)} parameters. Make the "
                "tracker before training starts, load its own state, or call tracker.step() to count updates from here."
            )
        self._hook = optimizer.register_step_post_hook(lambda *_: self.step())
        return self

    def close(self) -> None:
        """Stops watching; the records stay."""
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
        """Records the present spectra, unless the present step is recorded already.

        Raises:
            InputError: a weight is not finite. All other layers and matrices are recorded before.
        """
        if self._steps and self._steps[-1] == self._made:
            return
        of_heads, broken_products = self._of_heads.measure(self._factors)
        of_matrices, broken_matrices = self._of_matrices.measure(self._matrix)
        self._records.append((_by_layer(of_heads), of_matrices))
        self._steps.append(self._made)
        broken = [*map(self._layer_of, broken_products), *(self.matrices[member] for member in broken_matrices)]
        if broken := list(dict.fromkeys(broken)):
            more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
            raise InputError(
                f"weights must be finite; got NaN or infinity in {', '.join(broken[:5])}{more} after {self._made} "
                "steps. Lower the learning rate. Everything else is recorded."
            )

    @property
    def records(self) -> RankRecords:
        """Everything recorded so far."""
        of_heads, of_matrices = _by_layer(self._of_heads.initial), self._of_matrices.initial
        return RankRecords(
            steps=np.array(self._steps, dtype=np.int64),
            products=Updates(self.layers, of_heads, stacked([heads for heads, _ in self._records], of_heads)),
            matrices=Updates(self.matrices, of_matrices, stacked([one for _, one in self._records], of_matrices)),
        )

    def stable_rank(self, product: str) -> Float[np.ndarray, "records layers heads"]:
        """The stable rank ||M||_F^2 / ||M||_2^2 of one product's update M; NaN where rounding hides it.

        Raises:
            InputError: `product` is neither "KQ" nor "VO".
        """
        return self.records.products.update.stable_rank[..., product_index(product)]

    def to_xarray(self) -> "xr.Dataset":
        """The records with named dimensions; see `saddlescope.train.spectra_dataset`."""
        return self.records.to_xarray()

    def identity(self) -> str:
        """What it tracks and when, for a checkpoint to know its run by."""
        schedule = getattr(self._schedule, "__qualname__", None) or repr(self._schedule)
        shapes = [kind.initial.angles.shape + kind.initial.values.shape for kind in (self._of_heads, self._of_matrices)]
        return repr((schedule, self.layers, self.matrices, shapes))

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, as tensors and plain values: initial weights, steps made, records."""
        records = self.records
        return {
            "layers": list(self.layers),
            "matrices": list(self.matrices),
            "made": self._made,
            "steps": torch.from_numpy(records.steps),
            "heads": self._of_heads.state_dict(),
            "single": self._of_matrices.state_dict(),
            "records": [[as_tensors(one) for one in record] for record in self._records],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from `state_dict`: its initial weights replace those found when this tracker was made.

        Raises:
            InputError: the state is of a model with other attention blocks or matrices, or of another tracker.
        """
        tracked = {"heads": self._of_heads, "single": self._of_matrices}
        fits = all(kind.fits(state[name]) for name, kind in tracked.items())
        theirs, ours = (*state["layers"], *state["matrices"]), (*self.layers, *self.matrices)
        if theirs != ours or not fits:
            raise InputError(
                f"state must be of a tracker of the same model; got one of {', '.join(theirs)}, while this one has "
                f"{', '.join(ours)}, or their shapes or numbers of values differ."
            )
        for name, kind in tracked.items():
            kind.load_state_dict(state[name])
        self._made = state["made"]
        self._steps = state["steps"].tolist()
        self._records = [(from_tensors(heads), from_tensors(single)) for heads, single in state["records"]]

    def _layer_of(self, member: int) -> str:
        """How messages call the layer of a product."""
        return self._blocks[member // len(PRODUCTS)].label

    def _factors(self, member: int, weights: Mapping[str, Tensor] | None = None) -> Weights:
        """The left and right factors of a product of a layer, members in the order KQ, VO of the first layer, ..."""
        layer, product = divmod(member, len(PRODUCTS))
        factors = self._blocks[layer].factors(weights)
        return (factors.key, factors.query) if product == 0 else (factors.value, factors.output)

    def _matrix(self, member: int) -> Weights:
        """A single matrix."""
        return (whole(self._matrices[self.matrices[member]]),)


def _by_layer(spectra: Spectra) -> Spectra:
    """From members (layer and product, head) to layer, head, product."""

    def turned(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array.reshape(len(array) // len(PRODUCTS), len(PRODUCTS), *array.shape[1:]), 1, 2)

    return Spectra(**{name: turned(array) for name, array in spectra.arrays().items()})

"""The tracker: spectra of what attention has learnt, head by head, while anybody's model trains.

    tracker = RankTracker(model).watch(optimizer)
    ...                                     # the training loop, untouched
    tracker.stable_rank("KQ")               # (records, layers, heads)

    KQ      W_K W_Q^T - W_K(0) W_Q(0)^T, the update of the product that decides where a head looks
    VO      W_V W_O^T - W_V(0) W_O(0)^T, the update of the product that decides what it moves
    (0)     the weights when the tracker was made

Measuring reads the weights and nothing else: no random numbers, no gradients, no change of mode, no in-place operation.
The products are never formed; see `saddlescope.measure.product_update_spectrum`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from saddlescope.errors import InputError, unknown
from saddlescope.measure import product_spectrum, product_update_spectrum, stable_rank
from saddlescope.train.layouts import LAYOUTS, AttentionBlock, Layout, attention_blocks
from saddlescope.train.schedules import Geometric, Schedule

if TYPE_CHECKING:
    import xarray as xr

PRODUCTS = ("KQ", "VO")


@dataclass(frozen=True, eq=False)
class RankRecords:
    """Spectra of the updates of both products, for every record, layer and head.

    Layers with fewer heads than others have NaN in their place; spectra with fewer values end in zeros.

    Attributes:
        layers: the names of the attention modules in the model.
        steps: optimiser steps made at each record.
        update: singular values of the updates, descending; products in the order KQ, VO.
        noise_floor: the size below which a singular value of an update is rounding.
        initial: singular values of the products W_K(0) W_Q(0)^T and W_V(0) W_O(0)^T themselves.
    """

    layers: tuple[str, ...]
    steps: Int64[np.ndarray, " records"]
    update: Float[np.ndarray, "records layers heads products values"]
    noise_floor: Float[np.ndarray, "records layers heads products"]
    initial: Float[np.ndarray, "layers heads products values"]

    def spectra(self, product: str) -> Float[np.ndarray, "records layers heads values"]:
        """The singular values of one product's update.

        Raises:
            InputError: `product` is neither "KQ" nor "VO".
        """
        return self.update[..., _index(product), :]


def _index(product: str) -> int:
    if product not in PRODUCTS:
        raise unknown("product", product, PRODUCTS)
    return PRODUCTS.index(product)


@dataclass(frozen=True, eq=False)
class _Group:
    """Products whose factors have equal shapes, over all layers: measured in one call."""

    members: tuple[tuple[int, int], ...]  # (layer, product)
    left0: Float[Tensor, "members heads left_inputs width"]
    right0: Float[Tensor, "members heads right_inputs width"]

    @property
    def values(self) -> int:
        """How many singular values an update can have: its rank is at most twice that of a product."""
        return min(self.left0.shape[-2], self.right0.shape[-2], 2 * self.left0.shape[-1])


def _stable_ranks(values: np.ndarray) -> np.ndarray:
    """The stable rank of each spectrum; NaN where there is no head."""
    absent = np.isnan(values[..., 0])
    return np.where(absent, np.nan, stable_rank(np.where(absent[..., None], 0.0, values)))


def _copy(parts: list[Tensor]) -> Tensor:
    """The parts in one tensor of their own: aliases of the weights would follow them, and every update would be 0.

    In float32 or better: half precision would round the initial weights again whenever they are saved and loaded.
    """
    stacked = torch.stack(parts)
    return stacked.to(torch.promote_types(stacked.dtype, torch.float32))


class RankTracker:
    """Records the spectra of the updates of W_K W_Q^T and W_V W_O^T of every attention head.

    Make it before training starts: updates are counted from the weights the model has at that moment, which are copied
    (to the host, in float32 or better). For a model that was trained before, what is measured is the update since.

    Args:
        model: any model with attention that one of the `layouts` knows.
        schedule: after which optimiser steps to measure. The default grows geometrically and costs a fraction of the
            run's time that falls with its length.
        layouts: how the model may keep its attention weights; see `saddlescope.train.layouts`.

    Raises:
        InputError: no attention found (the message says which names were looked for), or weights that are not finite.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        schedule: Schedule = Geometric(),  # noqa: B008  (frozen)
        layouts: Sequence[Layout] = LAYOUTS,
    ) -> None:
        self._blocks: tuple[AttentionBlock, ...] = attention_blocks(model, tuple(layouts))
        self._schedule = schedule
        self._hook: Any = None
        self._made = 0
        self._steps: list[int] = []
        self._updates: list[tuple[np.ndarray, np.ndarray]] = []  # values, noise floor
        self._groups = self._initial_groups()
        spectra = [product_spectrum(group.left0, group.right0).values for group in self._groups]
        self._values = max(group.values for group in self._groups)
        self._initial = self._assemble(spectra, self._values)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the attention modules, in the model's order."""
        return tuple(block.name for block in self._blocks)

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
            InputError: a weight is not finite.
        """
        if self._steps and self._steps[-1] == self._made:
            return
        sides = self._sides()
        values, floors = [], []
        for group in self._groups:
            left = torch.stack([sides[member][0] for member in group.members])
            right = torch.stack([sides[member][1] for member in group.members])
            spectrum = product_update_spectrum(left, right, group.left0, group.right0)
            values.append(spectrum.values)
            floors.append(spectrum.noise_floor[..., None])
        self._updates.append((self._assemble(values, self._values), self._assemble(floors, 1)[..., 0]))
        self._steps.append(self._made)

    @property
    def records(self) -> RankRecords:
        """Everything recorded so far."""
        values = [values for values, _ in self._updates]
        floors = [floor for _, floor in self._updates]
        none = np.empty((0, *self._initial.shape), self._initial.dtype)
        return RankRecords(
            layers=self.layers,
            steps=np.array(self._steps, dtype=np.int64),
            update=np.stack(values) if values else none,
            noise_floor=np.stack(floors) if floors else none[..., 0],
            initial=self._initial,
        )

    def stable_rank(self, product: str) -> Float[np.ndarray, "records layers heads"]:
        """The stable rank ||M||_F^2 / ||M||_2^2 of one product's update M; 0 where there is no update.

        Raises:
            InputError: `product` is neither "KQ" nor "VO".
        """
        return _stable_ranks(self.records.spectra(product))

    def to_xarray(self) -> "xr.Dataset":
        """The records with named dimensions: step, layer, head, product and index (of the singular value, from 0)."""
        import xarray as xr

        records = self.records
        labels = ("step", "layer", "head", "product")
        dataset = xr.Dataset(
            {
                "update_spectrum": ((*labels, "index"), records.update),
                "noise_floor": (labels, records.noise_floor),
                "stable_rank": (labels, _stable_ranks(records.update)),
                "initial_spectrum": ((*labels[1:], "index"), records.initial),
            },
            coords={"step": records.steps, "layer": list(records.layers), "product": list(PRODUCTS)},
        )
        dataset["step"].attrs["long_name"] = "optimiser steps"
        dataset["update_spectrum"].attrs["long_name"] = "singular values of the update of the product"
        dataset["noise_floor"].attrs["long_name"] = "size below which a singular value is rounding"
        dataset["stable_rank"].attrs["long_name"] = "stable rank of the update of the product"
        dataset["initial_spectrum"].attrs["long_name"] = "singular values of the product at the start"
        return dataset

    def identity(self) -> str:
        """What it tracks and when, for a checkpoint to know its run by."""
        schedule = getattr(self._schedule, "__qualname__", None) or repr(self._schedule)
        return repr((schedule, self.layers, self._initial.shape))

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed run needs, as tensors and plain values: initial weights, steps made, records."""
        records = self.records
        return {
            "layers": list(self.layers),
            "made": self._made,
            "left0": [group.left0 for group in self._groups],
            "right0": [group.right0 for group in self._groups],
            "initial": torch.from_numpy(self._initial),
            "steps": torch.from_numpy(records.steps),
            "update": torch.from_numpy(records.update),
            "noise_floor": torch.from_numpy(records.noise_floor),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from `state_dict`: its initial weights replace those found when this tracker was made.

        Raises:
            InputError: the state is of a model with other attention blocks.
        """
        groups = self._groups
        shapes = [(group.left0.shape, group.right0.shape) for group in groups]
        theirs = [(left.shape, right.shape) for left, right in zip(state["left0"], state["right0"], strict=True)]
        if tuple(state["layers"]) != self.layers or theirs != shapes:
            raise InputError(
                f"state must be of a tracker of the same model; got one of the layers {', '.join(state['layers'])}, "
                f"while this one has {', '.join(self.layers)}, or their shapes differ."
            )
        self._groups = tuple(
            _Group(group.members, left.clone(), right.clone())
            for group, left, right in zip(groups, state["left0"], state["right0"], strict=True)
        )
        self._made = state["made"]
        self._initial = state["initial"].numpy().copy()
        self._steps = state["steps"].tolist()
        pairs = zip(state["update"].numpy().copy(), state["noise_floor"].numpy().copy(), strict=True)
        self._updates = list(pairs)

    def _sides(self) -> dict[tuple[int, int], tuple[Tensor, Tensor]]:
        """The present left and right factors of each (layer, product), on the host, in the type they are stored in."""
        sides = {}
        for layer, block in enumerate(self._blocks):
            factors = block.factors()
            for part in factors:
                if not torch.isfinite(part).all():
                    raise InputError(
                        f"weights must be finite; got NaN or infinity in {block.name or type(block.module).__name__} "
                        f"after {self._made} steps. Lower the learning rate."
                    )
            key, query, value, output = (part.to("cpu") for part in factors)
            sides[layer, 0], sides[layer, 1] = (key, query), (value, output)
        return sides

    def _initial_groups(self) -> tuple[_Group, ...]:
        sides = self._sides()
        members: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for member, (left, right) in sides.items():
            members.setdefault((left.shape, right.shape, left.dtype), []).append(member)
        return tuple(
            _Group(tuple(group), _copy([sides[m][0] for m in group]), _copy([sides[m][1] for m in group]))
            for group in members.values()
        )

    def _assemble(self, parts: Sequence[Tensor], values: int) -> np.ndarray:
        """Arrays of each group, (members, heads, up to `values`), as one: (layers, heads, products, values)."""
        arrays = [np.asarray(part) for part in parts]
        heads = max(array.shape[1] for array in arrays)
        whole = np.full((len(self._blocks), heads, len(PRODUCTS), values), np.nan, np.result_type(*arrays))
        for group, array in zip(self._groups, arrays, strict=True):
            for (layer, product), member in zip(group.members, array, strict=True):
                whole[layer, : member.shape[0], product] = 0
                whole[layer, : member.shape[0], product, : member.shape[1]] = member
        return whole

"""Records of weight updates: their spectra and ranks, as arrays and as a labelled data set.

update          weights now minus weights at the start, of a product (W_K W_Q^T, W_V W_O^T) or of a single matrix
noise floor     size below which a singular value of the update is rounding; see `saddlescope.measure.spectrum`
measurable      the largest singular value is above the noise floor. Below it the update has no rank: NaN
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int64

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.figures.spectra_panel import spectra_panel
from saddlescope.measure import effective_rank, stable_rank

PRODUCTS = ("KQ", "VO")
SIDES = ("left", "right")
ORDERS = ("first", "second")


@dataclass(frozen=True, eq=False, repr=False)
class Spectra(ReprMixin):
    """Spectra of several matrices, with their norms and ranks. NaN for a matrix that does not exist.

    Attributes:
        values: singular values, descending; all, or the largest few. Spectra with fewer values end in zeros.
        noise_floor: size below which a singular value is rounding.
        norm: Frobenius norm of the full matrix, whatever the number of values recorded.
        stable_rank: |A|_F^2 / |A|_2^2 of the full matrix; NaN if the largest singular value is below the floor.
        effective_rank: exponential of the entropy of all singular values; NaN likewise.
        angles: principal angles in radians between the leading singular subspaces of this and the previous record,
            ascending, left and right; NaN at the first record and for directions below the noise floor.
        order_norm: Frobenius norms of the first and the second order of a product's update; see
            `saddlescope.measure.product_update_orders`.
        order_stable_rank: their stable ranks; NaN for an order below its noise floor.
        errors: bounds on the errors of the values, where a randomised method found them: a true singular value is at
            least the recorded one, and at most this much larger, with probability 1 - 1e-6. 0 for exact values.
    """

    values: Float[np.ndarray, "*labels index"]
    noise_floor: Float[np.ndarray, "*labels"]
    norm: Float[np.ndarray, "*labels"]
    stable_rank: Float[np.ndarray, "*labels"]
    effective_rank: Float[np.ndarray, "*labels"]
    angles: Float[np.ndarray, "*labels 2 subspace"]
    order_norm: Float[np.ndarray, "*labels orders"]
    order_stable_rank: Float[np.ndarray, "*labels orders"]
    errors: Float[np.ndarray, "*labels bounded"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "*labels all"], noise_floor: Float[np.ndarray, "*labels"]) -> "Spectra":
        """Compute norms and ranks from all singular values of each matrix; without angles and orders."""
        measurable = values[..., 0] > noise_floor
        seen = np.where(measurable[..., None], values, 0.0)
        return cls(
            values=values,
            noise_floor=noise_floor,
            norm=_norm(values),
            stable_rank=np.where(measurable, stable_rank(seen), np.nan),
            effective_rank=np.where(measurable, effective_rank(seen), np.nan),
            angles=np.full((*noise_floor.shape, len(SIDES), 0), np.nan),
            order_norm=np.full((*noise_floor.shape, 0), np.nan),
            order_stable_rank=np.full((*noise_floor.shape, 0), np.nan),
            errors=np.full((*noise_floor.shape, 0), np.nan),
        )

    @classmethod
    def leading(
        cls, values: Float[np.ndarray, " top"], errors: Float[np.ndarray, " top"], noise_floor: float, norm: float
    ) -> "Spectra":
        """Compute the ranks of one matrix from its leading values and its norm; the effective rank is unknown, NaN."""
        seen = cls.of(values, np.asarray(noise_floor))
        rank = (norm / values[0]) ** 2 if values[0] > noise_floor else np.nan
        return replace(
            seen, norm=np.asarray(norm), stable_rank=np.asarray(rank), effective_rank=np.asarray(np.nan), errors=errors
        )

    @property
    def measurable(self) -> Bool[np.ndarray, "*labels"]:
        """True if the largest singular value is above the noise floor; False for a matrix that does not exist."""
        return self.values[..., 0] > self.noise_floor

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Spectra":
        """Return the spectra with each array changed by a function."""
        return Spectra(**{name: change(array) for name, array in self.arrays().items()})


def _norm(values: Float[np.ndarray, "*labels all"]) -> Float[np.ndarray, "*labels"]:
    """Return the norm of singular values, over a power of 2 so that no square over- or underflows."""
    exponents = np.frexp(np.max(values, axis=-1))[1]
    return np.asarray(np.ldexp(np.linalg.norm(np.ldexp(values, -exponents[..., None]), axis=-1), exponents))


@dataclass(frozen=True, eq=False, repr=False)
class Updates(ReprMixin):
    """Spectra of one kind of matrix at the start, and of their updates at each record.

    Attributes:
        names: names of the layers, or of the single matrices; the first label of the arrays.
        initial: spectra of the matrices at the start, with labels (layer, head, product), or (matrix,).
        update: spectra of the updates, with the same labels after a first axis of records.
        increment: spectra of the updates since the previous record (since the start, for the first), likewise; None if
            they were not recorded.
    """

    names: tuple[str, ...]
    initial: Spectra
    update: Spectra
    increment: Spectra | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RankRecords(TableMixin, PlotMixin):
    """Spectra of updates, for every record.

    Attributes:
        steps: number of optimiser steps at each record.
        products: spectra of W_K W_Q^T ("KQ") and W_V W_O^T ("VO"), with labels (layer, head, product). Layers with
            fewer heads than others are padded with NaN.
        matrices: spectra of single matrices, with the label (matrix,).
    """

    steps: Int64[np.ndarray, " records"]
    products: Updates
    matrices: Updates

    def __repr__(self) -> str:
        heads = self.products.initial.noise_floor.shape[1] if self.layers else 0
        seen = f"{len(self.steps)} records, to step {self.steps[-1]}" if len(self.steps) else "no records yet"
        return f"RankRecords({seen}: {len(self.layers)} layers of {heads} heads, {len(self.matrices.names)} matrices)"

    def _table(self) -> Table:
        """Return a table of the last record."""
        columns = ("update of", "stable rank", "effective rank", "norm")
        if not len(self.steps):
            return columns, ()
        products, matrices = self.products.update, self.matrices.update
        rows = [
            (f"{self.layers[layer]}, head {head}, {PRODUCTS[product]}", *_last(products, (layer, head, product)))
            for layer, head, product in np.ndindex(products.norm.shape[1:])
            if np.isfinite(products.norm[-1, layer, head, product])
        ]
        rows += [(name, *_last(matrices, (k,))) for k, name in enumerate(self.matrices.names)]
        return columns, rows

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the attention modules in the model."""
        return self.products.names

    def panel(self) -> Panel:
        """Return the stable ranks of the updates, as `saddlescope.plot_spectra` draws them."""
        return spectra_panel(self.to_xarray())

    def to_xarray(self) -> xr.Dataset:
        """Return the records with named dimensions; see `spectra_dataset`."""
        return spectra_dataset(
            self.steps,
            products=self.products if self.layers else None,
            matrices=self.matrices if self.matrices.names else None,
        )


def _last(spectra: Spectra, index: tuple[int, ...]) -> tuple[float, float, float]:
    at = (-1, *index)
    return float(spectra.stable_rank[at]), float(spectra.effective_rank[at]), float(spectra.norm[at])


def product_index(product: str) -> int:
    """Return the index of a product along its axis.

    Raises:
        InputError: `product` is neither "KQ" nor "VO".
    """
    if product not in PRODUCTS:
        raise unknown("product", product, PRODUCTS)
    return PRODUCTS.index(product)


def stack_records(records: Sequence[Spectra], like: Spectra) -> Spectra:
    """Stack spectra of successive records along a first axis; without records, return empty arrays like `like`."""
    if not records:
        return like.each(lambda array: np.empty((0, *array.shape), array.dtype))
    return Spectra(**{name: np.stack([getattr(one, name) for one in records]) for name in like.arrays()})


def unmeasured(like: Spectra) -> Spectra:
    """Return spectra of matrices that were not measured: NaN."""
    return like.each(lambda array: np.full_like(array, np.nan))


def stacked_updates(names: Sequence[str], found: Sequence[Sequence[Spectra]]) -> Updates:
    """Combine the records of parts, one list per part with the start first, to arrays (record, part, ...)."""
    lengths = {n: max(getattr(one, n).shape[-1] for row in found for one in row) for n in ("values", "errors")}

    def array(record: Spectra, name: str) -> np.ndarray:
        one = getattr(record, name)
        return (pad_spectra(one, lengths[name]) if name in lengths else one)[0, ...]

    stacked = Spectra(
        **{
            name: np.stack([[array(record, name) for record in records] for records in found], axis=1)
            for name in found[0][0].arrays()
        }
    )
    return Updates(tuple(names), initial=stacked.each(lambda one: one[0]), update=stacked.each(lambda one: one[1:]))


_Variables: TypeAlias = dict[str, tuple[str, tuple[str, ...], str]]
_RECORDED: _Variables = {  # variables of a data set: attributes of `Spectra`, axes behind the labels, long names
    "update_spectrum": ("values", ("index",), "singular values of the update"),
    "noise_floor": ("noise_floor", (), "size below which a singular value is rounding"),
    "update_norm": ("norm", (), "Frobenius norm of the update"),
    "stable_rank": ("stable_rank", (), "stable rank of the update"),
    "effective_rank": ("effective_rank", (), "effective rank of the update"),
    "measurable": ("measurable", (), "update above the noise floor"),
    "update_error": ("errors", ("index",), "bound on how much larger a singular value of the update may be"),
    "order_norm": ("order_norm", ("order",), "Frobenius norm of one order of the update"),
    "order_stable_rank": ("order_stable_rank", ("order",), "stable rank of one order of the update"),
}
_INITIAL: _Variables = {
    "initial_spectrum": ("values", ("index",), "singular values at the start"),
    "initial_norm": ("norm", (), "Frobenius norm at the start"),
}
_INCREMENTS: _Variables = {
    f"increment_{name.removeprefix('update_')}": (
        attribute, behind, text.replace("update", "update since the previous record")
    )
    for name, (attribute, behind, text) in _RECORDED.items()
}  # fmt: skip


@validate_arguments
def spectra_dataset(
    steps: Sequence[int] | np.ndarray, *, products: Updates | None = None, matrices: Updates | None = None
) -> xr.Dataset:
    """Return spectra of updates as one labelled data set, from a tracker or from checkpoints.

    With dimensions step, layer, head, product ("KQ", "VO") and index (of the singular value, from 0):

        update_spectrum     (step, layer, head, product, index)
        noise_floor, update_norm, stable_rank, effective_rank, measurable    (step, layer, head, product)
        initial_spectrum    (layer, head, product, index)
        initial_norm        (layer, head, product)
        angles              (step, layer, head, product, side, angle), in radians; only if subspaces were tracked
        order_norm, order_stable_rank           (step, layer, head, product, order); only if orders were recorded
        update_error        as update_spectrum, where a randomised method found the values (of matrices only)
        `increment_...`     the same for the updates since the previous record; only if increments were recorded

    Single matrices have the same variables without the angles, with the prefix `matrix_` and the dimension matrix
    (names of parameters) in place of layer, head and product. Spectra with fewer values than others end in zeros.

    Args:
        steps: number of optimiser steps at each record.
        products: spectra of attention heads, with labels (layer, head, product).
        matrices: spectra of single matrices, with the label (matrix,).

    Raises:
        InputError: neither products nor matrices are given.
    """
    if products is None and matrices is None:
        raise InputError("products or matrices must be given; got neither.")
    length = max(kind.initial.values.shape[-1] for kind in (products, matrices) if kind is not None)
    dataset = xr.Dataset(coords={"step": ("step", np.asarray(steps, dtype=np.int64))})
    dataset["step"].attrs["long_name"] = "optimiser steps"
    if products is not None:
        dataset = dataset.assign_coords(layer=list(products.names), product=list(PRODUCTS))
        _add(dataset, products, "", ("layer", "head", "product"), length)
        if products.update.angles.shape[-1]:
            dims = ("step", "layer", "head", "product", "side", "angle")
            name = "principal angles to the leading subspace of the previous record"
            dataset["angles"] = (dims, products.update.angles, {"long_name": name, "units": "rad"})
            dataset = dataset.assign_coords(side=list(SIDES))
        if products.update.order_norm.shape[-1]:
            dataset = dataset.assign_coords(order=list(ORDERS))
    if matrices is not None:
        dataset = dataset.assign_coords(matrix=list(matrices.names))
        _add(dataset, matrices, "matrix_", ("matrix",), length)
    return dataset


def _add(dataset: xr.Dataset, updates: Updates, prefix: str, labels: tuple[str, ...], length: int) -> None:
    """Add the variables of one kind of matrix, with spectra of this length, but for those that were not recorded."""
    series = [(updates.update, _RECORDED, ("step", *labels)), (updates.initial, _INITIAL, labels)]
    if updates.increment is not None:
        series.append((updates.increment, _INCREMENTS, ("step", *labels)))
    for spectra, variables, dims in series:
        for name, (attribute, behind, text) in variables.items():
            array = getattr(spectra, attribute)
            if array.shape[-1]:
                values = pad_spectra(array, length) if "index" in behind else array
                dataset[prefix + name] = ((*dims, *behind), values, {"long_name": text})


def pad_spectra(values: np.ndarray, length: int) -> np.ndarray:
    """Pad spectra with zeros to this length; those that are NaN stay NaN."""
    more = np.where(np.isnan(values[..., -1:]), np.nan, np.zeros(length - values.shape[-1]))
    return np.concatenate([values, more], axis=-1)

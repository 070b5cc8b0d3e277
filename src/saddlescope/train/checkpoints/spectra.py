"""Spectra between checkpoints: what training added to attention heads and matrices, read from disk a layer at a time.

    base            the weights at the start
    tuned           the weights after training, or at several steps of it: the staircase over training
    update          tuned minus base, of W_K W_Q^T, of W_V W_O^T, or of single matrices

Memory holds one layer of two checkpoints at a time, however large the files. Every tensor is hashed on the way:
published series of checkpoints are known to hold the same step twice, and such a step would read as a plateau.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.train.checkpoints.files import Checkpoint, refuse, refuse_broken
from saddlescope.train.checkpoints.series import Matched, below_noise, duplicates, matched
from saddlescope.train.checkpoints.skeleton import blocks_of, filled, skeleton
from saddlescope.train.tracker.attention_blocks import AttentionBlock
from saddlescope.train.tracker.records import PRODUCTS, Spectra, Updates, lengthened, spectra_dataset
from saddlescope.train.tracker.tracked_matrices import Tracked, Weights
from saddlescope.train.tracker.weight_matrices import Choice, chosen_matrices

if TYPE_CHECKING:
    import xarray as xr

Item = TypeVar("Item")
Made = TypeVar("Made")


@validate_arguments
def checkpoint_spectra(
    base: str | Path,
    *tuned: str | Path,
    heads: int | None = None,
    attention: bool = True,
    matrices: Choice | None = None,
    top: int | None = None,
    subspace: int = 0,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    fault: Callable[[str], None] = refuse,
) -> "xr.Dataset":
    """Spectra of the updates between a checkpoint and one or more later ones.

    Args:
        base: the checkpoint at the start: a file (safetensors, or by `torch.save`), or a folder of shards.
        *tuned: the checkpoints after training, in the order of training.
        heads: the number of heads of every attention block; None reads it from config.json beside the base.
        attention: whether to measure attention heads.
        matrices: single matrices to measure besides; see `saddlescope.train.tracker.weight_matrices`.
        top: how many singular values to keep of each spectrum; None keeps all. Norms and ranks are of all of them.
        subspace: dimension of the leading singular subspaces whose principal angles from one checkpoint to the next
            are wanted; 0 for none.
        report: called with the finished fraction and a note.
        fault: called with a sentence on what cannot be used; all else is still measured, and what cannot is NaN.
            The default raises at the first.

    Returns:
        The data set of `saddlescope.train.spectra_dataset`. Its steps are the numbers in the names of the checkpoints,
        such as checkpoint-500, where these ascend, else 1, 2, ... (the step's `long_name` is then "checkpoint"); the
        coordinate `checkpoint` has the names. The attribute `remarks` tells, a sentence a line, which tensors are
        identical in two checkpoints, and what else was noticed.

    Raises:
        InputError: nothing can be measured: a file that cannot be read, no attention and no matrices, no number of
            heads or one that does not divide, or no name in common.
    """
    if not tuned:
        raise InputError("tuned must name one checkpoint or more; got none.")
    if not attention and matrices is None:
        raise InputError("attention must be True where no matrices are chosen; got False, which measures nothing.")
    if top is not None and top < 1:
        raise InputError(f"top must be at least 1, or None for all singular values; got {top!r}.")
    if subspace < 0:
        raise InputError(f"subspace must be at least 1, or 0 to follow none; got {subspace!r}.")
    if heads is not None and heads < 1:
        raise InputError(f"heads must be at least 1; got {heads!r}.")
    start = Checkpoint.open(base, fault=fault)
    paths = [Path(path) for path in tuned]
    steps = _steps(paths)
    numbered = list(zip(steps or range(1, len(paths) + 1), paths, strict=True))
    later = _each(lambda one: (one[0], Checkpoint.open(one[1], fault=fault)), numbered, fault)
    shapes = {name: stored.shape for name, stored in start.tensors.items() if stored.floating}
    model = skeleton(shapes, start.config, heads)
    blocks = blocks_of(model, str(base), required=matrices is None) if attention else ()
    single = tuple(chosen_matrices(model, matrices)) if matrices is not None else ()
    parts = [*map(_of_block, blocks), *(_of_matrix(name, model) for name in single)]
    needed = dict.fromkeys(name for part in parts for name in part.tensors)
    fitting = _each(lambda one: (one[0], matched(start, one[1], needed, fault)), later, fault)
    series = [match for _, match in fitting]
    most = max((block.heads for block in blocks), default=0)

    def tracked(part: _Part) -> Tracked:
        heads, kept = (None, 0) if part.heads is None else (most, subspace)
        return Tracked(part.weights, part.members, heads=heads, top=top, subspace=kept, rounded=True)

    found: list[list[Spectra]] = []
    for number, part in enumerate(parts):
        report(number / (len(parts) + 1), part.label)
        found.append(_measured(part, model, start, series, tracked, fault))
    report(len(parts) / (len(parts) + 1), "comparing all tensors")
    remarks = [remark for match in series for remark in match.remarks] + duplicates(start, series, fault)
    dataset = spectra_dataset(
        [step for step, _ in fitting],
        products=_updates([block.name for block in blocks], found[: len(blocks)]) if blocks else None,
        matrices=_updates(single, found[len(blocks) :]) if single else None,
    )
    dataset = dataset.assign_coords(checkpoint=("step", [str(match.checkpoint.path) for match in series]))
    if steps is None:
        dataset["step"].attrs["long_name"] = "checkpoint"
    dataset.attrs |= {"base": str(base), "remarks": "\n".join(remarks)}
    _tell_unmeasurable(dataset, start, series, fault)
    report(1.0, "done")
    return dataset


def _each(use: Callable[[Item], Made], items: Sequence[Item], fault: Callable[[str], None]) -> list[Made]:
    """What `use` makes of the items it can use, telling the others; if there is none, what is wrong with the first."""
    made, errors = [], []
    for item in items:
        try:
            made.append(use(item))
        except InputError as error:
            errors.append(error)
    if not made:
        raise errors[0]
    for error in errors:
        fault(str(error))
    return made


@dataclass(frozen=True, eq=False)
class _Part:
    """What is measured at once: both products of an attention block, or a single matrix.

    Attributes:
        label: the name of the module or parameter.
        tensors: the names of the tensors it needs.
        weights: by member, as `Tracked` takes them, from the skeleton while it is filled.
        heads: the number of heads; None for a single matrix.
    """

    label: str
    tensors: tuple[str, ...]
    weights: Callable[[int], Weights]
    heads: int | None

    @property
    def members(self) -> int:
        """How many products or matrices."""
        return 1 if self.heads is None else len(PRODUCTS)


def _of_block(block: AttentionBlock) -> _Part:
    prefix = f"{block.name}." if block.name else ""
    own = (f"{prefix}{name}" for name, parameter in block.module.named_parameters() if parameter.ndim == 2)

    def weights(member: int) -> Weights:
        factors = block.factors()
        return (factors.key, factors.query) if member == 0 else (factors.value, factors.output)

    return _Part(block.label, tuple(own), weights, block.heads)


def _of_matrix(name: str, model: nn.Module) -> _Part:
    return _Part(name, (name,), lambda _: (model.get_parameter(name).detach(),), None)


@torch.no_grad()
def _measured(
    part: _Part,
    model: nn.Module,
    start: Checkpoint,
    series: Sequence[Matched],
    tracked: Callable[[_Part], Tracked],
    fault: Callable[[str], None],
) -> list[Spectra]:
    """Spectra of one part at the start, then of its update in each checkpoint."""
    try:
        with filled(model, _sound(start, part.tensors)):
            measuring = tracked(part)
    except InputError as error:
        fault(str(error))
        absent = _absent(tracked(part).initial)  # of the placeholders: its shape is right
        return [absent] * (1 + len(series))
    records = [measuring.initial]
    for match in series:
        records.append(_absent(records[0]))
        if not all(name in match.names for name in part.tensors):
            continue  # told when the names were matched
        try:
            stored = _sound(match.checkpoint, [match.names[name] for name in part.tensors])
            with filled(model, dict(zip(part.tensors, stored.values(), strict=True))):
                records[-1], _ = measuring.measure(part.weights)
        except InputError as error:
            fault(str(error))
    return records


def _sound(checkpoint: Checkpoint, names: Sequence[str]) -> dict[str, Tensor]:
    """Tensors that have a spectrum, in the order of their names."""
    stored = checkpoint.read(names)
    for name in names:
        refuse_broken(checkpoint.path, name, stored[name])
    return {name: stored[name] for name in names}


def _absent(like: Spectra) -> Spectra:
    return Spectra(**{name: np.full_like(array, np.nan) for name, array in like.arrays().items()})


def _updates(names: Sequence[str], found: Sequence[Sequence[Spectra]]) -> Updates:
    """Records of parts, one list a part with the start first, as arrays with labels (record, part, ...)."""
    length = max(record.values.shape[-1] for records in found for record in records)

    def array(record: Spectra, name: str) -> np.ndarray:
        one = lengthened(record.values, length) if name == "values" else getattr(record, name)
        if one.shape[0] == len(PRODUCTS) and len(record.norm.shape) == 2:
            return np.moveaxis(one, 0, 1)  # (product, head) to (head, product)
        return one[0, ...]

    whole = {
        name: np.stack([[array(record, name) for record in records] for records in found], axis=1)
        for name in found[0][0].arrays()
    }
    return Updates(
        tuple(names),
        initial=Spectra(**{name: one[0] for name, one in whole.items()}),
        update=Spectra(**{name: one[1:] for name, one in whole.items()}),
    )


def _tell_unmeasurable(
    ds: "xr.Dataset", start: Checkpoint, series: Sequence[Matched], fault: Callable[[str], None]
) -> None:
    """Tells, a sentence a checkpoint, which updates rounding hides; weights that did not change at all are no fault."""
    for number, match in enumerate(series):
        record, hidden = ds.isel(step=number), list[str]()
        if "update_norm" in ds:
            lost = ((record.update_norm > 0) & ~record.measurable).sum("head")
            for layer, product in ((a, b) for a in ds.layer.values for b in ds["product"].values):
                if (count := int(lost.sel(layer=layer, product=product))) > 0:
                    hidden.append(f"{count} heads of {product} in {layer}")
        if "matrix_update_norm" in ds:
            lost = (record.matrix_update_norm > 0) & ~record.matrix_measurable
            hidden += [str(name) for name in ds.matrix.values[lost.values]]
        if hidden:
            fault(below_noise(match.checkpoint, start, hidden))


def _steps(paths: Sequence[Path]) -> list[int] | None:
    """The last numbers in the names of the checkpoints, or None where these do not ascend."""
    numbers = [re.findall(r"\d+", path.name.removesuffix(path.suffix if path.is_file() else "")) for path in paths]
    steps = [int(found[-1]) if found else -1 for found in numbers]
    return steps if len(paths) > 1 and all(a < b for a, b in pairwise([0, *steps])) else None

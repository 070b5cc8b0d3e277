"""Spectra between checkpoints: updates of attention heads and matrices, read from disk a layer at a time.

    base            the weights at the start
    tuned           the weights after training, or at several steps of it: the staircase over training
    update          tuned minus base, of W_K W_Q^T, of W_V W_O^T, or of single matrices

Memory holds one layer of two checkpoints at a time, however large the files. All tensors are compared between
checkpoints: published series are known to hold the same step twice, and such a step would read as a plateau.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch
import xarray as xr

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.attention.attention_blocks import FoundAttention
from saddlescope.ranks.attention.coverage import AttentionCoverage
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.checkpoints.adapted import adapted, exact
from saddlescope.ranks.checkpoints.adapter_files import AdapterFile
from saddlescope.ranks.checkpoints.adapter_spectra import adapter_spectra, open_adapters
from saddlescope.ranks.checkpoints.empty_model import refusal
from saddlescope.ranks.checkpoints.files import Checkpoint, raise_error, require_finite
from saddlescope.ranks.checkpoints.head_counts import Heads
from saddlescope.ranks.checkpoints.opened_model import open_model
from saddlescope.ranks.checkpoints.rounding_noise import rounding_noise, with_noise
from saddlescope.ranks.checkpoints.tensor_matching import (
    MatchedCheckpoint,
    below_noise_message,
    find_identical,
    match_tensors,
    trainable_tensors,
)
from saddlescope.ranks.checkpoints.weights_in_memory import Source, open_weights
from saddlescope.ranks.module_names import first_few
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection, matches, select_matrices
from saddlescope.ranks.tracker.recorders import Angles, Orders, Recorder, Values, recorder, require_recorders
from saddlescope.ranks.tracker.records import Spectra, spectra_dataset, stacked_updates, unmeasured
from saddlescope.ranks.tracker.tracked_matrices import TrackedMatrices, Weights
from saddlescope.ranks.tracker.unit_weights import Unit, layer_unit, matrix_unit

Item = TypeVar("Item")
Result = TypeVar("Result")


@validate_arguments
def checkpoint_spectra(
    base: Source,
    *tuned: Source,
    heads: Heads | None = None,
    layouts: Sequence[AttentionLayout] | None = None,
    attention: bool = True,
    matrices: MatrixSelection | None = None,
    recorders: Sequence[Recorder] = (),
    weights: str | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> xr.Dataset:
    """Return the spectra of the updates between a checkpoint and one or more later ones.

    Args:
        base: the checkpoint at the start: a file (safetensors, or by `torch.save`), a folder of shards, or a mapping or
            pytree of arrays (NumPy, JAX, PyTorch), whose paths are the names. If this and all others are LoRA
            adapters, their own updates are measured, as single matrices.
        *tuned: the checkpoints after training, in the order of training; also folders of PEFT's adapters of the base.
        heads: the number of heads of every attention block, or numbers by patterns on the names of the blocks, such as
            {"*vision*": 16, "*text*": 12}; None takes them from config.json beside the base. They are needed only for
            models that Transformers does not know and without a number in config.json.
        layouts: possible layouts of the attention weights; see `saddlescope.ranks.attention.layouts`. None tries those
            of published libraries.
        attention: measure attention heads.
        matrices: single matrices to measure in addition; see `saddlescope.ranks.tracker.matrix_selection`.
        recorders: what to record beside all singular values, norms and ranks: `Values`, `Orders`, and `Angles`
            from one checkpoint to the next; see `saddlescope.ranks.tracker.recorders`.
        weights: key of the state dict to read from files that hold several, such as "ema" for the moving average of the
            weights; None reads the weights, and `remarks` names the others.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on each part that cannot be measured; its spectra are NaN. The default raises
            at the first.

    Returns:
        The data set of `saddlescope.ranks.spectra_dataset`. Its steps are the numbers in the names of the checkpoints,
        such as checkpoint-500, if these ascend, else 1, 2, ... (the step's `long_name` is then "checkpoint"); the
        coordinate `checkpoint` has the names. The attribute `remarks` lists, one sentence per line, tensors that are
        identical in two checkpoints, and other observations.

    Raises:
        InputError: nothing can be measured: a file that cannot be read, no attention and no matrices, no number of
            heads or one that does not divide, or no name in common.
    """
    require_recorders(recorders, attention=True, matrices=matrices)
    if others := [one for one in recorders if not isinstance(one, Values | Angles | Orders)]:
        raise InputError(f"recorders must be Values, Angles or Orders for checkpoints; got {others[0]!r}.")
    places = [one if isinstance(one, str | Path) else f"weights {at}" for at, one in enumerate((base, *tuned))]
    first, *paths = map(Path, places)
    if (alone := open_adapters((base, *tuned), weights)) is not None:
        values = recorder(recorders, Values)
        if any(one is not values for one in recorders):
            raise InputError(f"recorders must be Values for adapters without their base; got {list(recorders)!r}.")
        steps = _steps([first, *paths])
        dataset = adapter_spectra(
            list(zip(steps or range(1, len(alone) + 1), alone, strict=True)),
            matrices=matrices,
            top=None if values is None else values.top,
            report=report,
            on_error=on_error,
        )
        return _labelled(dataset, list(map(str, places)), "", steps)
    if not tuned:
        raise InputError("tuned must name one checkpoint or more, unless base is a LoRA adapter; got none.")
    require_recorders(recorders, attention=attention, matrices=matrices)
    start = open_weights(base, str(first), weights=weights, on_error=on_error)
    steps = _steps(paths)

    def opened_at(number: int) -> tuple[int, Checkpoint | AdapterFile]:
        adapter = AdapterFile.open(tuned[number], weights=weights)
        step = number + 1 if steps is None else steps[number]
        return step, adapter or open_weights(tuned[number], str(paths[number]), weights=weights, on_error=on_error)

    later = _each(opened_at, range(len(tuned)), on_error)
    plain = [start, *(one for _, one in later if isinstance(one, Checkpoint))]
    _require_one_kind(plain, weights)
    notes = dict.fromkeys(remark for one in plain for remark in one.remarks)
    if weights is not None:
        other = [one for one in plain if one.states[:1] != (weights,)]
        notes |= {f"{one.path} has no {weights}: {one.states[0] if one.states else 'its only weights'} was read.": None
                  for one in other}  # fmt: skip
    opened = open_model(start, heads if attention or heads else 1, on_error)  # single matrices need no heads
    start, model = opened.base, opened.model
    found_attention = FoundAttention((), AttentionCoverage())
    if attention:
        found_attention = opened.attention(
            heads, required=matrices is None, layouts=LAYOUTS if layouts is None else layouts
        )
        for row in found_attention.coverage:
            if row.outcome == "refused":
                on_error(refusal(row, str(start.path)))
    passed_over = [
        f"{row.name} was left out: {row.reason}." for row in found_attention.coverage if row.outcome == "skipped"
    ]
    units = [layer_unit(block, buffers=False) for block in found_attention.blocks]
    units += [matrix_unit(*one) for one in (select_matrices(model, matrices).items() if matrices is not None else ())]
    units = _in_base(start, units, on_error)
    needed = dict.fromkeys(name for unit in units for name in unit.names.values())
    patterns = () if matrices is None or callable(matrices) else (matrices,) if isinstance(matrices, str) else matrices
    wanted = [name for name in start.tensors if name not in needed and any(matches(name, one) for one in patterns)]
    if stacks := [name for name in trainable_tensors(start, wanted) if len(start.tensors[name].shape) > 2]:
        passed_over.append(
            f"{start.path} holds tensors with more than two axes, which were not measured: {first_few(stacks)}. Split "
            "stacks of matrices by layer or head."
        )
    if all(isinstance(one, AdapterFile) for _, one in later):
        start = exact(start)

    def fitted(one: tuple[int, Checkpoint | AdapterFile]) -> tuple[int, MatchedCheckpoint]:
        step, end = one
        is_adapter = isinstance(end, AdapterFile)
        named = adapted(opened.base, end, model, on_error) if is_adapter else opened.named(end)
        return step, match_tensors(start, named, needed, on_error)

    fitting = _each(fitted, later, on_error)
    series = [match for _, match in fitting]
    most = max((unit.heads or 0 for unit in units), default=0)

    def tracked(before: Sequence[Weights]) -> TrackedMatrices:
        heads = most if len(before) > 1 else None
        return TrackedMatrices(lambda _: before, 1, heads=heads, recorders=recorders, rounded=True)

    found: list[list[Spectra]] = []
    for number, unit in enumerate(units):
        report(number / (len(units) + 1), unit.label)
        found.append(_measured(unit, start, series, tracked, on_error))
    report(len(units) / (len(units) + 1), "comparing all tensors")
    of_series = (remark for match in series for remark in (*match.checkpoint.remarks, *match.remarks))
    remarks = list(dict.fromkeys([*notes, *opened.remarks, *passed_over, *of_series]))
    remarks += find_identical(start, series, needed, on_error)
    layers = sum(unit.heads is not None for unit in units)
    names = [unit.name for unit in units]
    dataset = spectra_dataset(
        [step for step, _ in fitting],
        products=stacked_updates(names[:layers], found[:layers]) if layers else None,
        matrices=stacked_updates(names[layers:], found[layers:]) if names[layers:] else None,
    )
    dataset.attrs["remarks"] = "\n".join(remarks)
    dataset = _labelled(dataset, [str(match.checkpoint.path) for match in series], str(places[0]), steps)
    _report_unmeasurable(dataset, start, series, on_error)
    report(1.0, "done")
    return dataset


def _each(use: Callable[[Item], Result], items: Sequence[Item], on_error: Callable[[str], None]) -> list[Result]:
    """Return `use(item)` of all items without an InputError, and report the others; raise if all fail."""
    results, errors = [], []
    for item in items:
        try:
            results.append(use(item))
        except InputError as error:
            errors.append(error)
    if not results:
        raise errors[0]
    for error in errors:
        on_error(str(error))
    return results


def _require_one_kind(checkpoints: Sequence[Checkpoint], weights: str | None) -> None:
    """Raise InputError for a series of weights and moving averages that the user has not chosen.

    Raises:
        InputError: it has both; a difference of weights and averages is no update.
    """
    read = {one.path: one.states[0] for one in checkpoints if one.states}
    average = [path for path, state in read.items() if "ema" in state.lower()]
    others = [path for path, state in read.items() if "ema" not in state.lower()]
    if weights is None and average and others:
        raise InputError(
            f"checkpoints must all be weights, or all averages; got {read[others[0]]} in {others[0]} and "
            f"{read[average[0]]} in {average[0]}. Pass --weights {read[average[0]]}, or weights=, to read it where a "
            "file has it."
        )


def _labelled(dataset: xr.Dataset, paths: Sequence[str], base: str, steps: Sequence[int] | None) -> xr.Dataset:
    """Return a data set with the names of its checkpoints."""
    dataset = dataset.assign_coords(checkpoint=("step", list(paths)))
    if steps is None:
        dataset["step"].attrs["long_name"] = "checkpoint"
    return dataset.assign_attrs(base=base)


def _in_base(start: Checkpoint, units: Sequence[Unit], on_error: Callable[[str], None]) -> list[Unit]:
    """Return the units that the base holds; report those that it lacks without a reason."""
    gone = {name for unit in units for name in unit.names.values() if name not in start.tensors}
    kept = [unit for unit in units if gone.isdisjoint(unit.names.values())]
    absent = [name for unit in units for name in unit.names.values() if name in gone - start.lost]
    if absent or not kept:
        sentence = f"{start.path} must hold the weights of its model; got none of {first_few(absent or start.lost)}."
        if not kept:
            raise InputError(sentence)
        on_error(sentence)
    return kept


@torch.no_grad()
def _measured(
    unit: Unit,
    start: Checkpoint,
    series: Sequence[MatchedCheckpoint],
    tracked: Callable[[Sequence[Weights]], TrackedMatrices],
    on_error: Callable[[str], None],
) -> list[Spectra]:
    """Return the spectra of one unit at the start, then of its update in each checkpoint."""
    names = list(unit.names.values())
    try:
        before = _read_finite(unit, start, dict(zip(names, names, strict=True)))
        matrices = tracked(before)
        noise = rounding_noise(before, max(map(start.roundoff, names)))
    except InputError as error:
        on_error(str(error))
        return [unmeasured(tracked(unit.members(None)).start)] * (1 + len(series))  # of the placeholders, for its shape
    records = [matrices.start]
    for step, match in enumerate(series):
        records.append(unmeasured(records[0]))
        if not all(name in match.names for name in names):
            continue  # reported when the names were matched
        try:
            after = _read_finite(unit, match.checkpoint, match.names)
            here = rounding_noise(after, max(match.checkpoint.roundoff(match.names[name]) for name in names))
            update = matrices.measure(step, lambda _, after=after: after).update
            records[-1] = with_noise(update, noise, here)
        except InputError as error:
            on_error(str(error))
    return records


def _read_finite(unit: Unit, checkpoint: Checkpoint, names: Mapping[str, str]) -> list[Weights]:
    """Return the weights of a unit, by the names of its tensors in a checkpoint.

    Raises:
        InputError: a tensor cannot be read, or has no spectrum.
    """
    stored = checkpoint.read([names[name] for name in unit.names.values()])
    for name, tensor in stored.items():
        require_finite(checkpoint.path, name, tensor)
    return unit.members({own: stored[names[name]] for own, name in unit.names.items()})


def _report_unmeasurable(
    ds: xr.Dataset, start: Checkpoint, series: Sequence[MatchedCheckpoint], on_error: Callable[[str], None]
) -> None:
    """Report updates that rounding hides, one sentence per checkpoint; weights that did not change are no error."""
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
            on_error(below_noise_message(match.checkpoint, start, hidden))


def _steps(paths: Sequence[Path]) -> list[int] | None:
    """Return the last numbers in the names of the checkpoints, or None if these do not ascend."""
    numbers = [re.findall(r"\d+", path.name.removesuffix(path.suffix if path.is_file() else "")) for path in paths]
    steps = [int(found[-1]) if found else -1 for found in numbers]
    return steps if len(paths) > 1 and all(a < b for a, b in pairwise([0, *steps])) else None

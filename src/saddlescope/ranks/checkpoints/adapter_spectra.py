"""Spectra of LoRA alone: those of the updates scale * B A, without the base."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.measure import product_spectrum, spectrum
from saddlescope.ranks.checkpoints.adapter_files import AdapterFile
from saddlescope.ranks.checkpoints.files import natural_order
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection, matches
from saddlescope.ranks.tracker.records import Spectra, spectra_dataset, stacked_updates


def own_spectra(adapter: AdapterFile, module: str) -> Spectra:
    """Return the spectra of the update of one module, with the label (1,): of s B A from its factors alone."""
    factors, one = adapter.factors(module), adapter.updates[module]
    if factors is not None:
        found, scale = product_spectrum(factors[0].unsqueeze(0), factors[1].T.unsqueeze(0)), abs(one.scale)
    else:
        found, scale = spectrum(adapter.update(module).flatten(1).unsqueeze(0)), 1.0
    return Spectra.of(scale * np.asarray(found.values), scale * np.asarray(found.noise_floor))


@torch.no_grad()
def adapter_spectra(
    adapters: Sequence[tuple[int, AdapterFile]],
    *,
    matrices: MatrixSelection | None,
    top: int | None,
    report: Report,
    on_error: Callable[[str], None],
) -> xr.Dataset:
    """Return the spectra of the updates of LoRA files, as single matrices; those of the base are NaN.

    Args:
        adapters: the adapters with their steps.
        matrices: patterns on the names of modules; None measures all.
        top: number of singular values to record; None records all.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on each update that cannot be measured.

    Raises:
        InputError: an adapter that needs its base, or patterns that match nothing.
    """
    for _, adapter in adapters:
        adapter.require_own_update()
        adapter.report(on_error)
    weights = {name: adapter.updates[name].weight for _, adapter in adapters for name in adapter.matrices}
    names = sorted(_selected(weights, matrices), key=natural_order)
    found: list[list[Spectra]] = []
    for number, name in enumerate(names):
        report(number / len(names), name)
        found.append([_one(adapter, name, top, on_error) for _, adapter in adapters])
    if all(one is _UNKNOWN for row in found for one in row):
        raise InputError(f"{adapters[0][1].path} must hold factors that can be measured; got none.")
    dataset = spectra_dataset(
        [step for step, _ in adapters],
        matrices=stacked_updates([weights[name] for name in names], [[_UNKNOWN, *row] for row in found]),
    )
    remarks = [remark for _, adapter in adapters for remark in adapter.remarks]
    for _, adapter in adapters:
        if adapter.vectors:
            remarks.append(
                f"{adapter.path} also changes vectors, which have no spectrum: {', '.join(adapter.vectors)}."
            )
        if whole := adapter.other_tensors():
            remarks.append(
                f"{adapter.path} also has whole parameters, whose updates need the base: {', '.join(whole.values())}."
            )
    report(1.0, "done")
    return dataset.assign_attrs(remarks="\n".join(remarks))


def open_adapters(sources: Sequence[object], weights: str | None) -> list[AdapterFile] | None:
    """Open adapters; None if one of the sources is something else."""
    found = []
    for source in sources:
        adapter = AdapterFile.open(source, weights=weights)
        if adapter is None:
            return None
        found.append(adapter)
    return found


def _selected(weights: Mapping[str, str], matrices: MatrixSelection | None) -> list[str]:
    if matrices is None:
        return list(weights)
    if callable(matrices):
        raise InputError("matrices must be patterns for adapters without their base; got a function.")
    patterns = (matrices,) if isinstance(matrices, str) else tuple(matrices)
    for pattern in patterns:
        if not any(matches(weight, pattern) for weight in weights.values()):
            raise InputError(f"matrices must match modules of the adapter; got {pattern!r}, which matches none.")
    return [name for name, weight in weights.items() if any(matches(weight, pattern) for pattern in patterns)]


_UNKNOWN = Spectra.of(np.full((1, 1), np.nan), np.full(1, np.nan))  # of the base, and of what cannot be measured


def _one(adapter: AdapterFile, name: str, top: int | None, on_error: Callable[[str], None]) -> Spectra:
    if name not in adapter.updates:
        on_error(f"{adapter.path} must have an adapter of {name}, as the others; got none.")
        return _UNKNOWN
    try:
        found = own_spectra(adapter, name)
        return replace(found, values=found.values[..., :top])
    except InputError as error:
        on_error(str(error))
        return _UNKNOWN

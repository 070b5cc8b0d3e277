"""One panel of the ranks that a tracker or two checkpoints show: every layer, and the mean."""

import re
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.figures.records import Axis, Line, Panel

PRODUCTS = {"KQ": "W_K W_Qᵀ", "VO": "W_V W_Oᵀ"}
"""Products of the weights of a head, in words."""
_MOST_MATRICES = 8  # whose lines are named


def spectra_panel(spectra: Any) -> Panel:
    """Return the panel that `saddlescope.plot_spectra` draws."""
    ds = spectra if isinstance(spectra, xr.Dataset) else getattr(spectra, "to_xarray", lambda: None)()
    if not isinstance(ds, xr.Dataset) or not {"stable_rank", "matrix_stable_rank"} & set(ds.data_vars):
        raise InputError(
            f"spectra must be a RankTracker or a data set of spectra; got {type(spectra).__name__!r}. "
            "Pass tracker, or the result of checkpoint_spectra."
        )
    if not ds.sizes["step"]:
        raise InputError("spectra must have at least one record; got none. Train, or call tracker.measure().")
    if ds.sizes["step"] == 1:
        return _over_depth(ds)
    marks = []
    if "stable_rank" in ds:
        over = [name for name in ("seed", "head") if name in ds.stable_rank.dims]
        for color, (product, name) in enumerate(PRODUCTS.items()):
            ranks = ds.stable_rank.sel(product=product)
            layers = ranks.mean(over).transpose("layer", "step").values
            marks += [Line(x=ds.step.values, y=row, color=color, width=0.8, opacity=0.45) for row in layers]
            mean = ranks.mean([*over, "layer"]).values
            marks.append(Line(x=ds.step.values, y=mean, label=f"update of {name}", color=color, width=2.4))
    if "matrix_stable_rank" in ds:
        rows = ds.matrix_stable_rank.transpose("matrix", "step")
        for k, name in enumerate(rows.matrix.values.tolist()):
            label = name if k < _MOST_MATRICES else ""
            marks.append(Line(x=ds.step.values, y=rows.values[k], label=label, color=2 + k % 5, style="dashed"))
    return Panel(x=step_axis(ds), y=Axis("stable rank"), marks=tuple(marks))


def step_axis(ds: xr.Dataset) -> Axis:
    """Return the axis of steps, logarithmic if they span more than a factor of ten."""
    first, last = float(ds.step.values[0]), float(ds.step.values[-1])
    return Axis(ds.step.attrs.get("long_name", "optimiser steps"), scale="log" if 0 < 10 * first < last else "linear")


def _over_depth(ds: xr.Dataset) -> Panel:
    """Return the panel of a single record: the stable rank of each layer, or of each matrix."""
    marks = []
    if "stable_rank" in ds:
        axis, depth = layer_axis(ds)
        for color, (product, name) in enumerate(PRODUCTS.items()):
            ranks = ds.stable_rank.isel(step=0).sel(product=product).transpose("layer", ...).values
            heads = ranks.reshape(len(depth), -1)
            x = np.repeat(depth, heads.shape[1])
            marks.append(Line(x=x, y=heads.ravel(), color=color, style="points", width=1.4, opacity=0.5))
            mean = np.array([np.mean(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in heads])
            marks.append(Line(x=depth, y=mean, label=f"update of {name}", color=color, width=2.4))
        return Panel(x=axis, y=Axis("stable rank"), marks=tuple(marks))
    names = tuple(ds.matrix.values.tolist())
    ranks = ds.matrix_stable_rank.isel(step=0).values
    marks.append(Line(x=np.arange(len(names)), y=ranks, color=0, style="points", width=3.0))
    return Panel(x=Axis("matrix", names=names), y=Axis("stable rank"), marks=tuple(marks))


def layer_axis(ds: xr.Dataset) -> tuple[Axis, np.ndarray]:
    """Return an axis of the layers by their own names, and the place of each on it.

    What the names of modules have in common is the label, with N for the rest: "blocks.N".
    """
    names = ds.layer.values.tolist()
    if all(isinstance(name, int) for name in names):
        return Axis("layer"), np.array(names)
    parts = [short_name(str(name)).split(".") for name in names]
    head = _common(parts) if len(parts) > 1 else 0
    tail = min(_common([part[::-1] for part in parts]), min(map(len, parts)) - head - 1) if len(parts) > 1 else 0
    label = ".".join([*parts[0][:head], "N", *parts[0][len(parts[0]) - tail :]]) if head + tail else "layer"
    words = tuple(".".join(part[head : len(part) - tail]) for part in parts)
    return Axis(label, names=words), np.arange(len(names))


def _common(rows: list[list[str]]) -> int:
    """Return the number of leading words that all rows share; fewer than any row has."""
    shared = next((k for k, words in enumerate(zip(*rows, strict=False)) if len(set(words)) > 1), min(map(len, rows)))
    return min(shared, min(map(len, rows)) - 1)


def layer_title(layer: Any) -> str:
    """Return "layer" and a layer's number, or the name of its module."""
    return f"layer {layer}" if isinstance(layer, int) else short_name(str(layer))


def short_name(name: str) -> str:
    """Return the name of a module or matrix without what PEFT, torch.compile and DDP put before it."""
    return re.sub(r"^(base_model\.model\.|_orig_mod\.|module\.)+", "", name)

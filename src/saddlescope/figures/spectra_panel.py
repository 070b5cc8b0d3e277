"""One panel of the ranks that a tracker or two checkpoints show: every layer, and the mean."""

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
        depth = np.arange(1, ds.sizes["layer"] + 1)
        for color, (product, name) in enumerate(PRODUCTS.items()):
            ranks = ds.stable_rank.isel(step=0).sel(product=product).transpose("layer", ...).values
            heads = ranks.reshape(len(depth), -1)
            x = np.repeat(depth, heads.shape[1])
            marks.append(Line(x=x, y=heads.ravel(), color=color, style="points", width=1.4, opacity=0.5))
            mean = np.array([np.mean(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in heads])
            marks.append(Line(x=depth, y=mean, label=f"update of {name}", color=color, width=2.4))
        return Panel(x=Axis("layer"), y=Axis("stable rank"), marks=tuple(marks))
    names = tuple(ds.matrix.values.tolist())
    ranks = ds.matrix_stable_rank.isel(step=0).values
    marks.append(Line(x=np.arange(len(names)), y=ranks, color=0, style="points", width=3.0))
    return Panel(x=Axis("matrix", names=names), y=Axis("stable rank"), marks=tuple(marks))

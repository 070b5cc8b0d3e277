"""Figures of the weight updates of attention, head by head, from a data set of spectra.

Such a data set comes from `RankTracker.to_xarray`, from `saddlescope spectra`, or, with the dimension `seed` besides,
from an entry that trains a transformer:

    update_spectrum     (step, layer, head, product, index)   singular values of product now minus product at the start
    noise_floor         (step, layer, head, product)          the size below which they are rounding
    stable_rank         (step, layer, head, product)          |A|_F^2 / |A|_2^2 of the update; NaN below the noise floor
    initial_spectrum    (layer, head, product, index)         singular values of the product at the start
    initial_norm        (layer, head, product)                its Frobenius norm; needed where the index is cut short

Means, deviations and ranges are over heads and seeds, never over time. Layers are named as the data set names them: by
number, or by module.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.figures.records import Axis, Band, Figure, Line, Panel
from saddlescope.figures.spectra_panel import PRODUCTS, layer_axis, layer_title, step_axis

MOST_LAYERS = 12
"""Largest number of panels of one figure; further layers are left out, evenly."""
_LARGEST = 16  # singular values of an evolution
_LEVELS = Axis("singular value / largest", scale="log", range=(1e-3, 1.3))


def stable_rank_figure(ds: xr.Dataset) -> Figure:
    """Draw the stable rank of both updates over training, one panel per layer: mean and deviation over the heads.

    The paper's Figures 4, 12, 13, 15, 17, 19 and 20 (Boix-Adserà et al. 2023); layers are evenly thinned to
    `MOST_LAYERS`.

    Args:
        ds: spectra with two records or more; for one, see `layer_rank_figure`.
    """
    shown, x = _layers(ds), step_axis(ds)
    panels = []
    for layer in shown:
        marks: list[Band | Line] = []
        for color, (product, name) in enumerate(PRODUCTS.items()):
            rank = ds.stable_rank.sel(layer=layer, product=product)
            marks += _mean_and_deviation(ds.step.values, rank, _over(ds), f"update of {name}", color)
        panels.append(Panel(title=layer_title(layer), x=x, y=Axis("stable rank"), marks=tuple(marks)))
    return Figure(
        name="stable-rank",
        title="Stable rank of the learned updates by layer",
        caption=f"Stable rank of the update of both products; mean and standard deviation over {_crowd(ds)}. "
        f"{_initial_ranks(ds)}{_left_out(ds, shown)}",
        panels=tuple(panels),
    )


def layer_rank_figure(ds: xr.Dataset) -> Figure:
    """Draw the stable rank of both updates and of the initial products over depth, at the last record.

    Args:
        ds: spectra.
    """
    at = ds.step.values[-1]
    x, depth = layer_axis(ds)
    initial = initial_stable_rank(ds)
    panels = []
    for color, (product, name) in enumerate(PRODUCTS.items()):
        update = ds.stable_rank.sel(step=at, product=product)
        marks = _mean_and_deviation(depth, update, _over(ds), f"update of {name}", color)
        start = initial.sel(product=product)
        marks += _mean_and_deviation(depth, start, _over(ds), "initial product", 2)
        panels.append(Panel(title=name, x=x, y=Axis("stable rank", scale="log"), marks=tuple(marks)))
    return Figure(
        name="stable-rank-by-layer",
        title="Stable rank of the learned updates over depth",
        caption=f"Stable rank of updates and initial products {_moment(ds, at)}; mean and standard deviation "
        f"over {_crowd(ds)}.",
        panels=tuple(panels),
    )


def spectrum_figure(ds: xr.Dataset) -> Figure:
    """Draw the normalized spectra of the last update and of the initial product: mean and range over heads.

    The paper's Figure 5, over all heads rather than at random ones; layers are evenly thinned to `MOST_LAYERS`.

    Args:
        ds: spectra.
    """
    shown = _layers(ds)
    curves = {
        "at initialization": (1, normalized(ds.initial_spectrum)),
        "learned update": (0, normalized(ds.update_spectrum.isel(step=-1), ds.noise_floor.isel(step=-1))),
    }
    return Figure(
        name="spectrum",
        title="Spectra of the learned update and of the initial product",
        caption=f"Singular values divided by the largest; mean and range over {_crowd(ds)}." + _left_out(ds, shown),
        panels=_spectra_panels(ds, shown, curves, ranges=True),
    )


def spectrum_stages_figure(ds: xr.Dataset) -> Figure:
    """Draw normalized spectra of the update at stages of training, and of the initial product: mean over the heads.

    The paper's Figures 1, 14, 16 and 18, over all heads: in the first, the middle and the last layer, at four records
    that are evenly spaced in log time, the last one among them.

    Args:
        ds: spectra.
    """
    spaced = np.geomspace(max(float(ds.step[0]), float(ds.step[-1]) / 1000), float(ds.step[-1]), 4)
    chosen = ds.step.values[sorted({int(np.abs(ds.step.values - at).argmin()) for at in spaced})].tolist()
    middle = sorted({0, ds.sizes["layer"] // 2, ds.sizes["layer"] - 1})
    shown = ds.layer.values[middle].tolist()
    curves = {"at initialization": (1, normalized(ds.initial_spectrum))}
    for color, step in zip((0, 2, 3, 4), chosen, strict=False):
        update = normalized(ds.update_spectrum.sel(step=step), ds.noise_floor.sel(step=step))
        curves[f"update {_moment(ds, step)}"] = (color, update)
    return Figure(
        name="spectrum-stages",
        title="Spectra of the update at stages of training",
        caption=f"Singular values divided by the largest, mean over {_crowd(ds)}; dashed: the initial product."
        f"{' Shown are the first, the middle and the last layer.' if len(shown) > 2 else ''}",
        panels=_spectra_panels(ds, shown, curves),
        columns=len(shown),
    )


def _spectra_panels(
    ds: xr.Dataset, layers: Sequence[Any], curves: Mapping[str, tuple[int, xr.DataArray]], *, ranges: bool = False
) -> tuple[Panel, ...]:
    """Draw spectra by their labels, with colours: means over the heads, with ranges or the initial ones dashed."""
    panels = []
    for product, name in PRODUCTS.items():
        for layer in layers:
            marks: list[Band | Line] = []
            for label, (color, spectra) in curves.items():
                values = spectra.sel(layer=layer, product=product).isel(index=slice(_width(ds)))
                x, mean = values.index.values + 1, values.mean(_over(ds)).values
                if ranges:
                    low, high = values.min(_over(ds)).values, values.max(_over(ds)).values
                    marks.append(Band(x=x, low=low, high=high, group=label, color=color))
                style = "dashed" if color == 1 and not ranges else "solid"
                marks.append(Line(x=x, y=mean, label=label, group=label, color=color, style=style))
            title = f"{name}, {layer_title(layer)}"
            panels.append(Panel(title=title, x=Axis("index of the singular value"), y=_LEVELS, marks=tuple(marks)))
    return tuple(panels)


def evolution_figure(ds: xr.Dataset, *, layer: Any) -> Figure:
    """Draw the largest singular values of a layer's first head over training, not normalized: the paper's staircase.

    The paper's Figure 6 (which calls them eigenvalues). With seeds, the first one is shown.

    Args:
        ds: spectra.
        layer: as the coordinate names it.
    """
    one = ds.isel(seed=0) if "seed" in ds.dims else ds
    panels = []
    for color, (product, name) in enumerate(PRODUCTS.items()):
        values = one.update_spectrum.sel(layer=layer, product=product).isel(head=0)
        floor = one.noise_floor.sel(layer=layer, product=product).isel(head=0)
        shown = values.where(values > floor).transpose("index", "step").values[:_LARGEST]
        marks = tuple(
            Line(
                x=ds.step.values, y=row, group=f"update of {name}", color=color, width=1.2, opacity=max(0.35, 1 - k / 8)
            )
            for k, row in enumerate(shown)
        )
        panels.append(Panel(title=name, x=step_axis(ds), y=Axis("singular value"), marks=marks))
    return Figure(
        name="evolution",
        title="Singular values of the update of one head",
        caption=f"The {_LARGEST} largest singular values of head 0, {layer_title(layer)}.",
        panels=tuple(panels),
    )


def scale_rank_figure(ds: xr.Dataset) -> Figure:
    """Draw the stable rank of the last updates over the initial scale, one panel per layer: mean and deviation.

    The paper's Figure 7; layers are evenly thinned to `MOST_LAYERS`.

    Args:
        ds: spectra with a dimension `scale` besides: the factor on the initial weights.
    """
    shown = _layers(ds)
    last, initial = ds.stable_rank.isel(step=-1), initial_stable_rank(ds)
    panels = []
    for layer in shown:
        marks: list[Band | Line] = []
        for color, (product, name) in enumerate(PRODUCTS.items()):
            at = {"layer": layer, "product": product}
            marks += _mean_and_deviation(ds.scale.values, last.sel(at), _over(ds), f"update of {name}", color)
            unit = initial.sel(at).mean(_over(ds))
            group = f"initial {name}"
            marks.append(Line(x=ds.scale.values, y=unit.values, label=group, group=group, color=color, style="dotted"))
        x, y = Axis("initial scale", scale="log"), Axis("stable rank")
        panels.append(Panel(title=layer_title(layer), x=x, y=y, marks=tuple(marks)))
    return Figure(
        name="rank-by-scale",
        title="Smaller initial weights lead to updates of lower rank",
        caption=f"Stable rank of the updates at the end of training; mean and standard deviation over {_crowd(ds)}. "
        "Dotted: the initial products, whose rank does not depend on the scale.",
        panels=tuple(panels),
        columns=3,
    )


def normalized(spectrum: xr.DataArray, floor: xr.DataArray | None = None) -> xr.DataArray:
    """Divide each spectrum by its largest value: 0 below the noise floor, NaN where nothing is above it."""
    measured = spectrum if floor is None else spectrum.where(spectrum > floor, 0.0)
    top = measured.isel(index=0)
    return measured / top.where(top > 0)


def initial_stable_rank(ds: xr.Dataset) -> xr.DataArray:
    """Return the stable rank of every initial product; NaN where the product is zero, and no comparison is possible."""
    top = ds.initial_spectrum.isel(index=0)
    squares = ds.initial_norm**2 if "initial_norm" in ds else (ds.initial_spectrum**2).sum("index")
    return squares / (top**2).where(top > 0)


def _over(ds: xr.Dataset) -> tuple[str, ...]:
    """Return the dimensions to average over."""
    return tuple(name for name in ("seed", "head") if name in ds.dims)


def _mean_and_deviation(
    x: Any, values: xr.DataArray, over: tuple[str, ...], group: str, color: int
) -> list[Band | Line]:
    mean = values.mean(over)
    spread = ((values - mean) ** 2).mean(over).values ** 0.5  # `std` warns in some versions where all heads are missing
    mean = mean.values
    return [
        Band(x=x, low=mean - spread, high=mean + spread, group=group, color=color),
        Line(x=x, y=mean, label=group, group=group, color=color),
    ]


def _layers(ds: xr.Dataset) -> list[Any]:
    names = ds.layer.values.tolist()
    kept = np.unique(np.round(np.linspace(0, len(names) - 1, min(len(names), MOST_LAYERS))).astype(int))
    return [names[k] for k in kept]


def _width(ds: xr.Dataset) -> int:
    """Return the largest rank of an initial product; the number of stored values if it is zero or truncated."""
    positive = int((ds.initial_spectrum > 0).any([d for d in ds.initial_spectrum.dims if d != "index"]).sum())
    return positive or ds.sizes["index"]


def checkpoint_name(ds: xr.Dataset, step: Any) -> str | None:
    """Return the name of the checkpoint of a record whose step is unknown; None if it is known."""
    if ds.step.attrs.get("long_name") != "checkpoint":
        return None
    return PurePath(str(ds.checkpoint.sel(step=step).item())).name


def _moment(ds: xr.Dataset, step: Any) -> str:
    """Return the time of a record in words."""
    if name := checkpoint_name(ds, step):
        return f"in {name}"
    return f"after {int(step):,} step{'s' * (int(step) != 1)}".replace(",", "\u2009")


def _crowd(ds: xr.Dataset) -> str:
    seeds = ds.sizes.get("seed", 1)
    heads = "the heads" if ds.sizes["head"] > 1 else f"head {ds['head'].item()}"
    return f"{heads} of all {seeds} seeds" if seeds > 1 else heads


def _initial_ranks(ds: xr.Dataset) -> str:
    ranks = initial_stable_rank(ds).mean([d for d in ds.initial_spectrum.dims if d not in ("index", "product")])
    return (
        f"Stable ranks of the initial products: {float(ranks.sel(product='KQ')):.1f} ({PRODUCTS['KQ']}) and "
        f"{float(ranks.sel(product='VO')):.1f} ({PRODUCTS['VO']})."
    )


def _left_out(ds: xr.Dataset, shown: Sequence[Any]) -> str:
    missing = ds.sizes["layer"] - len(shown)
    return f" {len(shown)} of the {ds.sizes['layer']} layers are shown." if missing else ""

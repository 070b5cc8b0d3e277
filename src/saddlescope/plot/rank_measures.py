"""Figure of a training run: loss, ranks and sizes of the updates over the steps, one panel each."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from saddlescope.figures.records import MOST_LINES, Axis, Figure, Line, Panel
from saddlescope.figures.spectra_panel import PRODUCTS, layer_title, short_name, step_axis
from saddlescope.plot.matrix_rank_figure import matrix_kinds

_MEASURES = {
    "stable_rank": Axis("stable rank"),
    "effective_rank": Axis("effective rank"),
    "update_norm": Axis("norm of update / norm at the start", scale="log"),
}


class _Family(NamedTuple):
    """Updates with one colour, such as those of one product in all layers: their names, and the data of each."""

    name: str
    members: list[str]
    values: dict[str, np.ndarray]  # (step, member) by measure


def measures_figure(ds: xr.Dataset, *, loss: Line | None = None) -> Figure:
    """Draw loss, stable rank, effective rank and relative size of the updates over the steps.

    Args:
        ds: spectra with two records or more, of heads, of single matrices, or of both.
        loss: the loss over the same steps; None leaves its panel out.
    """
    first, last = (float(ds.step[k]) for k in (0, -1))
    x = replace(step_axis(ds), range=(first, max([last, *([] if loss is None else loss.x)])))
    families = [*_heads(ds), *_matrices(ds)]
    panels = [] if loss is None else [Panel(title="loss", x=x, y=Axis(loss.label or "loss"), marks=(loss,))]
    for measure, y in _MEASURES.items():
        marks = [
            line for color, family in enumerate(families) for line in _curves(ds.step.values, family, measure, color)
        ]
        panels.append(Panel(title=y.label, x=x, y=y, marks=tuple(marks)))
    counted = [f"{ds.sizes['head']} heads in {ds.sizes['layer']} layers"] if "update_spectrum" in ds else []
    counted += [f"{ds.sizes['matrix']} matrices"] if "matrix_update_spectrum" in ds else []
    return Figure(
        name="measures",
        title="Loss and ranks over training" if loss is not None else "Ranks over training",
        caption=f"Bold: the mean over {' and '.join(counted)}, all that are recorded; thin: each layer or matrix, "
        "named on hover. The stable rank is the squared Frobenius norm over the squared spectral norm, the effective "
        "rank the exponential of the entropy of the singular values. An update below the noise floor has no rank.",
        panels=tuple(panels),
    )


def _heads(ds: xr.Dataset) -> Iterator[_Family]:
    if "update_spectrum" not in ds:
        return
    over = [name for name in ("seed", "head") if name in ds.stable_rank.dims]
    measures = {name: ds[name] for name in ("stable_rank", "effective_rank")}
    measures["update_norm"] = ds.update_norm / ds.initial_norm.where(ds.initial_norm > 0)
    names = list(map(layer_title, ds.layer.values.tolist()))
    for product, name in PRODUCTS.items():
        means = {key: of.sel(product=product).mean(over).transpose("step", "layer") for key, of in measures.items()}
        yield _Family(f"update of {name}", names, {key: of.values for key, of in means.items()})


def _matrices(ds: xr.Dataset) -> Iterator[_Family]:
    if "matrix_update_spectrum" not in ds:
        return
    measures = {name: ds[f"matrix_{name}"] for name in ("stable_rank", "effective_rank")}
    measures["update_norm"] = ds.matrix_update_norm / ds.matrix_initial_norm.where(ds.matrix_initial_norm > 0)
    for kind, names in matrix_kinds(ds).items():
        values = {key: of.sel(matrix=names).transpose("step", "matrix").values for key, of in measures.items()}
        yield _Family(kind, list(map(short_name, names)), values)


def _curves(steps: np.ndarray, family: _Family, measure: str, color: int) -> list[Line]:
    values, members = family.values[measure], family.members
    mean = xr.DataArray(values, dims=("step", "member")).mean("member").values
    bold = Line(x=steps, y=mean, group=family.name, color=color, width=2.6)
    if len(members) == 1:
        return [bold]
    chosen = np.unique(np.linspace(0, len(members) - 1, min(len(members), MOST_LINES)).round().astype(int))
    thin = {"group": family.name, "color": color, "width": 0.9, "opacity": 0.4}
    return [bold, *(Line(x=steps, y=values[:, k], label=members[k], **thin) for k in chosen)]

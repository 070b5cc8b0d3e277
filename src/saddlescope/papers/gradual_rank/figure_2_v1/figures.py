"""The figures of Figure 2 of the first version."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS
from saddlescope.plot import Axis, Figure, Line, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the six panels and the blurred case; the convergence of stage times."""
    return [panels(run), convergence(run)]


def panels(run: xr.Dataset) -> Figure:
    """Draw both products and the loss: diagonal weights, full weights with their prediction, a teacher of full rank."""
    last = run.isel(scale=-1)
    time, blur = run.time.values, run.blurred_values
    staircase = np.append(run.attrs["initial_loss"], run.predicted_loss)
    begun = np.searchsorted(run.predicted_time, time, side="right")
    predicted_loss = Line(x=time, y=staircase[begun], group="prediction", style="dashed", width=1.0)
    beta, since = run.diagonal_beta, 0.9 * float(run.predicted_time[0] / run.time[-1])
    at, full = f"alpha = 1e{run.attrs['log10_diagonal']:g}", f"alpha = 1e{float(last.scale):g}"
    blurred = f"rank {run.sizes['index']}, alpha = 1e{run.attrs['log10_blurred']:g}"

    def values(product: int) -> list[Line]:
        flow = _curves(time, last["values"].isel(product=product).values)
        before = np.concatenate([np.zeros((1, run.sizes["index"])), run.predicted_values.isel(product=product)])
        rising = before.max(axis=0) > 0
        return flow + [
            Line(x=time, y=before[begun][:, i], group="prediction", color=i, style="dashed", width=1.0)
            for i in np.flatnonzero(rising).tolist()
        ]

    return Figure(
        name="panels",
        title="Diagonal and full weights learn one direction after the other",
        caption="Top: an attention head with diagonal weights, entries of both products and the loss. Middle: a head "
        f"with full weights at {full}, singular values of both products and the loss, with the prediction for "
        "vanishing alpha dashed. Bottom: full weights that learn a teacher of full rank from a larger scale, where "
        "stages blur. Time is that of the gradient flow divided by log(1/alpha).",
        panels=(
            _panel(
                f"(a) diagonal of {PRODUCTS['VO']}, {at}", "entry", _curves(run.diagonal_time.values, beta[:, 1].values)
            ),
            _panel(
                f"(b) diagonal of {PRODUCTS['KQ']}, {at}", "entry", _curves(run.diagonal_time.values, beta[:, 0].values)
            ),
            _panel("(c) loss, diagonal weights", "loss", [_loss(run.diagonal_time.values, run.diagonal_loss.values)]),
            _panel(f"(d) {PRODUCTS['VO']}, {full}", "singular value", values(1), since),
            _panel(f"(e) {PRODUCTS['KQ']}, {full}", "singular value", values(0), since),
            _panel("(f) loss, full weights", "loss", [_loss(time, last.loss.values), predicted_loss], since),
            _panel(f"(g) {PRODUCTS['VO']}, teacher of {blurred}", "singular value", _curves(time, blur[:, 1].values)),
            _panel(f"(h) {PRODUCTS['KQ']}, teacher of {blurred}", "singular value", _curves(time, blur[:, 0].values)),
            _panel("(i) loss, teacher of full rank", "loss", [_loss(time, run.blurred_loss.values)]),
        ),
        columns=3,
    )


def _curves(time: np.ndarray, values: np.ndarray) -> list[Line]:
    return [Line(x=time, y=values[:, i], group="gradient flow", color=i, width=1.3) for i in range(values.shape[1])]


def _loss(time: np.ndarray, loss: np.ndarray) -> Line:
    return Line(x=time, y=loss, group="gradient flow", color=0, width=1.3)


def _panel(title: str, y: str, marks: list[Line], since: float = 0.0) -> Panel:
    until = float(marks[0].x[-1])
    return Panel(
        title=title, x=Axis("time / log(1/alpha)", range=(since * until, until)), y=Axis(y), marks=tuple(marks)
    )


def convergence(run: xr.Dataset) -> Figure:
    """Draw errors of stage times against log(1/alpha), and a table of them."""
    logs = -run.scale.values * np.log(10)
    marks = tuple(
        Line(x=logs, y=abs(run.found_time - run.predicted_time).sel(stage=k).values, label=_direction(run, k))
        for k in run.stage.values.tolist()
    )
    return Figure(
        name="convergence",
        title="Stage times of full weights converge to the prediction as 1 / log(1/alpha)",
        caption="Error of the measured stage times against log(1/alpha), both axes logarithmic: slope -1 is the law "
        "C_k / log(1/alpha). The table has each stage's direction, predicted time and loss, and the measured times.",
        panels=(
            Panel(x=Axis("log(1/alpha)", scale="log"), y=Axis("error of the stage's time", scale="log"), marks=marks),
        ),
        table=Table(
            columns=("k", "direction", "T_k", *(f"t_k at 1e{s:g}" for s in run.scale.values), "loss", "measured loss"),
            rows=tuple(_rows(run)),
        ),
    )


def _direction(run: xr.Dataset, k: int) -> str:
    stage = run.sel(stage=k)
    return f"σ{int(stage.predicted_index) + 1} of {list(PRODUCTS.values())[int(stage.predicted_product)]}"


def _rows(run: xr.Dataset) -> Iterator[tuple[str | float | int, ...]]:
    for k in run.stage.values.tolist():
        stage = run.sel(stage=k)
        yield (
            int(k),
            _direction(run, k),
            float(stage.predicted_time),
            *(float(t) for t in stage.found_time),
            float(stage.predicted_loss),
            float(stage.plateau_loss.isel(scale=-1)),
        )

"""The figures of the entry on gradient descent."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.gradient_descent.claims import relative_delays, relative_spread
from saddlescope.papers.gradual_rank.gradient_descent.returning_coordinate import draw_returning
from saddlescope.plot import Axis, Figure, Line, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the delays of descent, the spread of SGD, and the saddle at which float64 descent stops."""
    return [_delays(run), draw_returning(run)]


def _delays(run: xr.Dataset) -> Figure:
    rates, errors = run.rate.values, relative_delays(run)
    first = float(run.predicted_time[0])
    delays = [
        Line(
            x=rates,
            y=errors.sel(scale=scale, stage=k).values,
            label=f"alpha = 1e{scale:g}, stage {k}",
            color=int(k),
            style="solid" if scale == run.scale.values[-1] else "dotted",
        )
        for scale in run.scale.values
        for k in run.stage.values
    ]
    delays.append(Line(x=rates, y=rates / (2 * first), label="eta / (2 T_1)", style="dashed", width=1.2))
    batches, spread = run.batch.values, relative_spread(run)
    # Runs of one batch size are drawn side by side.
    beside = batches[:, None] * 1.04 ** (run.run.values - run.run.values.mean())
    shift = (run.sgd_time / run.full_time - 1).transpose("stage", "batch", "run").values
    scatter = [
        Line(x=beside.ravel(), y=shift[k].ravel(), group=f"stage {k + 1}", color=k + 1, style="points")
        for k in range(run.sizes["stage"])
    ]
    spreads = [
        Line(x=batches, y=spread.sel(stage=k).values, group=f"stage {k}", color=int(k)) for k in run.stage.values
    ]
    guide = float(spread.isel(stage=0, batch=0)) * batches[0] / batches
    spreads.append(Line(x=batches, y=guide, label="1 / B", style="dashed", width=1.2))
    x = Axis("samples in a minibatch B", scale="log")
    rows = tuple(
        (
            int(k),
            float(run.predicted_time.sel(stage=k)),
            float(run.flow_time.isel(scale=-1).sel(stage=k)),
            float(run.full_time.sel(stage=k)),
            *(
                f"{float(np.mean(times)):.4g} ± {float(np.std(times, ddof=1)):.2g}"
                for times in run.sgd_time.sel(stage=k).transpose("batch", "run").values
            ),
        )
        for k in run.stage.values
    )
    return Figure(
        name="delays",
        title="Descent is late in proportion to its learning rate; minibatches scatter it in proportion to 1/B",
        caption="Left: how much later full-batch descent is than the flow, relative to T_k, with the first order of a "
        "plateau. Middle: stage times of SGD relative to those of full-batch descent at the same learning rate, one "
        "point a run; noise delays them, the more the smaller the batch. Right: their standard deviation over runs. "
        "The table has the stage times at the smallest scale: of Algorithm 1, the flow, descent, and SGD, mean "
        "and standard deviation for each batch size.",
        panels=(
            Panel(
                title="full batch",
                x=Axis("learning rate eta", scale="log"),
                y=Axis("(t_k − t_k of the flow) / T_k", scale="log"),
                marks=tuple(delays),
            ),
            Panel(title="SGD", x=x, y=Axis("t_k / t_k of full batch − 1"), marks=tuple(scatter)),
            Panel(
                title="spread of SGD", x=x, y=Axis("standard deviation of t_k / T_k", scale="log"), marks=tuple(spreads)
            ),
        ),
        columns=3,
        table=Table(columns=("k", "T_k", "flow", "full batch", *(f"SGD, B = {batch}" for batch in batches)), rows=rows),
    )

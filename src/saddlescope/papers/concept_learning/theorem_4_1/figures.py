"""Figures of the entry `theorem_4_1`."""

import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw SGD and the theorem, starts whose loss rises, and the terms of one flow."""
    return [_sgd(run), _rises(run), _sum(run)]


def _sgd(run: xr.Dataset) -> Figure:
    one, steps = run.sel(bias=True).isel(seed=0), run.step.values
    panels = []
    for n, task in enumerate(run.task.values):
        marks = []
        for k in range(2):
            group = f"concept {k + 1}"
            marks.append(Line(x=steps, y=one.output.values[n, :, k], group=group, color=k, width=4.0, opacity=0.35))
            marks.append(Line(x=steps, y=one.empirical.values[n, :, k], group=group, color=k, width=1.2))
        panels.append(Panel(title=str(task), x=Axis("step"), y=Axis("output at the test point"), marks=tuple(marks)))
    errors = tuple(
        Line(
            x=steps[1:], y=abs(run.output - run[name]).sel(bias=bias).max(("concept", "task", "seed")).values[1:],
            group=group,
            style="solid" if bias else "dashed", color=color,
        )
        for name, group, color in (("empirical", "A of the samples", 2), ("limit", "A in the limit", 3))
        for bias in (True, False)
    )  # fmt: skip
    panels.append(Panel(title="largest error of all runs", x=Axis("step"), y=Axis("error", scale="log"), marks=errors))
    return Figure(
        name="sgd",
        title="SGD of a one-layer network follows Theorem 4.1 from its actual start",
        caption="d = 64, the paper's training: outputs at the test point along the two concepts (wide, pale) and by "
        "the theorem (thin), on three tasks of Figure 2. Last panel: the largest error over tasks, runs and concepts; "
        "dashed without biases.",
        panels=tuple(panels),
        columns=2,
    )


def _rises(run: xr.Dataset) -> Figure:
    shares = [
        Line(x=run["size"].values, y=run.rising.sel(start_dim=d).values, label=f"d = {d}", color=n)
        for n, d in enumerate(run.start_dim.values)
    ]
    examples = tuple(
        Line(x=run.example_time.values, y=run.example.isel(example_start=n).values, label=str(name), color=n + 3)
        for n, name in enumerate(run.example_start.values)
    )
    return Figure(
        name="rises",
        title="One layer learns monotonically from small starts only",
        caption="Left: the share of random starts from which the loss at the test point rises somewhere, against their "
        "size in units of PyTorch's default. Right: a start that maps the test point to itself, W0 = x x^T/|x|^2, and "
        "one a tenth as large.",
        panels=(
            Panel(
                x=Axis("size of W0 over the default", scale="log"), y=Axis("share of starts whose loss rises"),
                marks=(*shares, Mark(at=1.0, label="PyTorch's default")),
            ),
            Panel(x=Axis("time t"), y=Axis("loss at the test point"), marks=examples),
        ),
    )  # fmt: skip


def _sum(run: xr.Dataset) -> Figure:
    one, times = run.isel(flow=0), run.flow_time.values
    panels = tuple(
        Panel(
            title=f"output {k + 1} of {run.sizes['dimension']}" + (", no concept" if k else ", a concept"),
            x=Axis("time t"),
            y=Axis("output at a random point"),
            marks=(
                Line(x=times, y=one.exact.values[:, k], group="gradient flow", color=0, width=4.0, opacity=0.35),
                Line(x=times, y=one.corrected.values[:, k], group="sum over all d", color=1, width=1.2),
                Line(x=times, y=one.printed.values[:, k], group="as printed", color=2, style="dashed"),
            ),
        )
        for k in (0, run.sizes["dimension"] - 1)
    )
    return Figure(
        name="sum",
        title="The sum of equation 4.2 must run over all directions",
        caption="Two outputs at a random point with parts outside the span of the three concepts: by gradient flow, by "
        "the theorem with the noise of all directions, and as printed, with that of the concepts alone.",
        panels=panels,
    )

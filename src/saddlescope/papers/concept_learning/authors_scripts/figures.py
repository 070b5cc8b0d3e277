"""Figures of the entry `authors_scripts`."""

import xarray as xr

from saddlescope.papers.concept_learning.authors_scripts.simulations import CONVENTIONS
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw shares of starts by their number of descents, with a table, and one start with both matrices."""
    rows = []
    for name in run.data.values.tolist():
        for divisor in run.divisor.values.tolist():
            for convention in CONVENTIONS:
                one = run.sel(data=name, divisor=divisor, convention=convention)
                shares = (float(one.share.sel(hysteresis=0.0, descents=k)) for k in range(1, 5))
                rows.append((name, f"rand / {divisor:g}", convention, *shares, *map(float, one.learned.values)))
    ends = (f"learned after {n} steps" for n in run.steps.values.tolist())
    columns = ("data", "U", "matrix", "one descent", "two", "three", "four", *ends)
    return [
        Figure(
            name="descents",
            title="With the data matrix squared, many descents are the rule",
            caption="Share of starts by the number of descents of the loss out of distribution, exact flow, hysteresis "
            "0, U uniform between 0 and the reciprocal of the first divisor. `var` is A^2 with the captions' numbers "
            "as variances.",
            panels=tuple(_panel(run, name) for name in run.data.values.tolist()),
            table=Table(columns=columns, rows=tuple(rows)),
        ),
        Figure(
            name="one-start",
            title="One start on the data of Figure 8, with A and with A^2",
            caption="The loss out of distribution against the logarithm of time, in true time of either flow. Vertical "
            "lines are the ends of the authors' runs, at the step they take.",
            panels=(
                Panel(
                    x=Axis("time t of gradient flow", scale="log"),
                    y=Axis("|(W - 1) x|² / 2"),
                    marks=(
                        *(
                            Line(
                                x=run.time.values, y=run.example_loss.sel(map_convention=one).values, group=one, color=n
                            )
                            for n, one in enumerate(CONVENTIONS[:2])
                        ),
                        *(
                            Mark(at=float(end), label=f"{n} steps")
                            for n, end in zip(run.steps.values.tolist(), run.end.values, strict=True)
                        ),
                    ),
                ),
            ),
            columns=1,
        ),
    ]


def _panel(run: xr.Dataset, name: str) -> Panel:
    most = int(run.concepts.sel(data=name)) + 1
    lines = []
    for n, convention in enumerate(CONVENTIONS):
        shares = run.share.sel(data=name, convention=convention, hysteresis=0.0).isel(divisor=0).values[1 : most + 1]
        counts = run.descents.values[1 : most + 1]
        lines.append(Line(x=counts, y=shares, group=convention, color=n, opacity=0.5))
        lines.append(Line(x=counts, y=shares, group=convention, color=n, style="points"))
    return Panel(
        title=f"data of {name}",
        x=Axis("descents", range=(0.7, most + 0.3)),
        y=Axis("share of starts", range=(-0.03, 1.0)),
        marks=tuple(lines),
    )

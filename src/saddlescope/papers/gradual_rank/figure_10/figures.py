"""The figures of Figure 10."""

import xarray as xr

from saddlescope.papers.gradual_rank.figure_10.claims import remaining
from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of, displacement, paired_lines
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw what is left of the noise over time, with a table of the moments, and the entries and weights themselves."""
    return [_remaining(run), _entries(run)]


def _remaining(run: xr.Dataset) -> Figure:
    panels = []
    for of, title in (("beta", "of the products, beta = u v"), ("weights", "of the weights, u and v")):
        left = remaining(run, of)
        marks: list[Line | Mark] = [
            Line(
                x=run.since.sel(moment=moment).values[1:],
                y=left.sel(moment=moment).values[1:],
                group=f"noise at {float(run.moment_time.sel(moment=moment)):.1f}",
                color=k,
            )
            for k, moment in enumerate(run.moment.values)
        ]
        if of == "weights":
            marks.append(Mark(at=2**-0.5, axis="y", label="1/√2"))
        panels.append(
            Panel(
                title=title,
                x=Axis("time t since the noise", "epochs at learning rate 1", scale="log"),
                y=Axis("displacement left", scale="log", range=(1e-3, 3.0)),
                marks=tuple(marks),
            )
        )
    return Figure(
        name="return",
        title="After noise the products return; the weights do not",
        caption="Distance to the training without noise, over that just after the noise, for noise at random rescaled "
        "times. Where beta leaves again, the next coordinate enters a little sooner or later than it would without "
        "noise. The weights keep the part of the noise that changed the conserved u² − v², about 1/√2 of it.",
        panels=tuple(panels),
        table=Table(
            columns=("time", "stage", "weights with noise", "c_k", "noise in beta", "closest", "at t", "at the end",
                     "weights, closest", "at rest"),
            rows=tuple(_row(run.sel(moment=moment)) for moment in run.moment.values),
        ),
    )  # fmt: skip


def _row(here: xr.Dataset) -> tuple[str | float | int, ...]:
    begun = int(here.predicted_time.searchsorted(here.moment_time))
    beta, weights = remaining(here, "beta"), remaining(here, "weights")
    rest = ((beta_of(here.noisy_rest) - beta_of(here.rest)) ** 2).sum("coordinate") ** 0.5
    shift = displacement(here, "beta").isel(step=0)
    return (
        f"{float(here.moment_time):.2f}",
        begun,
        2 * int(here.learned.sum()),
        float(here.curvature[begun - 1]),
        float(shift),
        f"{float(beta.min()):.2%}",
        float(here.since[beta.values.argmin()]),
        f"{float(beta[-1]):.2%}",
        f"{float(weights.min()):.1%}",
        f"{float(rest / shift):.1e}",
    )


def _entries(run: xr.Dataset) -> Figure:
    panels = []
    for moment in run.moment.values:
        here = run.sel(moment=moment)
        learned = here.coordinate.values[here.learned.values]
        curves = {
            "beta": (beta_of(here.noisy), beta_of(here.weights)),
            "weight u": (here.noisy.sel(factor="u"), here.weights.sel(factor="u")),
        }
        for name, (noisy, without) in curves.items():
            marks = [
                line
                for color, i in enumerate(learned)
                for line in paired_lines(
                    here.since.values[1:],
                    noisy.sel(coordinate=i).values[1:],
                    without.sel(coordinate=i).values[1:],
                    color=color,
                    width=1.1,
                )
            ]
            panels.append(
                Panel(
                    title=f"{name}, noise at {float(here.moment_time):.1f}",
                    x=Axis("time t since the noise", "epochs at learning rate 1", scale="log"),
                    y=Axis("entry"),
                    marks=tuple(marks),
                )
            )
    return Figure(
        name="entries",
        title="Each learned coordinate after the noise, and without it",
        caption="Rows: the random times. Left, the learned entries of beta: after the noise (solid) they come back to "
        "the training without noise (dashed). Right, their weights u = (w_K, w_V): they stay beside it.",
        panels=tuple(panels),
    )

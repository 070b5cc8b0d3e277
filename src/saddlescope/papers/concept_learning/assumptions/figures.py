"""Figure of the entry `assumptions`."""

import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the largest omega against the ratio of strengths, and order and minor entries against the scale."""
    scale = Axis("scale of U's entries", scale="log")
    omegas: list[Line | Mark] = [
        Line(x=run.ratio.values, y=run.log10_omega.sel(beta=beta).values, label=f"two concepts, β = {beta:g}", color=k)
        for k, beta in enumerate(run.beta.values.tolist())
    ]
    omegas.append(
        Line(x=run.ratio.values, y=run.log10_omega_three.values, label="three concepts", color=5, style="dashed")
    )
    omegas.append(Mark(at=-37.9, label="float32 ends", axis="y"))
    ordered, minors = [], []
    for k, name in enumerate(run.data.values.tolist()):
        one = run.sel(data=name)
        ordered.append(Line(x=run.scale.values, y=(one.ordered / one.starts).values, group=name, color=k))
        minors.append(Line(x=run.scale.values, y=one.minor.sel(quantile=0.5).values, group=name, color=k))
    rows = tuple(
        (name, float(run.margin.sel(data=name)), float(run.figure_log10_omega.sel(data=name)))
        for name in run.data.values.tolist()
    )
    return [
        Figure(
            name="omega",
            title="The assumptions need starts of 1e-61; the story does not",
            caption="Left: the largest omega, the smallest entry of W(0), at which D.3, D.4 and D.5 as printed hold "
            "together, against the ratio of neighbouring strengths. Then, far outside: the share of normal starts "
            "whose concepts are learned in the order of their strengths, and the median of the largest minor entry. "
            "The table has the margin of each figure's data in D.5, which must be positive, and log10 of its largest "
            "omega.",
            panels=(
                Panel(
                    title="assumptions hold below", x=Axis("ratio of strengths", scale="log"), y=Axis("log₁₀ ω"),
                    marks=tuple(omegas),
                ),
                Panel(title="in order", x=scale, y=Axis("share of starts", range=(0.0, 1.05)), marks=tuple(ordered)),
                Panel(title="largest minor entry", x=scale, y=Axis("median |wᵢⱼ|", scale="log"), marks=tuple(minors)),
            ),
            columns=3,
            table=Table(columns=("data", "margin / alpha", "log10 omega"), rows=rows),
        )
    ]  # fmt: skip

"""The figures of the entry on Assumptions 4.3 to 4.5."""

import xarray as xr

from saddlescope.papers.gradual_rank.assumptions.claims import NEAR
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw each assumption's number in every stage of every seed, with a table of the seeds."""
    panels = (
        _panel(run, "margin", Axis("margin over time", scale="log"), "4.3: the next coordinate comes later"),
        _panel(run, "curvature", Axis("c_k", scale="log"), "4.4: each saddle is a strict minimum on its support"),
        _panel(
            run, "growth", Axis("least growth of the loss, over c_k", scale="log"), "4.4: the loss grows as it says"
        ),
        _panel(run, "end", Axis("distance to theta^k, over size", scale="log"), "4.5: noisy starts end there"),
    )
    return [
        Figure(
            name="stages",
            title="What the assumptions ask for, stage by stage",
            caption="Each line is one seed. The second coordinate would arrive later than the first by the margin, "
            "over the stage's time. c_k is the constant of Assumption 4.4, and the least growth of the loss near "
            "theta^k is shown in units of it. The last panel has the worst of the noisy starts. Dotted: the bounds.",
            panels=panels,
            table=Table(
                columns=("seed", "stages", "smallest margin", "coordinates that leave", "smallest c_k", "least growth",
                         "worst end", "least noise"),
                rows=tuple(_row(run.sel(seed=seed)) for seed in run.seed.values),
            ),
        )
    ]  # fmt: skip


def _panel(run: xr.Dataset, name: str, y: Axis, title: str) -> Panel:
    values = run.end_distance.max("draw") if name == "end" else run[name]
    marks: list[Line | Mark] = [
        Line(
            x=run.stage.values,
            y=values.sel(seed=seed).values,
            group=f"seed {seed}",
            color=k,
            style="points" if name == "end" else "solid",
            width=1.2,
        )
        for k, seed in enumerate(run.seed.values)
    ]
    if name in ("growth", "end"):
        marks.append(Mark(at={"growth": 1.0, "end": NEAR}[name], axis="y"))
    return Panel(title=title, x=Axis("stage k"), y=y, marks=tuple(marks))


def _row(here: xr.Dataset) -> tuple[str | float | int, ...]:
    return (
        int(here.seed),
        int(here.time.notnull().sum()),
        f"{float(here.margin.min()):.1e}",
        int(here.left.sum()),
        float(here.curvature.min()),
        float(here.growth.min()),
        f"{float(here.end_distance.max()):.1e}",
        f"{float(here.delta.min()):.0e}",
    )

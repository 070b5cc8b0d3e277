"""Figure and table of the entry `lemmas`."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw two allowed runs with the bounds, and a table of all violations."""
    groups = run.group.values.tolist()
    rows = tuple(
        (lemma, *(_cell(run.sel(lemma=lemma, group=group)) for group in groups)) for lemma in run.lemma.values.tolist()
    )
    return [
        Figure(
            name="bounds",
            title="The lemmas' bounds where the assumptions hold, and Lemma D.3 where it fails",
            caption="log10 of the entries of W, gradient flow, strengths 0.1 and 1. Dashed: the ceiling of Lemma D.1; "
            f"dotted: the floor of Lemma D.3. Right, {run.last_start}: w_11(0) lies almost wholly along the stronger "
            "concept, and what is left of it once that is learned is below the floor. The table has, for each kind of "
            "run, how many violate each lemma and the largest excess.",
            panels=tuple(_panel(run.sel(start=start)) for start in run.start.values.tolist()),
            table=Table(columns=("lemma", *groups), rows=rows),
        )
    ]


def _cell(one: xr.Dataset) -> str:
    return f"{int(one.violations)}/{int(one.runs)} ({float(one.largest):.2g})"


def _panel(one: xr.Dataset) -> Panel:
    t, W, a = one.example_time.values, np.abs(one.example.values), one.example_strength.values
    tenth = np.log(10)
    phase = float(one.example_phase) / tenth
    lines: list[Line | Mark] = []
    for k, (i, j, label) in enumerate(((1, 1, "w₂₂"), (0, 0, "w₁₁"), (0, 1, "w₁₂"))):
        with np.errstate(divide="ignore"):
            value = np.log(W[:, i, j]) / tenth
        value[~np.isfinite(value) | (W[:, i, j] < 1e-15 * np.sqrt(W[:, i, i] * W[:, j, j]))] = np.nan  # rounding
        lines.append(Line(x=t, y=value, group=label, color=k))
        ceiling = value[0] + 2 * (a[i] + a[j]) * float(one.kappa) * t / tenth
        lines.append(Line(x=t, y=np.where(ceiling < 3, ceiling, np.nan), color=k, style="dashed", width=0.9))
        if i == j:
            until = (phase - value[0]) * tenth / (4 * a[i] * float(one.kappa))
            floor = value[0] + 4 * a[i] * t / float(one.kappa) / tenth
            lines.append(Line(x=t, y=np.where(t <= until, floor, np.nan), color=k, style="dotted"))
    lines.append(Mark(at=phase, label="P β ω", axis="y"))
    kind = str(one.start.item())
    return Panel(title=f"{kind} start", x=Axis("time", "t"), y=Axis("log₁₀ |wᵢⱼ|"), marks=tuple(lines))

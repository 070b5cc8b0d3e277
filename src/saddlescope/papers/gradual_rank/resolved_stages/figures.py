"""The figures of the entry on resolved stages."""

from math import log

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.resolved_stages.claims import FEW, enough, found, predicted
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import wilson_interval

_BINS = 16  # of e-folds, equally many plateaus in each


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw numbers against the scale, the share found against e-folds, and the share not found."""
    seeds = run.sizes["seed"]
    return [
        Figure(
            name="numbers",
            title="Smaller scales resolve more of the plateaus that there are in the limit",
            caption=f"Plateaus between two stages, mean over {seeds} seeds, against log(1/alpha): found by the flow "
            "with the predicted coordinates learned (with Student's 95 % interval), held by a count without theory, "
            f"and predicted from Algorithm 1 with {FEW:g} e-folds or with log(1/level). The line across: all there "
            "are.",
            panels=tuple(_numbers(run, int(dim)) for dim in run.dim.values),
        ),
        Figure(
            name="efolds",
            title="How many e-folds a plateau needs, and how slowly the rest is resolved",
            caption="Left: share of plateaus found, with 95 % intervals, against the e-folds that Algorithm 1 gives "
            "them; all seeds and scales, equally many in each dot. Right: the share of plateaus that is not found "
            "against log(1/alpha); dotted: as its inverse.",
            panels=(_calibration(run), _left(run)),
        ),
    ]


def _numbers(run: xr.Dataset, dim: int) -> Panel:
    from scipy.stats import t

    one = run.sel(dim=dim)
    x, n = -one.scale.values * log(10), one.sizes["seed"]
    mean, marks = found(one).mean("seed").values, []
    if n > 1:
        error = t.ppf(0.975, n - 1) * found(one).std("seed", ddof=1).values / n**0.5
        marks.append(Band(x=x, low=mean - error, high=mean + error, group="found", color=0))
    marks.append(Line(x=x, y=mean, group="found", color=0, style="solid"))
    marks.append(Line(x=x, y=one.held.mean("seed").values, group="held", color=1, style="points", width=3.5))
    for color, (name, efolds) in enumerate(((f"{FEW:g} e-folds", FEW), ("log(1/level) e-folds", enough(run)))):
        count = predicted(one, efolds).mean("seed").values
        marks.append(Line(x=x, y=np.asarray(count, float), group=name, color=color + 2, style="dashed"))
    marks.append(Mark(at=float(one.plateaus.mean()), axis="y", group="all there are", color=7))
    x_axis, y_axis = Axis("log(1/alpha)", scale="log"), Axis("plateaus")
    return Panel(title=f"dimension {dim}", x=x_axis, y=y_axis, marks=tuple(marks))


def _calibration(run: xr.Dataset) -> Panel:
    efolds, there = run.efolds.values.ravel(), run.found.values.ravel()
    kept = (efolds > 0) & np.isfinite(efolds)
    order = np.argsort(efolds[kept])
    bins = [part for part in np.array_split(order, _BINS) if len(part)]
    x = np.array([np.median(efolds[kept][part]) for part in bins])
    y = np.array([there[kept][part].mean() for part in bins])
    low, high = np.array([wilson_interval(there[kept][part].sum(), len(part)) for part in bins]).T
    marks = (
        Band(x=x, low=low, high=high, group="found", color=0),
        Line(x=x, y=y, group="found", color=0, style="points", width=3.5),
        Line(x=x, y=y, group="found", color=0),
        Mark(at=FEW, group=f"{FEW:g} e-folds", color=2),
        Mark(at=enough(run), group="log(1/level) e-folds", color=3),
    )
    return Panel(
        title="share found",
        x=Axis("e-folds", scale="log"),
        y=Axis("share", range=(-0.02, 1.02)),
        marks=marks,
    )


def _left(run: xr.Dataset) -> Panel:
    x, marks = -run.scale.values * log(10), []
    for color, dim in enumerate(run.dim.values):
        one = run.sel(dim=dim)
        share = 1 - (found(one).sum("seed") / one.plateaus.sum()).values
        marks.append(Line(x=x, y=np.where(share > 0, share, np.nan), group=f"dimension {dim}", color=color + 4))
    marks.append(Line(x=x, y=x[0] / x, group="1 / log(1/alpha)", color=7, style="dotted"))
    return Panel(
        title="share not found",
        x=Axis("log(1/alpha)", scale="log"),
        y=Axis("share", scale="log"),
        marks=tuple(marks),
    )

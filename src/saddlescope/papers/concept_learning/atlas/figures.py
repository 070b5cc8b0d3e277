"""Maps of the entry `atlas`."""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Heat, Panel

_AT = {"sigma": 0.05, "scale": 0.1, "factor": 1, "ratio": 2.0}  # what a map does not show; the nearest there is

_LABELS = {
    "ratio": ("log₂ ratio of μ", 2.0),
    "sigma": ("log₁₀ σ", 10.0),
    "scale": ("log₁₀ initial scale τ", 10.0),
    "factor": ("log₂ width / dimension", 2.0),
}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw maps of the share with several visible descents, of rises, and of times."""
    share, total = "share of starts", run.visible.sum("descents")
    several = run.visible.sel(descents=slice(2, None)).sum("descents") / total
    two, both = several.sel(concepts=2), several.sel(concepts=3)
    three = (run.visible.sel(descents=slice(3, None)).sum("descents") / total).sel(concepts=3)
    rises, times = run.rise.sel(quantile=0.9, concepts=2), run.time.sel(quantile=0.5, concepts=2)
    spread = run.time.sel(quantile=0.9, concepts=2) - run.time.sel(quantile=0.1, concepts=2)
    n = int(run.counts.sum())
    return [
        Figure(
            name="descents",
            title="Where the loss rises on its way down",
            caption="Share of starts with two or more descents, after rises of more than 0.1 % of the first loss, of "
            f"{n:,} starts in all; normal entries of U. What a map does not show is at σ = 0.05, τ = 0.1, a ratio of μ "
            "of 2 and d' = d. Equal concepts have one descent, as W keeps its eigenvectors; and so have most wide "
            "networks, where W starts near a multiple of the identity.",
            panels=(
                _map("two concepts", two, "ratio", "scale", share),
                _map("two concepts", two, "factor", "scale", share),
                _map("two concepts", two, "ratio", "sigma", share),
                _map("three concepts", both, "ratio", "scale", share),
                _map("three concepts", both, "factor", "scale", share),
                _map("three concepts, three or more", three, "ratio", "scale", share),
            ),
            columns=3,
        ),
        Figure(
            name="rises-and-times",
            title="How far the loss rises, and when the network generalizes",
            caption="Two concepts, with the same left out as above. Top: the 0.9 quantile of the largest rise between "
            "descents, over |x|²/2. Bottom: the median time until the loss stays below 1 % of the weakest concept's "
            "part, in units of 1 / (4 a₁), and how far its 0.9 and 0.1 quantiles are apart.",
            panels=(
                _map("rise", rises, "ratio", "scale", "rise"),
                _map("rise", rises, "ratio", "factor", "rise"),
                _map("time to generalize", times, "ratio", "scale", "4 a₁ t"),
                _map("its spread", spread, "ratio", "factor", "4 a₁ Δt"),
            ),
        ),
    ]


def _map(title: str, values: xr.DataArray, x: str, y: str, label: str) -> Panel:
    """Draw a map over two coordinates, the others at their usual values."""
    others = {name: at for name, at in _AT.items() if name in values.dims and name not in (x, y)}
    shown = values.sel(others, method="nearest").transpose(y, x)
    (x_label, x_base), (y_label, y_base) = _LABELS[x], _LABELS[y]
    heat = Heat(
        x=np.log(shown[x].values) / np.log(x_base), y=np.log(shown[y].values) / np.log(y_base), z=shown.values,
        label=label,
    )  # fmt: skip
    return Panel(title=title, x=Axis(x_label), y=Axis(y_label), marks=(heat,))

"""Diagonal entries of a head's two products over time: names, limits and panels."""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Line, Panel, corners
from saddlescope.plot.rank_figures import PRODUCTS  # in the order of their diagonals in beta, each one half of it


def coordinates(run: xr.Dataset, product: str) -> range:
    """Return the coordinates of beta that are the diagonal of this product."""
    half = run.sizes["coordinate"] // 2
    first = half * list(PRODUCTS).index(product)
    return range(first, first + half)


def coordinate_name(run: xr.Dataset, coordinate: int) -> str:
    """Return a coordinate's name, such as VO 3: entry 3 of the diagonal of W_V W_Oᵀ."""
    product, index = divmod(coordinate, run.sizes["coordinate"] // 2)
    return f"{list(PRODUCTS)[product]} {index}"


def staircase(run: xr.Dataset, time: np.ndarray) -> np.ndarray:
    """Return beta on Algorithm 1's plateaus at these times, shape (times, coordinates); 0 at first."""
    stages = run.predicted_beta.transpose("stage", "coordinate").values
    levels = np.vstack([np.zeros(stages.shape[1]), stages])
    return levels[np.searchsorted(run.predicted_time.values, time, side="right")]


def flow_and_limit(time: np.ndarray, flow: np.ndarray, limit: np.ndarray, places: Iterable[int]) -> tuple[Line, ...]:
    """Draw these entries of the flow's beta and, dashed, of Algorithm 1's limit, both of shape (times, coordinates)."""
    drawn, tolerance = [], 2e-3 * float(abs(flow).max())
    for i in places:
        kept = corners(time, flow[:, i], tolerance)
        drawn.append(Line(x=time[kept], y=flow[kept, i], group="gradient flow", color=i, width=1.1))
    for i in places:
        kept = corners(time, limit[:, i], tolerance)
        drawn.append(Line(x=time[kept], y=limit[kept, i], group="Algorithm 1", color=i, style="dashed", width=0.8))
    return tuple(drawn)


def entry_panel(run: xr.Dataset, product: str, scale: float, *, begin: float = 0.0) -> Panel:
    """Draw one product's entries at one initial scale over rescaled time, with Algorithm 1's staircase dashed.

    Args:
        run: with beta over scale, time and coordinate, the predicted stages and the teacher.
        product: a key of `PRODUCTS`.
        scale: log10 of alpha, one of the run's.
        begin: the first time shown; a positive one makes the axis logarithmic.
    """
    time = run.time.values[run.time.values >= begin]
    beta = run.beta.sel(scale=scale, time=time).values
    return Panel(
        title=f"diagonal of {PRODUCTS[product]}, α = 1e{scale:g}",
        x=Axis("time of the flow / log(1/α)", scale="log" if begin > 0 else "linear"),
        y=Axis("entry"),
        marks=flow_and_limit(time, beta, staircase(run, time), coordinates(run, product)),
    )

"""Diagonal entries of a head's two products over time: names, limits and panels."""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Line, Panel, corners

PRODUCTS = {"KQ": "W_K W_Qᵀ", "VO": "W_V W_Oᵀ"}
"""The products, in the order of their diagonals in beta, each one half of it."""


def coordinates(run: xr.Dataset, product: str) -> range:
    """Return the coordinates of beta that are the diagonal of this product."""
    half = run.sizes["coordinate"] // 2
    first = half * list(PRODUCTS).index(product)
    return range(first, first + half)


def coordinate_name(run: xr.Dataset, coordinate: int) -> str:
    """Return a coordinate's name, such as VO 3: entry 3 of the diagonal of W_V W_Oᵀ."""
    product, index = divmod(coordinate, run.sizes["coordinate"] // 2)
    return f"{list(PRODUCTS)[product]} {index}"


def staircase(run: xr.Dataset) -> np.ndarray:
    """Return beta on Algorithm 1's plateaus at the run's times, shape (times, coordinates); 0 at first."""
    levels = np.vstack([np.zeros(run.sizes["coordinate"]), run.predicted_beta.values])
    return levels[np.searchsorted(run.predicted_time.values, run.time.values, side="right")]


def entry_panel(run: xr.Dataset, product: str, scale: float, *, begin: float = 0.0) -> Panel:
    """Draw one product's entries at one initial scale over rescaled time, with Algorithm 1's staircase dashed.

    Args:
        run: with beta over scale, time and coordinate, the predicted stages and the teacher.
        product: a key of `PRODUCTS`.
        scale: log10 of alpha, one of the run's.
        begin: the first time shown; a positive one makes the axis logarithmic.
    """
    late = run.time.values >= begin
    time, span = run.time.values[late], float(abs(run.teacher).max())

    def line(y: np.ndarray, i: int, group: str, **look: Any) -> Line:
        kept = corners(time, y, 2e-3 * span)
        return Line(x=time[kept], y=y[kept], group=group, color=i, **look)

    beta, limit = run.beta.sel(scale=scale).values[late], staircase(run)[late]
    these = coordinates(run, product)
    flow = [line(beta[:, i], i, "gradient flow", width=1.1) for i in these]
    theory = [line(limit[:, i], i, "Algorithm 1", style="dashed", width=0.8) for i in these]
    return Panel(
        title=f"diagonal of {PRODUCTS[product]}, α = 1e{scale:g}",
        x=Axis("time of the flow / log(1/α)", scale="log" if begin > 0 else "linear"),
        y=Axis("entry"),
        marks=(*flow, *theory),
    )

"""Estimates over both products of all heads of trained transformers, and metrics for maps over their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.plot import Band, Line
from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.reproduction import Estimate, Metric
from saddlescope.reproduction.claim import inside
from saddlescope.reproduction.formatting import measured


def worst(cases: Mapping[str, Estimate], *, low: float = -np.inf, high: float = np.inf) -> Estimate:
    """Return the case that decides a claim about all of them, with the values of all in its remark.

    One outside the bounds comes before one that is undecided, and that before one inside; among equals the one whose
    value is farthest out.
    """

    def key(one: Estimate) -> tuple[int, float]:
        margin = min(one.value - low, high - one.value)
        return [False, None, True].index(inside(one, low, high)), -np.inf if np.isnan(margin) else margin

    decides = min(cases.values(), key=key)
    return replace(
        decides, remark="; ".join(f"{name}: {measured(c.value, c.uncertainty)}" for name, c in cases.items())
    )


def worst_mean(
    cases: Mapping[str, xr.DataArray | np.ndarray], *, low: float = -np.inf, high: float = np.inf
) -> Estimate:
    """Return the mean over seeds, the trials, of the case that decides: heads of one network train together."""
    means = {name: Estimate.mean(np.asarray(values), over="seeds") for name, values in cases.items()}
    return worst(means, low=low, high=high)


def of_both(
    statistic: Callable[[xr.Dataset, str], xr.DataArray | np.ndarray],
    run: xr.Dataset,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Estimate:
    """Return the mean over seeds of a statistic of one product of the heads, for the product that decides the claim."""
    return worst_mean({name: statistic(run, product) for product, name in PRODUCTS.items()}, low=low, high=high)


def banded(
    x: np.ndarray, low: xr.DataArray, middle: xr.DataArray, high: xr.DataArray, name: str, color: int
) -> tuple[Band, Line]:
    """Draw a curve over a band of its spread."""
    band = Band(x=x, low=low.values, high=high.values, group=name, color=color)
    return (band, Line(x=x, y=middle.values, label=name, group=name, color=color))


def _last(
    name: str, variable: str, quantity: str, dim: str, *, unit: str = "", scale: Literal["linear", "log"] = "linear"
) -> Metric:
    """Return the last value of a variable, mean over seeds, as a metric."""
    statistic = lambda run: float(run[variable].isel({dim: -1}).mean())  # noqa: E731
    return Metric(name, f"{quantity}, mean over seeds", statistic, unit=unit, scale=scale)


_STABLE_RANK = Metric(
    "stable_rank",
    "stable rank of the updates in the end, mean over measurable heads",
    lambda run: float(run.stable_rank.where(run.measurable).isel(step=-1).mean()),
)

image_metrics = (
    _STABLE_RANK,
    _last("train_loss", "train_loss", "training loss of the last epoch", "epoch", scale="log"),
    _last("accuracy", "test_accuracy", "final test accuracy", "tested"),
)

language_metrics = (
    _STABLE_RANK,
    _last("train_loss", "train_loss", "final training loss", "test_step", unit="nats"),
    _last("test_loss", "test_loss", "final test loss", "test_step", unit="nats"),
)

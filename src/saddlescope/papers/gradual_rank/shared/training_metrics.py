"""Estimates over both products of all heads of trained transformers, and metrics for maps over their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.reproduction import Estimate, Metric
from saddlescope.reproduction.claim import Size, inside
from saddlescope.reproduction.formatting import measured

LONG: tuple[Size, ...] = ("default", "reduced", "paper")
"""The quick networks are too small, and trained too briefly, for their ranks to mean anything."""


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


def of_both(
    statistic: Callable[[xr.Dataset, str], xr.DataArray | np.ndarray],
    run: xr.Dataset,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> Estimate:
    """Return the mean over seeds of a statistic of one product of the heads, for the product that decides the claim.

    Seeds are the trials, since the heads of one network train together.
    """
    means = {
        name: Estimate.mean(np.asarray(statistic(run, product)), over="seeds") for product, name in PRODUCTS.items()
    }
    return worst(means, low=low, high=high)


_STABLE_RANK = Metric(
    name="stable_rank",
    quantity="stable rank of the updates in the end, mean over measurable heads",
    statistic=lambda run: float(run.stable_rank.where(run.measurable).isel(step=-1).mean()),
)

image_metrics = (
    _STABLE_RANK,
    Metric(
        name="train_loss",
        quantity="training loss of the last epoch, mean over seeds",
        statistic=lambda run: float(run.train_loss.isel(epoch=-1).mean()),
        scale="log",
    ),
    Metric(
        name="accuracy",
        quantity="final test accuracy, mean over seeds",
        statistic=lambda run: float(run.test_accuracy.isel(tested=-1).mean()),
    ),
)

language_metrics = (
    _STABLE_RANK,
    Metric(
        name="train_loss",
        quantity="final training loss, mean over seeds",
        statistic=lambda run: float(run.train_loss.isel(test_step=-1).mean()),
        unit="nats",
    ),
    Metric(
        name="test_loss",
        quantity="final test loss, mean over seeds",
        statistic=lambda run: float(run.test_loss.isel(test_step=-1).mean()),
        unit="nats",
    ),
)

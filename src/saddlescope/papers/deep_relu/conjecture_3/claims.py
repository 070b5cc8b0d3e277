"""Claims on layers of rank one until the second saddle."""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.layer_measurements import drop_fraction
from saddlescope.reproduction.claim import Claims, Estimate

_ESCAPE, _ARRIVAL = 0.10, 0.95

DEEP = 3  # layers from here on count as deep


def select_passages(run: xr.Dataset) -> list[xr.Dataset]:
    """Return, for each network that reaches the second saddle, its own layers from escape to arrival."""
    passages = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        if int(one.stages_found) < 2:
            continue
        one = one.sel(layer=slice(1, int(one.depth)))
        completed = drop_fraction(one, 1).values
        first, last = (int(np.argmax(completed >= part)) for part in (_ESCAPE, _ARRIVAL))
        passages.append(one.isel(mark=slice(first, last + 1)))
    return passages


def largest_over_passages(run: xr.Dataset, *, of: Callable[[xr.Dataset], float]) -> Estimate:
    """Return the largest value over all passages of a number of a passage."""
    passages = select_passages(run)
    if not passages:
        return Estimate.unresolved("No network reaches the second saddle; take more steps.")
    marks = min(one.sizes["mark"] for one in passages)
    found = f"{len(passages)} of {run.sizes['network']} networks, {marks} or more stored steps in a passage"
    return Estimate(float(max(of(one) for one in passages)), remark=found)


def _deep(one: xr.Dataset) -> xr.Dataset:
    return one.sel(layer=slice(DEEP, None))


def most_above_bulk(one: xr.Dataset) -> float:
    """Return the largest count of singular values above the bulk in a deep layer."""
    return float(_deep(one).above_bulk.max())


def second_layer_above_bulk(one: xr.Dataset) -> float:
    """Return the largest count of singular values above the bulk in the second layer."""
    return float(one.above_bulk.sel(layer=slice(2, DEEP - 1)).max())


def plateau_rank_error(one: xr.Dataset) -> float:
    """Return the largest distance from one of a deep layer's rank on the plateau of the second saddle."""
    return float(abs(_deep(one).stage_layer_rank.sel(stage=1) - 1).max())


def ratio_growth(one: xr.Dataset) -> float:
    """Return the largest ratio of s_2/s_1 at the arrival to that at the escape, over deep layers."""
    ratio = _deep(one).second_ratio
    return float((ratio.isel(mark=-1) / ratio.isel(mark=0)).max())


def activation_tail(one: xr.Dataset) -> float:
    """Return the largest tail energy of the activations of a deep layer."""
    return float(_deep(one).tail_activations.max())


def nonlinearity_at_arrival(one: xr.Dataset) -> float:
    """Return the largest |Z^s - Z| / |Z| of a deep layer at the arrival."""
    return float(_deep(one).nonlinearity.isel(mark=-1).max())


def _first_layer(one: xr.Dataset) -> float:
    return -float(one.second_ratio.sel(layer=1).isel(mark=-1))


_PILOT = "section 5, hypothesis 3; the bound from runs on other seeds"

claims = Claims()

claims.add(
    "rank-one",
    "From the escape to the arrival at the second saddle no layer from the third on has more than one singular value above its initial bulk",
    quantity="the most that one has",
    kind="printed",
    source="section 5, hypothesis 3: layers of rank one remain so",
    high=1.0,
)(partial(largest_over_passages, of=most_above_bulk))

claims.add(
    "plateau",
    "On the plateau of the second saddle the layers from the third on are found to have rank one",
    quantity="the largest difference",
    kind="printed",
    source="section 5, hypothesis 3",
    high=0.0,
)(partial(largest_over_passages, of=plateau_rank_error))

claims.add(
    "sharper",
    "They even come nearer to rank one on the way",
    quantity="s_2/s_1 at the arrival over that at the escape, largest",
    kind="own",
    source="beyond the paper; this project's bar",
    high=1.0,
)(partial(largest_over_passages, of=ratio_growth))

claims.add(
    "activations",
    "So do the activations",
    quantity="the largest tail energy sum_(i>=2) s_i^2 / sum s_i^2 of Z^s in layers from the third on during the passage",
    kind="printed",
    source=_PILOT,
    high=0.01,
)(partial(largest_over_passages, of=activation_tail))

claims.add(
    "linear",
    "And the layers stay nearly linear",
    quantity="largest |Z^s - Z| / |Z| at the arrival in layers from the third on",
    kind="printed",
    source=_PILOT,
    high=0.15,
)(partial(largest_over_passages, of=nonlinearity_at_arrival))

claims.add(
    "second-layer",
    "The same for the second layer, which Theorem 3.1 does not bring near rank one",
    quantity="singular values above its initial bulk during the passage, most",
    kind="printed",
    source="a sharper form than the paper's: all layers but the first",
    high=1.0,
)(partial(largest_over_passages, of=second_layer_above_bulk))


@claims.add(
    "first-layer",
    "The first layer is not of rank one at the second saddle",
    quantity="least s_2/s_1 at the arrival",
    kind="printed",
    source="section 4 and Figure 1: the first layers have a higher rank; the bound from runs on other seeds",
    low=0.15,
)
def least_first_layer_ratio(run: xr.Dataset) -> Estimate:
    """Return the least s_2/s_1 of the first layer at the arrival."""
    largest = largest_over_passages(run, of=_first_layer)
    return Estimate(-largest.value, largest.uncertainty, largest.remark)

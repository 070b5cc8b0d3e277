"""Claims and metrics of the entry `deep_stages`."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric


# The bounds come from a pilot on seeds 200 to 215, by another integrator, at depths 2, 3 and 4: of the stage that is
# worst in each run, the median error was 8e-4, 4e-4 and 6e-4 at scale .01, the largest .013; at scale .1 the medians
# were .022, .019 and .029. With five starts they may come out a few times as large.
def worst_errors(run: xr.Dataset, scale: float) -> np.ndarray:
    """Return the relative error of the worst stage, (depth, start)."""
    return abs(run.predicted / run.found - 1).sel(scale=scale).max("concept", skipna=False).values


def _by_depth(run: xr.Dataset, values: np.ndarray) -> str:
    """Return values by depth as a string."""
    return ", ".join(f"{int(depth)}: {value:.2g}" for depth, value in zip(run.depth.values, values, strict=True))


_PILOT = "this project's prediction; bound from a pilot on seeds 200 to 215"

claims = Claims()


@claims.add(
    "median",
    "Stage times from random starts, smallest scale",
    quantity="median error of a start's worst stage, worst depth",
    kind="printed",
    source=f"{_PILOT}: .0008",
    high=0.005,
)
def median_error(run: xr.Dataset) -> Estimate:
    """Return the median error of a start's worst stage at the smallest scale, worst depth."""
    scale = float(run.scale.min())
    medians = np.median(worst_errors(run, scale), axis=1)
    return Estimate(float(np.max(medians)), remark=f"scale {scale:g}; depths: {_by_depth(run, medians)}")


@claims.add(
    "largest",
    "The same",
    quantity="largest error of any stage of any start",
    kind="printed",
    source=f"{_PILOT}: .013",
    high=0.04,
)
def largest_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of any stage at the smallest scale."""
    scale = float(run.scale.min())
    return Estimate(
        float(np.max(worst_errors(run, scale))), remark=f"scale {scale:g}, {run.sizes['start']} starts a depth"
    )


@claims.add(
    "leading-order",
    "The median error falls at least as fast as the scale",
    quantity="factor of the error over that of the scale",
    kind="printed",
    source="the prediction is the leading order for small weights; a pilot had 2.7 or more",
    low=1.0,
)
def error_over_scale(run: xr.Dataset) -> Estimate:
    """Return the fall of the median error from the largest scale to the smallest, over that of the scale."""
    ends = float(run.scale.max()), float(run.scale.min())
    large, small = (np.median(worst_errors(run, scale), axis=1) for scale in ends)
    return Estimate(
        float(np.min(large / small)) / (ends[0] / ends[1]), remark=f"depths: {_by_depth(run, large / small)}"
    )


@claims.add(
    "order",
    "The order of learning is the one predicted",
    quantity="share of the starts at the smallest scale",
    kind="printed",
    source=f"{_PILOT}: all",
    low=1.0,
    high=1.0,
)
def same_order(run: xr.Dataset) -> Estimate:
    """Return the share of starts with the predicted order of learning, smallest scale."""
    scale = float(run.scale.min())
    orders = [np.argsort(run[name].sel(scale=scale).values, axis=-1) for name in ("predicted", "found")]
    return Estimate(float(np.mean(np.all(orders[0] == orders[1], axis=-1))), remark=f"scale {scale:g}")


@claims.add(
    "power-law",
    "Beyond depth 2 the times of the first and the last stage grow as omega^(2 - L)",
    quantity="distance of the exponent",
    kind="own",
    source="this project's prediction; a tenth for constants of the order 1/a in T",
    high=0.1,
)
def exponent_error(run: xr.Dataset) -> Estimate:
    """Return the distance of d log T / d log(1/omega) from L - 2 beyond depth 2, first and last stage."""
    deep = run.found.sel(depth=run.depth > 2)
    scales = np.log(run.scale.values)
    ends = deep.min("concept"), deep.max("concept")
    slopes = [
        -np.polyfit(scales[-2:], np.log(end.transpose("scale", ...).values[-2:]).reshape(2, -1), 1)[0] for end in ends
    ]
    wanted = np.repeat(deep.depth.values - 2, run.sizes["start"])
    return Estimate(float(np.median(abs(np.array(slopes) - wanted), axis=1).max()), remark="median over starts")


@claims.add(
    "balanced",
    "From balanced diagonal starts the times are those in closed form",
    quantity="largest error in the flow's tolerances",
    kind="printed",
    source="exact; the flow promises up to 3 times its tolerance",
    high=5.0,
)
def balanced_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of times from diagonal starts, in tolerances of the flow."""
    return Estimate(float(abs(run.diagonal_found / run.diagonal_predicted - 1).max()) / run.tolerance)


@claims.add(
    "flip",
    "Beyond depth 2 a weaker concept comes first where a_k u_k^(L - 2) is larger, u_k in each layer",
    quantity="share",
    kind="own",
    source="this project's prediction, to leading order",
    low=1.0,
    high=1.0,
)
def flips(run: xr.Dataset) -> Estimate:
    """Return the share of the diagonal starts beyond depth 2 with the order of a_k r_k^(L - 2)."""
    right = []
    for depth in run.depth.values[run.depth.values > 2]:
        gap = run.diagonal_found.sel(depth=depth)
        weaker_first = (gap.sel(pair="weaker") < gap.sel(pair="stronger")).values
        a = run.pair_strength.values
        right.append(weaker_first == (a[0] * run.ratio.values ** (depth - 2) > a[1]))
    return Estimate(float(np.mean(right)), remark=f"{np.size(right)} starts")


@claims.add(
    "turning-rate",
    "A weaker concept learned first is given up at the rate predicted",
    quantity="measured over predicted",
    kind="own",
    source="this project's prediction, linear; a twentieth",
    low=0.95,
    high=1.05,
)
def turning_rate(run: xr.Dataset) -> Estimate:
    """Return the measured rate at which the weaker concept is given up, over the predicted one."""
    waits = (run.noisy_found.sel(pair="stronger") - run.noisy_found.sel(pair="weaker")).values
    rate = np.log(run.noise.values[0] / run.noise.values[-1]) / (waits[-1] - waits[0])
    return Estimate(float(rate / run.turning_rate), remark=f"predicted {float(run.turning_rate):.4g}")


@claims.add(
    "forgotten",
    "It is forgotten then",
    quantity="what is left of its w_kk when the stronger one is learned",
    kind="own",
    source="this project's prediction: 0 to leading order",
    high=0.05,
)
def remainder(run: xr.Dataset) -> Estimate:
    """Return the smallest w_kk of the weaker concept after the stronger one's stage, largest over noises."""
    found, left = run.noisy_found, []
    for noise in run.noise.values:
        after = run.noisy_time > float(found.sel(noise=noise, pair="stronger"))
        left.append(float(run.noisy_w.sel(noise=noise, pair="weaker").where(after).min()))
    return Estimate(
        max(left), remark=f"after it was at least {float(run.noisy_w.sel(pair='weaker').max('noisy_mark').min()):.3f}"
    )


metrics = (
    Metric(
        name="time_error",
        quantity="stage times off the prediction at the smallest scale, largest relative",
        statistic=lambda run: float(abs(run.found.isel(scale=-1) / run.predicted.isel(scale=-1) - 1).max()),
        scale="log",
    ),
    Metric(
        name="last_time",
        quantity="time of the last stage at the smallest scale, mean over depths and starts",
        statistic=lambda run: float(run.found.isel(scale=-1).max("concept").mean()),
        scale="log",
    ),
)

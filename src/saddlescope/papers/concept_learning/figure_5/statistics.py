"""Statistics behind the claims of the entry `figure_5`."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index, phase_mask, push_share
from saddlescope.reproduction.claim import Estimate

SEEN = 0.01  # of the first loss: a rise that can be seen


def descent_count(run: xr.Dataset) -> Estimate:
    """Return the number of descents at a hysteresis of .01."""
    from saddlescope.measure import find_descents

    found = find_descents(run.turning_loss.values, hysteresis=SEEN)
    x = run.test_point.values
    return Estimate(float(found.counts[0]), remark=f"rise {found.rises.max() / (x @ x / 2):.3f} of |x|^2 / 2")


def suppression_share(run: xr.Dataset) -> Estimate:
    """Return the share of the shrinking minor entry in the drivers of the rise."""
    shares = push_share(run, rising=True, of=phase_mask(run, minor=True, phase="shrinks"))
    return Estimate(float(shares[0])) if len(shares) else Estimate.unresolved("The loss does not rise.")


def shrinking_time(run: xr.Dataset) -> Estimate:
    """Return the part of the rise's time between the peak of |w_12| and its suppression."""
    rises = np.flatnonzero(np.diff(run.turning_loss.values) > 0)
    if not len(rises):
        return Estimate.unresolved("The loss does not rise.")
    first, last = run.turning_time.values[rises[-1] : rises[-1] + 2]
    peak = float(run.top[entry_index(run, 0, 1)])
    remark = f"the loss rises from {first:.3f} to {last:.3f}, |w12| peaks at {peak:.3f}"
    return Estimate((last - max(first, peak)) / (last - first), remark=remark)


def last_fall_share(run: xr.Dataset) -> Estimate:
    """Return the share of the weak concept's major entry in the drivers of the last descent."""
    weak = int(np.argmin(run.strength.values))
    of = np.zeros((run.sizes["entry"], 2), bool)
    of[entry_index(run, weak, weak), 0] = True
    return Estimate(float(push_share(run, rising=False, of=of)[-1]))


def reversal(run: xr.Dataset) -> Estimate:
    """Return the largest fall of the weak concept's output, in units of its goal."""
    weak = int(np.argmin(run.strength.values))
    f = run.output.values[:, weak]
    back = np.maximum.accumulate(f) - f
    return Estimate(float(back.max() / run.test_point[weak]), remark=f"f_{weak + 1} goes back after it has risen")


def stage_time_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of a predicted stage time."""
    off = [float(abs(run.top[entry_index(run, k, k)] - run.predicted_time[k])) for k in range(run.sizes["row"])]
    return Estimate(max(off), remark=", ".join(f"{one:.4f}" for one in off))


def peak_error(run: xr.Dataset) -> Estimate:
    """Return the relative error of the predicted height of the minor entry."""
    n = entry_index(run, 0, 1)
    off = float(run.top[n] - run.predicted_peak_time[0, 1])
    return Estimate(abs(float(run.height[n] / run.predicted_peak[0, 1]) - 1), remark=f"its time is off by {off:.4f}")


def rise_share(run: xr.Dataset, *, law: str, scale: int, hysteresis: float) -> Estimate:
    """Return the share of random starts with a rise above a height."""
    rises = run.rise.sel(law=law).isel(scale=scale).values
    remark = f"{len(rises)} starts of scale {float(run.scale[scale]):g}"
    return Estimate.share(float((rises > hysteresis).sum()), len(rises), remark)


def positive_share(run: xr.Dataset) -> Estimate:
    """Return the share of w_12(0) > 0 among normal starts with two descents."""
    one = run.sel(law="normal").isel(scale=0)
    two = one.rise.values > 0
    if not two.any():
        return Estimate.unresolved("No start has two descents.")
    of_all = float(one.positive.values.mean())
    return Estimate.share(float(one.positive.values[two].sum()), float(two.sum()), f"of all starts {of_all:.3f}")

"""Statistics behind the claims of the entry `figure_10`."""

import xarray as xr

from saddlescope.papers.concept_learning.figure_10.simulations import LIKE
from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index
from saddlescope.reproduction.claim import Estimate


def case_value(run: xr.Dataset, *, case: str, name: str) -> Estimate:
    """Return a number stored for the plateau or for the deficient start."""
    return Estimate(float(run[name].sel(case=case)))


def deficient_loss_error(run: xr.Dataset) -> Estimate:
    """Return the distance of the final loss of the deficient start from that of a network without one concept."""
    one = run.sel(case="deficient")
    return Estimate(abs(float(one.end_loss) - float(run.lost_loss)), remark=f"predicted {float(one.limit_loss):.6f}")


def never_learned(run: xr.Dataset) -> Estimate:
    """Return the number of starts of full rank that never learn a concept."""
    faults = int(run.faults.sel(moment="A"))
    return Estimate(float(run.never.sel(moment="A")), remark=f"of {run.sizes['start_of']}; {faults} not to be trusted")


def learned_share(run: xr.Dataset) -> Estimate:
    """Return the share of starts that have learned all at the last time."""
    share = run.learned_share.sel(moment="A").values
    full = run.batch_time.values[share == 1.0]
    return Estimate(float(share[-1]), remark=f"all by t = {full[0]:.3g}" if len(full) else "not all by the last time")


def horizon_loss_error(run: xr.Dataset, *, case: str) -> Estimate:
    """Return the relative distance of the loss at the horizon from that without the weakest concept."""
    loss, lost = float(run.horizon_loss.sel(case=case)), float(run.lost_loss)
    weakest = run.W.sel(case=case)[:, 0, 0].values
    remark = f"loss {loss:.4f}; w_11 {weakest[0]:.2g} at the start, {weakest.min():.2g} at the lowest"
    return Estimate(abs(loss / lost - 1), remark=remark)


def lowest_over_first(run: xr.Dataset) -> Estimate:
    """Return the lowest w_11 of the plateau over the first one."""
    weakest = run.W.sel(case="plateau")[:, 0, 0].values
    return Estimate(float(weakest.min() / weakest[0]))


def _half_time(run: xr.Dataset) -> float:
    """Return when w_11 of the plateau passes 1/2."""
    one = run.sel(case="plateau")
    return float(one.top[entry_index(one, 0, 0)])


def predicted_time_error(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the error of a predicted time of w_11 = 1/2."""
    one = run.sel(case="plateau")
    said = float(one[name] if one[name].ndim == 0 else one[name][0])
    return Estimate(
        abs(_half_time(run) - said), remark=f"w_11 = 1/2 at {_half_time(run):.6f}, said to be at {said:.6f}"
    )


def wrong_endings(run: xr.Dataset) -> Estimate:
    """Return how many of three endings that the flows report are wrong."""
    remark = (
        run.horizon_ending.sel(case="plateau"),
        run.ending.sel(case="plateau"),
        run.ending.sel(case="deficient"),
    )
    wanted = (1, 0, 2)  # `Ending`: a plateau, learned, rank deficient
    return Estimate(float(sum(int(one) != want for one, want in zip(remark, wanted, strict=True))))


def indefinite_share(run: xr.Dataset) -> Estimate:
    """Return the share of runs of the printed map that lose positive semidefiniteness."""
    remark = f"{float(run.blown_up.mean()):.3f} blow up"
    return Estimate.share(float(run.indefinite.sum()), run.sizes["map_start"], remark)


def map_runs_like_figure(run: xr.Dataset) -> Estimate:
    """Return the number of runs of the printed map that end with a loss like mu_1^2 / 2."""
    like = abs(run.map_end_loss / run.lost_loss - 1) < LIKE
    return Estimate(float(like.sum()), remark=f"of {run.sizes['map_start']}, at twice the horizon")


def start_share(run: xr.Dataset, *, moment: str, name: str) -> Estimate:
    """Return a share of the random starts."""
    starts = run.sizes["start_of"]
    remark = f"loss within 2 % of {float(run.lost_loss):.3f}: {float(run.like.sel(moment=moment)):.3f}"
    return Estimate.share(float(run[name].sel(moment=moment)) * starts, starts, remark)

"""Statistics of the agreement of formulations and of the failures of naive gradients."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

PAIRS = ("diagonal, ξ", "diagonal, w", "W alone", "K, Q")


WRONG = 1e-3  # error of a direction beyond which a run counts as wrong


ALARM = 0.05  # energy defect beyond which the balance raises an alarm


def distance_of_pair(pair: str, run: xr.Dataset) -> Estimate:
    """Return the largest relative distance of the directions of one pair of formulations."""
    cases = run.isel(case=[name == pair for name in run.pair.values.tolist()])
    each = ", ".join(
        f"{float(row.max()):.1e} at 1e{row.log10_time.item():g}" for row in cases.apart.transpose("time", ...)
    )
    ours, theirs = int(cases.evaluations.max()), int(cases.twin_evaluations.max())
    return Estimate(float(cases.apart.max()), remark=f"{each}; {ours} evaluations against {theirs}")


def _is_wrong(run: xr.Dataset) -> np.ndarray:
    """Return True for each run that was reported as a success and is wrong."""
    return (run.says_success.values == 1) & (run.error.values > WRONG)


def silent_failures(kind: str, run: xr.Dataset) -> Estimate:
    """Count the runs with one kind of gradient that were reported as a success and are wrong."""
    of_kind = run.sel(kind=kind)
    wrong = _is_wrong(of_kind)
    called = int(np.sum(of_kind.says_success.values == 1))
    worst = float(np.max(of_kind.error.values[wrong], initial=0.0))
    return Estimate(float(wrong.sum()), remark=f"of {wrong.size} runs, {called} called a success; worst {worst:.2g}")


def caught_share(run: xr.Dataset) -> Estimate:
    """Return the share of wrong runs reported as a success that the energy balance catches."""
    wrong = _is_wrong(run)
    if not wrong.any():
        return Estimate.unresolved("No run of this size was called a success and wrong.")
    defects = run.defect.values[wrong]
    return Estimate(
        float((~(defects <= ALARM)).mean()), remark=f"{len(defects)} runs; least defect {defects.min():.2g}"
    )


def false_alarms(run: xr.Dataset) -> Estimate:
    """Count the right runs at which the energy balance raises an alarm."""
    right = (run.says_success.values == 1) & (run.error.values <= WRONG)
    if not right.any():
        return Estimate.unresolved("No run of this size was right.")
    defects = run.defect.values[right]
    return Estimate(float((defects > ALARM).sum()), remark=f"{len(defects)} runs; largest defect {defects.max():.2g}")

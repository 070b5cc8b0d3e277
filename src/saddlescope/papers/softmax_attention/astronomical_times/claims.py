"""Claims on the agreement of formulations, on silent failures, and on the energy balance."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind

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


claims = Claims()

claims.extend(
    (
        Claim(
            name=f"agree-{name}",
            statement=f"Both ways of following {what} agree on the direction",
            quantity="largest relative distance",
            kind=Kind.OWN,
            source="This project's bar at t = 1e10, 1e100 and 1e300",
            high=1e-9,
            statistic=partial(distance_of_pair, pair),
        )
        for name, what, pair in (
            ("xi", "diagonal weights, xi_k and xi_q against phi,", "diagonal, ξ"),
            ("w", "diagonal weights, w_+ and w_- against phi,", "diagonal, w"),
            ("matrix", "W alone, itself against phi,", "W alone"),
            ("keys-queries", "K and Q, themselves against reduced,", "K, Q"),
        )
    )
)

claims.add(
    "autodiff-is-silent",
    "As first posed: automatic differentiation ends in successes off by more than 1e-3",
    quantity="number of runs",
    kind="printed",
    source="Pilots on seeds 1 and 2: 8 of 10 on the second, all off by 16 %; counted over the runs here, exact",
    low=1.0,
)(partial(silent_failures, "autodiff"))

claims.add(
    "formula-is-silent",
    "Posed after that failed: the formula of appendix A.1 does",
    quantity="number of runs",
    kind="printed",
    source="Pilots on seeds 10 to 15: 5 of 18, off by 1 to 11 %; counted over the runs here, exact",
    low=1.0,
)(partial(silent_failures, "formula"))


@claims.add(
    "balance-catches",
    "The energy balance is off by more than 5 % in every run that was called a success and is wrong",
    quantity="part",
    kind="printed",
    source="Pilots on seeds 1 and 2, where it was off by 50 % or more; counted over the runs here, exact",
    low=1.0,
)
def caught_share(run: xr.Dataset) -> Estimate:
    """Return the share of wrong runs reported as a success that the energy balance catches."""
    wrong = _is_wrong(run)
    if not wrong.any():
        return Estimate.unresolved("No run of this size was called a success and wrong.")
    defects = run.defect.values[wrong]
    return Estimate(
        float((~(defects <= ALARM)).mean()), remark=f"{len(defects)} runs; least defect {defects.min():.2g}"
    )


@claims.add(
    "no-false-alarm",
    "And in no run that is right, at the same rtol",
    quantity="number of alarms",
    kind="printed",
    source="Pilots on seeds 1 and 2, where it was off by 0.12 % at most; counted over the runs here, exact",
    high=0.0,
)
def false_alarms(run: xr.Dataset) -> Estimate:
    """Count the right runs at which the energy balance raises an alarm."""
    right = (run.says_success.values == 1) & (run.error.values <= WRONG)
    if not right.any():
        return Estimate.unresolved("No run of this size was right.")
    defects = run.defect.values[right]
    return Estimate(float((defects > ALARM).sum()), remark=f"{len(defects)} runs; largest defect {defects.max():.2g}")

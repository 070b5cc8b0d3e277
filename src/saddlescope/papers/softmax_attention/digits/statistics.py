"""Statistics of the norms that the flows minimise on digits."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

FLOWS = ("keys and queries", "W alone", "diagonal")


MINIMISED_NORMS = ("nuclear", "Frobenius", "nuclear")  # the norm that section 4.2 has each of them minimise


_MANY = 10  # pairs needed to conclude that none is lost


def count(name: str, run: xr.Dataset) -> Estimate:
    """Count the pairs of which a property holds."""
    return Estimate(float(run[name].sum()), remark=f"of {run.sizes['pair']} pairs")


def exceptions(flow: int, run: xr.Dataset) -> Estimate:
    """Count the directions of a flow that were decided for the other norm than its own."""
    outcomes = run.outcome.isel(flow=flow).values.tolist()
    remark = ", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(sorted(outcomes)))
    other = "Frobenius" if MINIMISED_NORMS[flow] == "nuclear" else "nuclear"
    if not {"nuclear", "Frobenius"} & set(outcomes):
        return Estimate.unresolved(f"No direction was decided: {remark}.")
    return Estimate(float(outcomes.count(other)), remark=remark)


def decided_share(flow: int, run: xr.Dataset) -> Estimate:
    """Return the share decided for the flow's norm, among flows that choose every optimal patch."""
    outcomes = run.outcome.isel(flow=flow).values.tolist()
    chosen = [name for name in outcomes if name in ("nuclear", "Frobenius", "undecided")]
    if not chosen:
        return Estimate.unresolved("Every flow was lost or not followed.")
    return Estimate(
        chosen.count(MINIMISED_NORMS[flow]) / len(chosen),
        remark=f"{chosen.count(MINIMISED_NORMS[flow])} of {len(chosen)} pairs",
    )


def lost_pairs(flow: int, run: xr.Dataset) -> Estimate:
    """Count the pairs in which a flow is lost."""
    outcomes = run.outcome.isel(flow=flow).values.tolist()
    if len(outcomes) < _MANY and "lost" not in outcomes:
        return Estimate.unresolved(f"None of {len(outcomes)} pairs, too few to say that there is none.")
    return Estimate(
        float(outcomes.count("lost")), remark=f"of {len(outcomes)}; {outcomes.count('unfollowed')} unfollowed"
    )


def rank_exceptions(run: xr.Dataset) -> Estimate:
    """Count the pairs in which the solution of least nuclear norm has no lower rank."""
    of = run.isel(pair=run.separable.values)
    nuclear, frobenius = (of["rank"].sel(norm=name).values for name in ("nuclear", "Frobenius"))
    remark = f"of {len(nuclear)}; medians {np.median(nuclear):g} and {np.median(frobenius):g}"
    return Estimate(float(np.sum(nuclear >= frobenius)), remark=remark)

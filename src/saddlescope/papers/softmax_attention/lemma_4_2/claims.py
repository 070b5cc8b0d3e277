"""Claims on when diagonal weights diverge, and how fast."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

SETTLED = 2.0  # log10 t until when a flow that stays finite is followed; its minimum is then found by Newton's method

RANDOM_WEIGHTS = 100  # random weights of each instance at which the inequality of the proof is tried


def select_instances(run: xr.Dataset, diagonal: bool) -> xr.Dataset:
    """Return the instances that diagonal weights separate, or the others."""
    return run.isel(instance=[("no diagonal" not in kind) == diagonal for kind in run.kind.values.tolist()])


def _values_at(values: xr.DataArray, log10_time: float) -> np.ndarray:
    return values.values[:, values.log10_time.values.tolist().index(log10_time)]


claims = Claims()


@claims.add(
    "as-printed",
    "Where some W separates the data, |beta(t)| tends to infinity",
    quantity="flows that end at a finite strict minimum",
    kind="printed",
    source="Lemma 4.2 under Assumptions 1 and 2 as printed; no exception is allowed",
    high=0.0,
)
def finite_flows(run: xr.Dataset) -> Estimate:
    """Count the flows on inseparable instances that end at a strict minimum."""
    chosen = select_instances(run, diagonal=False)
    finite = int(chosen.limit.notnull().sum())
    open_ends = int((chosen.limit.isnull() & chosen.size.isel(time=-1).isnull()).sum())
    return Estimate(
        float(finite),
        remark=f"{finite} of {chosen.sizes['instance']} end at a strict minimum; {open_ends} were not decided",
    )


@claims.add(
    "with-diagonal-separability",
    "Where diagonal weights do, it does",
    quantity="flows whose |beta| does not double from t = 1e30 to 1e300",
    kind="printed",
    source="Lemma 4.2 with what its proof uses; |beta| grows like ln t, tenfold. No exception is allowed",
    high=0.0,
)
def flows_that_do_not_double(run: xr.Dataset) -> Estimate:
    """Count the flows whose |beta| does not double from t = 1e30 to 1e300."""
    chosen = select_instances(run, diagonal=True)
    late, later = _values_at(chosen["size"], 30.0), _values_at(chosen["size"], 300.0)
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    lost = int((chosen.log_excess > -10).sum())
    return Estimate(
        float(sum(later < 2 * late)),
        remark=f"of {len(late)}, {lost} of which have lost samples; least ratio {min(later / late):.3g}",
    )


@claims.add(
    "gradient-vanishes",
    "lim |grad L| = 0, not just the lower limit",
    quantity="flows whose t |grad L| does not fall from t = 1e30 to 1e300",
    kind="printed",
    source="Lemma 4.2's proof; t |grad L| falls like 1 / ln t, tenfold. No exception is allowed",
    high=0.0,
)
def gradients_that_do_not_fall(run: xr.Dataset) -> Estimate:
    """Count the flows whose t |grad L| does not fall from t = 1e30 to 1e300."""
    slowness = select_instances(run, diagonal=True).slowness
    late, later = _values_at(slowness, 30.0) / 30, _values_at(slowness, 300.0) / 300
    if not all(value == value for value in later):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(sum(later >= late)), remark=f"of {len(late)}; largest ratio {max(later / late):.3g}")


@claims.add(
    "gradient-law",
    "It does so like 1/(2 t ln t), as first posed",
    quantity="largest |2 t ln t |grad L| - 1| at t = 1e300",
    kind="own",
    source="The law of beta growing like ln t; the bound is this project's, for corrections of ln ln t / ln t",
    high=0.1,
)
def slowness_error(run: xr.Dataset) -> Estimate:
    """Return the largest |2 t ln t |grad L| - 1| at t = 1e300."""
    values = _values_at(select_instances(run, diagonal=True).slowness, 300.0)
    if not all(value == value for value in values):
        return Estimate.unresolved("A flow did not come to t = 1e300.")
    return Estimate(float(max(abs(values - 1))), remark=f"2 t ln t |grad L| is {min(values):.4g} to {max(values):.4g}")


@claims.add(
    "no-stationary-point",
    "<-grad L, beta_f> >= sum r > 0 at any weights, with beta_f feasible",
    quantity="random weights that violate it",
    kind="printed",
    source="Appendix A.4, below equation 29, exact; so the loss has no stationary point",
    high=0.0,
)
def violations(run: xr.Dataset) -> Estimate:
    """Count the random weights that violate the inequality of the proof."""
    chosen = select_instances(run, diagonal=True)
    return Estimate(
        float(chosen.violations.sum()), remark=f"of {RANDOM_WEIGHTS * chosen.sizes['instance']} weights, up to 1e6"
    )

"""Claims and metrics of the entry `theorem_4_1`."""

from functools import partial

import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric


def sgd_errors(run: xr.Dataset, prediction: str, bias: bool) -> xr.DataArray:
    """Return the largest deviation of each run from a prediction, (task, seed)."""
    one = run.sel(bias=bias)
    return abs(one.output - one[prediction]).max(("step", "concept"))


def mean_sgd_error(run: xr.Dataset, prediction: str, bias: bool) -> Estimate:
    """Return the largest error of a run, mean over runs, on the task where that is largest."""
    if bool(run.diverged.any()):
        return Estimate.unresolved("A run diverged.")
    errors = sgd_errors(run, prediction, bias)
    one = errors.isel(task=errors.mean("seed").argmax("task"))
    return Estimate.mean(one.values, f"{one.task.item()}; smallest task {float(errors.mean('seed').min()):.3f}")


claims = Claims()


# The bounds: closed form against DOP853 at 1e-13 has 1e-11 to spare; .02 is this project's bar for SGD.
@claims.add(
    "closed-form",
    "Equation 4.2 with the sum over all d is the flow of equation 4.1, at any z from any W0",
    quantity="largest error",
    kind="printed",
    source="Theorem 4.1, corrected; exact, DOP853 at 1e-13",
    high=1e-11,
)
def closed_form_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of the corrected closed form."""
    return Estimate(float(abs(run.corrected - run.exact).max()), remark=f"{run.sizes['flow']} starts and points")


@claims.add(
    "printed-sum",
    "Equation 4.2 as printed, with the sum over the s concepts, is it, at any z",
    quantity="largest error",
    kind="printed",
    source="Theorem 4.1 as printed, 'for any z'; exact",
    high=1e-11,
)
def printed_sum_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 4.2 as printed, at any point."""
    return Estimate(float(abs(run.printed - run.exact).max()))


@claims.add(
    "at-the-test-point",
    "As printed it is right at the test point, which is in the span of the concepts",
    quantity="largest error",
    kind="printed",
    source="Theorem 4.1; exact",
    high=1e-11,
)
def test_point_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 4.2 as printed, at the test point."""
    return Estimate(float(abs(run.at_test_point).max()))


@claims.add(
    "noise-bound-printed",
    "The noise of output k is at most sum_i w_ki(0) mu_i",
    quantity="largest excess",
    kind="printed",
    source="Section 4.1, (iii) as printed",
    high=1e-11,
)
def printed_bound_excess(run: xr.Dataset) -> Estimate:
    """Return the largest excess of the noise over the printed bound."""
    return Estimate(float((run.noise - run.start_part.sum("part")).max()))


@claims.add(
    "noise-bound",
    "The noise of output k is in size at most sum_i |w_ki(0)| mu_i",
    quantity="largest excess",
    kind="printed",
    source="Section 4.1, (iii) corrected",
    high=1e-11,
)
def absolute_bound_excess(run: xr.Dataset) -> Estimate:
    """Return the largest excess of the noise over the bound with absolute values."""
    return Estimate(float((abs(run.noise) - abs(run.start_part).sum("part")).max()))


claims.add(
    "sgd",
    "SGD at d = 64 with biases follows the theorem, with A of the samples",
    quantity="mean largest error, worst task",
    kind="own",
    source="Theorem 4.1 and Figure 2, from the actual start; this project's bar",
    high=0.02,
)(partial(mean_sgd_error, prediction="empirical", bias=True))

claims.add(
    "sgd-without-biases",
    "The same without biases",
    quantity="value",
    kind="own",
    source="Theorem 4.1; this project's bar",
    high=0.02,
)(partial(mean_sgd_error, prediction="empirical", bias=False))

claims.add(
    "sgd-in-the-limit",
    "The same with biases and A of infinitely many samples",
    quantity="value",
    kind="own",
    source="Theorem 4.1, for large n; this project's bar",
    high=0.02,
)(partial(mean_sgd_error, prediction="limit", bias=True))


@claims.add(
    "sgd-largest",
    "SGD with biases, A of the samples",
    quantity="largest error of all runs, to which minibatches add",
    kind="own",
    source="this project's bar, which a pilot of 18 runs on seeds 100 to 105 kept with .011",
    high=0.02,
)
def largest_sgd_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of all runs with biases, with A of the samples."""
    if bool(run.diverged.any()):
        return Estimate.unresolved("A run diverged.")
    errors = sgd_errors(run, "empirical", True)
    by_task = ", ".join(
        f"{float(error):.3f} at {task}" for task, error in zip(errors.task.values, errors.max("seed"), strict=True)
    )
    return Estimate(float(errors.max()), remark=f"{errors.size} runs: {by_task}")


@claims.add(
    "monotone",
    "From starts of spectral norm up to sqrt(1 + sqrt(min a / max a)) - 1 the loss never rises",
    quantity="exceptions",
    kind="own",
    source="Section 4.1, 'monotonic', with the condition this project proves",
    high=0.0,
)
def exceptions(run: xr.Dataset) -> Estimate:
    """Return the number of starts within the proven norm whose loss rises."""
    return Estimate(float(run.broken.sum()), remark=f"{float(run.within.mean()):.0%} of all starts are within it")


@claims.add(
    "monotone-printed",
    "One layer learns monotonically",
    quantity="share of PyTorch's default starts at d = 2 whose test loss rises",
    kind="printed",
    source="Section 4.1, the limitation of the one-layer model, as printed",
    high=0.0,
)
def rising_share(run: xr.Dataset) -> Estimate:
    """Return the share of PyTorch's default starts at d = 2 whose loss rises."""
    one = run.rising.sel(start_dim=2, size=1.0)
    return Estimate(float(one), remark=f"d = 64: {float(run.rising.sel(start_dim=64, size=1.0)):.3g}")


@claims.add(
    "counterexample",
    "From a W0 that is right at the test point the loss there rises first, by at least 1 % of |x^|^2/2",
    quantity="value",
    kind="printed",
    source="the contrary, by Theorem 4.1 itself",
    low=0.025,
)
def example_rise(run: xr.Dataset) -> Estimate:
    """Return the rise of the loss from the counterexample."""
    first = run.example.isel(example_start=0)
    return Estimate(float(first.max() - first[0]), remark=f"from {float(first[0]):.1g}; |x^|^2/2 is 2.5")


metrics = (
    Metric(
        name="sgd_error",
        quantity="largest distance of SGD to the closed form, mean over networks",
        statistic=lambda run: float(sgd_errors(run, "empirical", True).mean()),
        scale="log",
    ),
    Metric(
        name="flow_error",
        quantity="largest distance of gradient flow to the closed form",
        statistic=lambda run: float(abs(run.corrected - run.exact).max()),
        scale="log",
    ),
    Metric(
        name="rising",
        quantity="share of starts whose loss rises, over dimensions and sizes",
        statistic=lambda run: float(run.rising.mean()),
    ),
)

"""Statistics behind the claims of the entry `theorem_4_1`."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate


# The bounds: closed form against DOP853 at 1e-13 has 1e-11 to spare; .02 is this project's bar for SGD.
def closed_form_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of the corrected closed form."""
    return Estimate(float(abs(run.corrected - run.exact).max()), remark=f"{run.sizes['flow']} starts and points")


def printed_sum_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 4.2 as printed, at any point."""
    return Estimate(float(abs(run.printed - run.exact).max()))


def test_point_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of equation 4.2 as printed, at the test point."""
    return Estimate(float(abs(run.at_test_point).max()))


def printed_bound_excess(run: xr.Dataset) -> Estimate:
    """Return the largest excess of the noise over the printed bound."""
    return Estimate(float((run.noise - run.start_part.sum("part")).max()))


def absolute_bound_excess(run: xr.Dataset) -> Estimate:
    """Return the largest excess of the noise over the bound with absolute values."""
    return Estimate(float((abs(run.noise) - abs(run.start_part).sum("part")).max()))


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


def largest_sgd_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of all runs with biases, with A of the samples."""
    if bool(run.diverged.any()):
        return Estimate.unresolved("A run diverged.")
    errors = sgd_errors(run, "empirical", True)
    by_task = ", ".join(
        f"{float(error):.3f} at {task}" for task, error in zip(errors.task.values, errors.max("seed"), strict=True)
    )
    return Estimate(float(errors.max()), remark=f"{errors.size} runs: {by_task}")


def exceptions(run: xr.Dataset) -> Estimate:
    """Return the number of starts within the proven norm whose loss rises."""
    return Estimate(float(run.broken.sum()), remark=f"{float(run.within.mean()):.0%} of all starts are within it")


def rising_share(run: xr.Dataset) -> Estimate:
    """Return the share of PyTorch's default starts at d = 2 whose loss rises."""
    one = run.rising.sel(start_dim=2, size=1.0)
    return Estimate(float(one), remark=f"d = 64: {float(run.rising.sel(start_dim=64, size=1.0)):.3g}")


def example_rise(run: xr.Dataset) -> Estimate:
    """Return the rise of the loss from the counterexample."""
    first = run.example.isel(example_start=0)
    return Estimate(float(first.max() - first[0]), remark=f"from {float(first[0]):.1g}; |x^|^2/2 is 2.5")

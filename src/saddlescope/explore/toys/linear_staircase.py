"""A diagonal linear network on exact covariances: Algorithm 1 and the gradient flow, in stored variables.

h(x; β) = x · β,  β = u² − v²    L(β) = |X (β − β*)|² / n with X^T X / n = Σ
α                                initial scale of u and v
time                             of the gradient flow, divided by log(1/α)
"""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.figures.time_axes import scale_label
from saddlescope.plot import Axis, Figure, Line, Panel, lines
from saddlescope.reproduction import Estimate, RunContext
from saddlescope.reproduction.formatting import number

_POINTS = 500  # of each curve
_TOLERANCE = 1e-4  # relative, of the stage times


def follow(
    covariance: np.ndarray,
    teacher: np.ndarray,
    *,
    log10_scale: float,
    seed: int,
    context: RunContext,
    log_time: bool = False,
) -> xr.Dataset:
    """Run Algorithm 1, and the flow from one initial scale.

    Args:
        covariance: Σ of the features, positive definite, (p, p).
        teacher: β*, (p,).
        log10_scale: log10 of the initial scale.
        seed: of the initial weights, standard normal times the scale.
        context: of the run.
        log_time: True: record at times that are evenly spaced in their logarithm.
    """
    import jax

    from saddlescope.flow import DiagonalInit, gradient_flow
    from saddlescope.models import diagonal_linear_network
    from saddlescope.theory import incremental_learning

    p, unit = len(teacher), -log10_scale * np.log(10)
    features = np.sqrt(p) * np.linalg.cholesky(covariance).T  # p samples with exactly this second moment
    with jax.enable_x64(True):
        network = diagonal_linear_network(features, features @ teacher)
        learned = incremental_learning(network, p)
        if learned.status.value != "converged":
            raise InputError(f"Algorithm 1 predicts no whole staircase here. {learned.message}")
        last = learned.stages[-1]
        until = 1.15 * last.time + 12 / (unit * last.curvature)
        start = DiagonalInit(*np.random.default_rng(seed).standard_normal((2, p)), log_scale=-unit)
        first = learned.stages[1].time / 2
        times = np.append(0.0, np.geomspace(first, until, _POINTS)) if log_time else np.linspace(0.0, until, _POINTS)
        context.report(0.3, "gradient flow")
        flow = gradient_flow(
            network,
            start,
            until=until,
            tolerance=_TOLERANCE,
            record=times,
            report=context.split(0.3, 0.7)[1].report,
        )
        shown = np.searchsorted(flow.times, times)
    begins = np.array([stage.time for stage in learned.stages])
    return xr.Dataset(
        {
            "beta": (("time", "coordinate"), flow.beta[shown]),
            "loss": ("time", flow.losses[shown]),
            "stage_beta": (("stage", "coordinate"), np.stack([stage.beta for stage in learned.stages])),
            "stage_loss": ("stage", np.array([stage.loss for stage in learned.stages])),
        },
        coords={"time": times, "stage": begins, "coordinate": np.arange(1, p + 1)},
        attrs={"log10_scale": log10_scale, "log_time": int(log_time)},
    )


def crossing_times(times: np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Return the times at which a curve crosses a level, up or down, by interpolation."""
    above = values > level
    (at,) = np.nonzero(above[1:] != above[:-1])
    return times[at] + (times[at + 1] - times[at]) * (level - values[at]) / (values[at + 1] - values[at])


def time_errors(run: xr.Dataset) -> np.ndarray:
    """Return the relative errors of the times at which each entry changes by a fifth of its largest value or more.

    The flow's time is that half-way between the values before and after; one without a crossing is infinitely off.
    """
    errors = []
    for k in range(run.sizes["coordinate"]):
        path, plateaus = run.beta.values[:, k], run.stage_beta.values[:, k]
        for n in np.flatnonzero(abs(np.diff(plateaus)) > 0.2 * abs(plateaus).max()):
            found = crossing_times(run.time.values, path, (plateaus[n] + plateaus[n + 1]) / 2)
            due = float(run.stage[n + 1])
            errors.append(abs(found / due - 1).min() if len(found) else np.inf)
    return np.array(errors)


def largest_time_error(run: xr.Dataset) -> Estimate:
    """Largest relative error of the half-way times of all changes of a coordinate."""
    return Estimate.largest(time_errors(run), over="changes")


def require_definite(covariance: np.ndarray, cure: str) -> None:
    """Raise InputError unless a covariance is positive definite."""
    if np.linalg.eigvalsh(covariance).min() < 1e-6:
        raise InputError(f"The features would be linearly dependent. {cure}")


def steps(run: xr.Dataset, values: np.ndarray) -> dict[str, Any]:
    """Return x and y of a predicted staircase, to the end of the run."""
    end = float(run.time[-1])
    return {"x": np.append(run.stage.values, end), "y": np.append(values, values[-1]), "style": "steps"}


def _found(run: xr.Dataset) -> str:
    """Return what the run shows: how well the times fit, or that a change is absent."""
    scale = f"From {scale_label(run.attrs['log10_scale'] * np.log(10))}"
    worst = float(time_errors(run).max())
    if not np.isfinite(worst):
        return f"{scale}, some of the predicted steps are missing"
    return f"{scale}, every step is within {number(100 * worst, 2)} % of its predicted time"


def staircase_figure(run: xr.Dataset, names: tuple[str, ...], caption: str) -> Figure:
    """Draw the coordinates and the loss over time, simulated and predicted."""
    time = Axis("time / log(1/α)", scale="log" if run.attrs["log_time"] else "linear")
    simulated = lines(run.beta, x="time", hue="coordinate", label=lambda k: names[int(k) - 1], grouped=True, width=2.2)
    predicted = tuple(
        Line(**steps(run, run.stage_beta.values[:, k]), group=name, color=k, width=1.2, opacity=0.75)
        for k, name in enumerate(names)
    )
    first = run.stage_loss.values[0]
    falls = (
        Line(**steps(run, run.stage_loss.values / first), group="predicted loss", color=None, width=2.6),
        Line(x=run.time.values, y=run.loss.values / first, group="simulated loss", color=len(names), width=2.2),
    )
    return Figure(
        name="staircase",
        title=_found(run),
        caption=caption,
        panels=(
            Panel(title="coordinates", x=time, y=Axis("β"), marks=(*simulated, *predicted)),
            Panel(title="loss", x=time, y=Axis("loss / initial loss", range=(-0.04, 1.08)), marks=falls),
        ),
    )

"""Training that continues from noisy weights, beside the same training without noise: shared by Figures 10 and 11.

    moment      rescaled time at which noise is added
    since       time t of the gradient flow since then: epochs, at learning rate 1
    weights     (u, v), the two factors of β = u * v, without noise
    noisy       the same after noise on every weight that is not negligible at that moment
    sgd         weights by SGD from both starts, in `order`, one order of minibatches; `noise` is "with" or "without"

Small weights get no noise, and their logarithms determine their later growth (u - v is 1e-64 at α = 1e-32):
the runs continue from `LogDiagonalInit`, which stores these to the last digit.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.stage_times import predicted_stages
from saddlescope.plot import Line, corners
from saddlescope.reproduction import RunContext, param

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit, LogDiagonalInit, Trajectory
    from saddlescope.models import AttentionTeacherTask, DiagonalNetwork
    from saddlescope.theory import IncrementalLearning

_LOGARITHMS = ("log_sum", "log_difference", "sum_sign", "difference_sign")


class NoiseParams(HeadParams):
    """The toy task of appendix A, trained after noise by gradient flow, and by SGD for as long as in the paper."""

    log10_scale: float = param(-32.0, "log10 of the initial scale", lt=0)
    noise_seed: int = param(0, "seed of the noise, and of its times if they are random", ge=0)
    noise: float = param(0.01, "standard deviation of the noise", gt=0, scale="log")
    threshold: float = param(
        1e-5, "largest magnitude of a negligible weight, which gets no noise", ge=1e-100, lt=1, scale="log"
    )
    tolerance: float = param(1e-5, "relative tolerance of the stage times", ge=1e-11, le=1e-2, scale="log")
    rate: float = param(0.5, "learning rate of SGD, which the paper does not give", gt=0, scale="log")
    batch: int = param(100, "samples in a minibatch of SGD, which the paper does not give", ge=1)
    orders: tuple[int, ...] = param((0, 1, 2), "seeds of the orders of the minibatches of SGD", ge=0, order="distinct")

    def check(self) -> None:
        if self.batch > self.samples:
            raise InputError(f"batch must be at most samples={self.samples!r}; got {self.batch!r}.")

    def start(self, task: "AttentionTeacherTask") -> "DiagonalInit":
        """Return the initial weights of the training without noise."""
        from saddlescope.flow import DiagonalInit

        return DiagonalInit(task.u0, task.v0, log_scale=self.log10_scale * np.log(10))

    def disturbed(self, before: "LogDiagonalInit", moment: int) -> "LogDiagonalInit":
        """Add Gaussian noise to each weight above the threshold in absolute value; each moment has its own."""
        weights = np.stack(before.flow_coordinates().parameters(before.origin()))
        noise = self.noise * np.random.default_rng((self.noise_seed, moment)).standard_normal(weights.shape)
        return before.shifted(*np.where(np.abs(weights) > self.threshold, noise, 0.0))


def run_with_noise(
    context: RunContext,
    task: "AttentionTeacherTask",
    until: float,
    measure: "Callable[[IncrementalLearning], dict[str, object]]",
    train: Callable[[xr.Dataset, Report], xr.Dataset],
    disturb: Callable[[xr.Dataset, int], xr.Dataset],
) -> xr.Dataset:
    """Run Algorithm 1, the training without noise, and from each moment the training after noise.

    Args:
        context: of the run; every part is cached.
        task: the head and its teacher.
        until: end of the simulation in rescaled time, for `predicted_stages`.
        measure: function from Algorithm 1's result to further variables over `stage`.
        train: function from the stages and a `report` to the result of `undisturbed_weights`.
        disturb: function from that and a moment to the training after noise at that moment.
    """
    from saddlescope.theory import incremental_learning

    algorithm, training, noise = context.split(0.5, 0.3, 0.2)

    def predict() -> xr.Dataset:
        learned = incremental_learning(task.network, task.teacher.size, report=algorithm.note("Algorithm 1"))
        algorithm.report(1.0, "Algorithm 1 done")
        return predicted_stages(learned, until=until).assign(
            {name: ("stage", values) for name, values in measure(learned).items()}
        )

    theory = algorithm.cached("theory", predict)
    undisturbed = training.cached("undisturbed", lambda: train(theory, training.note("without noise")))
    moments = undisturbed.moment.values.tolist()
    runs = noise.over({"moment": moments}, lambda moment, _: disturb(undisturbed, moment))
    return xr.merge([theory, undisturbed, runs], combine_attrs="drop").assign_attrs(theory.attrs | undisturbed.attrs)


def undisturbed_weights(
    trajectory: "Trajectory", start: "DiagonalInit", moments: np.ndarray, since: np.ndarray
) -> xr.Dataset:
    """Return the training without noise: its weights since each moment, and the states to continue from.

    Args:
        trajectory: a run from `start` that lasts longer than all recorded times.
        start: initial conditions of the run.
        moments: shape (moments,).
        since: shape (moments, steps); 0 comes first.
    """
    from saddlescope.flow import LogDiagonalInit, ResumeFrom

    rate = -start.log_scale
    weights = [np.stack(trajectory.parameters(m + s / rate), axis=1) for m, s in zip(moments, since, strict=True)]
    inits = [LogDiagonalInit.of(ResumeFrom(start, state)) for state in trajectory.path(moments)]
    logs = {name: (("moment", "coordinate"), np.stack([getattr(init, name) for init in inits])) for name in _LOGARITHMS}
    return xr.Dataset(
        {
            "weights": (("moment", "step", "factor", "coordinate"), np.stack(weights)),
            "since": (("moment", "step"), since, {"units": "t"}),
            "moment_time": ("moment", moments, {"units": "t / log(1/alpha)"}),
            **logs,
        },
        coords={"moment": np.arange(1, len(moments) + 1), "factor": ["u", "v"]},
        attrs={"log_scale": start.log_scale},
    )


def state_at(undisturbed: xr.Dataset, moment: int) -> "LogDiagonalInit":
    """Return the weights at one moment of `undisturbed_weights`, as initial conditions."""
    from saddlescope.flow import LogDiagonalInit

    here = undisturbed.sel(moment=moment)
    return LogDiagonalInit(
        **{name: here[name].values for name in _LOGARITHMS}, log_scale=float(undisturbed.attrs["log_scale"])
    )


def weights_after(loss: "DiagonalNetwork", start: "LogDiagonalInit", since: np.ndarray, tolerance: float) -> np.ndarray:
    """Follow gradient flow from there and return its weights, shape (steps, 2, coordinates)."""
    from saddlescope.flow import gradient_flow

    times = since / -start.log_scale
    run = gradient_flow(loss, start, until=float(times[-1]), tolerance=tolerance, record=times)
    return np.stack(run.parameters(times), axis=1)


def train_after(
    params: NoiseParams, loss: "DiagonalNetwork", before: "LogDiagonalInit", after: "LogDiagonalInit", since: np.ndarray
) -> xr.Dataset:
    """Train from the weights after noise by gradient flow, and by SGD from those with and without it.

    There are no trainings by SGD if the weights are too small for float64, in which SGD computes.
    """
    orders = params.orders if params.log10_scale >= -150 else ()
    sgd = sgd_after(loss, (after, before), since[::5], rate=params.rate, batch=params.batch, orders=orders)
    noisy = weights_after(loss, after, since, params.tolerance)
    return sgd.assign(noisy=(("step", "factor", "coordinate"), noisy))


def sgd_after(
    loss: "DiagonalNetwork",
    starts: "tuple[LogDiagonalInit, LogDiagonalInit]",
    since: np.ndarray,
    *,
    rate: float,
    batch: int,
    orders: Sequence[int],
) -> xr.Dataset:
    """Train by SGD from the weights with and without noise, in the same order of the minibatches.

    Args:
        loss: of the head on all samples.
        starts: with noise, without.
        since: times at which weights are stored, 0 first; a step lasts `rate`.
        rate: learning rate.
        batch: samples in a minibatch.
        orders: seeds of the permutations of the samples.
    """
    from saddlescope.flow import gradient_descent

    steps = np.rint(since / rate).astype(int)
    how: dict[str, Any] = {"steps": int(steps[-1]), "learning_rate": rate, "batch": batch, "record": steps}
    runs = np.zeros((len(orders), len(starts), len(steps), 2, starts[0].log_sum.size))
    for k, seed in enumerate(orders):
        for which, start in enumerate(starts):
            run = gradient_descent(loss, start, seed=seed, **how)
            runs[k, which] = np.stack(run.parameters(np.minimum(steps * rate / -start.log_scale, run.times[-1])), 1)
    return xr.Dataset(
        {"sgd": (("order", "noise", "sgd_step", "factor", "coordinate"), runs)},
        coords={"order": list(orders), "noise": ["with", "without"]},
    )


def beta_of(weights: xr.DataArray) -> xr.DataArray:
    """Return the products of the factors."""
    return weights.prod("factor")


def paired_lines(
    x: np.ndarray, noisy: np.ndarray, without: np.ndarray, widths: Sequence[float] = ()
) -> tuple[Line, ...]:
    """Draw curves after the noise, solid, and without it, dashed, of shape (entries, len(x)), by their corners."""
    drawn, even = [], np.arange(len(x), dtype=float)  # steps, whatever the axis is
    for k, pair in enumerate(zip(noisy, without, strict=True)):
        for y, group, style in zip(pair, ("after the noise", "without noise"), ("solid", "dashed"), strict=True):
            kept, width = corners(even, y, 4e-3), widths[k] if widths else 1.1
            drawn.append(Line(x=x[kept], y=y[kept], group=group, style=style, color=k, width=width))
    return tuple(drawn)

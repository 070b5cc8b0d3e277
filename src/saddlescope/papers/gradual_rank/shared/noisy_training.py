"""Training that goes on from noisy weights, beside the same training without noise: what Figures 10 and 11 share.

    moment      when the noise comes, in rescaled time
    since       time t of the gradient flow since then: epochs, at learning rate 1
    weights     (u, v), the two factors of beta = u * v, without noise
    noisy       the same after noise on every weight that is not negligible then

Small weights get no noise, and what they will do later stands in their logarithms (u - v is 1e-64 at alpha = 1e-32):
the runs go on from `LogDiagonalInit`, which keeps these to the last digit.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.plot import Line, corners

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit, LogDiagonalInit, Trajectory
    from saddlescope.models import DiagonalNetwork

_LOGARITHMS = ("log_sum", "log_difference", "sum_sign", "difference_sign")


def cut(trajectory: "Trajectory", start: "DiagonalInit", moments: np.ndarray, since: np.ndarray) -> xr.Dataset:
    """The training without noise: its weights since each moment, and what is needed to go on from there.

    Args:
        trajectory: a run from `start` that lasts longer than all that is asked for.
        start: where it started.
        moments: shape (moments,).
        since: shape (moments, steps); 0 comes first.
    """
    from saddlescope.flow import LogDiagonalInit, ResumeFrom

    rate = -start.log_scale
    weights = [np.stack(trajectory.parameters(m + s / rate), axis=1) for m, s in zip(moments, since, strict=True)]
    logs = [LogDiagonalInit.of(ResumeFrom(start, state)) for state in trajectory.path(moments)]
    return xr.Dataset(
        {
            "weights": (("moment", "step", "factor", "coordinate"), np.stack(weights)),
            "since": (("moment", "step"), since, {"units": "t"}),
            "moment_time": ("moment", moments, {"units": "t / log(1/alpha)"}),
            **{
                name: (("moment", "coordinate"), np.stack([getattr(log, name) for log in logs])) for name in _LOGARITHMS
            },
        },
        coords={"moment": np.arange(1, len(moments) + 1), "factor": ["u", "v"]},
        attrs={"log_scale": start.log_scale},
    )


def at_moment(undisturbed: xr.Dataset, moment: int) -> "LogDiagonalInit":
    """The weights at one moment of `cut`, as a start."""
    from saddlescope.flow import LogDiagonalInit

    here = undisturbed.sel(moment=moment)
    return LogDiagonalInit(
        **{name: here[name].values for name in _LOGARITHMS}, log_scale=float(undisturbed.attrs["log_scale"])
    )


def make_noisy(start: "LogDiagonalInit", *, noise: float, threshold: float, seed: tuple[int, ...]) -> "LogDiagonalInit":
    """Adds Gaussian noise of that standard deviation to each weight above the threshold in absolute value."""
    weights = np.stack(start.flow_coordinates().parameters(start.origin()))
    normal = np.random.default_rng(seed).standard_normal(weights.shape)
    return start.shifted(*np.where(np.abs(weights) > threshold, noise * normal, 0.0))


def follow(loss: "DiagonalNetwork", start: "LogDiagonalInit", since: np.ndarray, tolerance: float) -> np.ndarray:
    """The weights of gradient flow from there, shape (steps, 2, coordinates)."""
    from saddlescope.flow import gradient_flow

    times = since / -start.log_scale
    run = gradient_flow(loss, start, until=float(times[-1]), tolerance=tolerance, record=times)
    return np.stack(run.parameters(times), axis=1)


def beta_of(weights: xr.DataArray) -> xr.DataArray:
    """The products of the factors."""
    return weights.prod("factor")


def displacement(run: xr.Dataset, of: str) -> xr.DataArray:
    """How far the noisy training is from the other one: Euclidean norm over all entries of "beta" or "weights"."""
    one, other = run.noisy, run.weights
    if of == "beta":
        return ((beta_of(one) - beta_of(other)) ** 2).sum("coordinate") ** 0.5
    return ((one - other) ** 2).sum(("coordinate", "factor")) ** 0.5


def pair(x: np.ndarray, noisy: np.ndarray, without: np.ndarray, *, color: int, width: float) -> list[Line]:
    """One entry's curve after the noise, solid, and without it, dashed; only the points that are worth drawing."""

    def kept(y: np.ndarray) -> np.ndarray:
        return corners(np.arange(len(x), dtype=float), y, 4e-3)  # even steps, whatever the axis is

    a, b = kept(noisy), kept(without)
    return [
        Line(x=x[a], y=noisy[a], group="after the noise", color=color, width=width),
        Line(x=x[b], y=without[b], group="without noise", style="dashed", color=color, width=width),
    ]

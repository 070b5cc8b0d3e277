"""Figure 2: one diagonal attention head learns its coordinates one at a time   (Section 4 and appendix A)

A student head learns a teacher head from ever smaller initial weights alpha. Algorithm 1 predicts the limit of
vanishing alpha from the loss alone; the gradient flow is simulated at each alpha; the two share no dynamics code.

    alpha   initial scale: u(0) = alpha u0, v(0) = alpha v0
    t       rescaled time: time of the gradient flow divided by log(1/alpha)
    beta    (w_K * w_Q, w_V * w_O): the diagonals of W_K W_Q^T and W_V W_O^T
    T_k     predicted time at which coordinate i_k enters and the weights leave the saddle theta^(k-1)
    t_k     measured time at which beta_(i_k) is half-way between its predicted values before and after T_k
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saddlescope.errors import InputError
from saddlescope.papers.claim import Claim, Measured
from saddlescope.papers.context import RunContext

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.plot.figure import Figure

FIRST = 10  # stages on which the claims are made: later ones lie closer together than the paper's scales can tell apart


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A. The paper gives no learning rate: gradient flow is its limit."""

    log10_scales: tuple[float, ...] = (-1, -2, -4, -8, -16, -32)  # log10 of the initial scales alpha, decreasing
    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    until: float = 1000.0  # end of the simulation in rescaled time
    tolerance: float = 1e-6  # relative, of the integrator; see `saddlescope.flow.gradient_flow`
    level: float = 0.01  # |beta_i| above which coordinate i counts as learned
    points: int = 1501  # times at which the curves are stored

    def __post_init__(self) -> None:
        scales = self.log10_scales
        if not scales or max(scales) >= 0 or any(a <= b for a, b in zip(scales, scales[1:], strict=False)):
            raise InputError(f"log10_scales must be negative and decreasing, such as -1,-8,-32; got {scales!r}.")
        for name in ("samples", "tokens", "dim"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        for name in ("until", "level"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be positive and finite; got {getattr(self, name)!r}.")
        if not 1e-12 <= self.tolerance <= 1e-2:
            raise InputError(f"tolerance must be between 1e-12 and 1e-2; got {self.tolerance!r}.")
        if self.points < 2:
            raise InputError(f"points must be at least 2; got {self.points!r}.")
        if self.seed < 0:
            raise InputError(f"seed must be at least 0; got {self.seed!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head, three scales."""
        return cls(log10_scales=(-2, -8, -32), samples=100, tokens=5, dim=8, until=300.0, points=601)

    @classmethod
    def paper(cls) -> "Params":
        """The default is already the paper's size."""
        return cls()


# The bounds. Theorem 4.1 promises convergence as alpha -> 0 and no rate; its proof moves each stage by O(1) e-folds of
# unrescaled time, so by O(1/log(1/alpha)) in rescaled time: about 1 % at alpha = 1e-32, where log(1/alpha) = 74.
def _algorithm_ends_at_teacher(run: "xr.Dataset") -> Measured:
    if run.attrs["theory_status"] != "converged":
        return Measured.unresolved(run.attrs["theory_status"])
    last = run.predicted_beta.isel(stage=-1)
    return Measured(float(abs(last - run.teacher).max()))


def _order(run: "xr.Dataset") -> Measured:
    predicted = run.predicted_coordinate.values[:FIRST]
    found = run.found_coordinate.isel(scale=-1).values[: len(predicted)]
    agree = predicted == found
    return Measured(float(len(agree) if agree.all() else agree.argmin()) / len(agree))


def _times(run: "xr.Dataset") -> Measured:
    error = (abs(run.found_time / run.predicted_time - 1)).isel(scale=-1, stage=slice(FIRST))
    if error.isnull().any():
        return Measured.unresolved("Not all of the first stages happened before the simulation ended; raise `until`.")
    return Measured(float(error.max()), float(run.accuracy.isel(scale=-1)))


def _largest_rise(run: "xr.Dataset") -> Measured:
    learned = (abs(run.plateau_beta.isel(scale=-1)) > run.attrs["level"]).sum("coordinate").isel(stage=slice(FIRST))
    ranks = learned.values[run.plateau_time.values[:FIRST] < run.attrs["until"]]
    return Measured(float(max(ranks[0], *(ranks[1:] - ranks[:-1]))))


def _ratio_of_errors(errors: "xr.DataArray") -> Measured:
    if errors.sizes["scale"] < 2:
        return Measured.unresolved("One scale only: there is no sequence that could converge.")
    values = errors.values
    return Measured(float((values[1:] / values[:-1]).max()))


def _loss_converges(run: "xr.Dataset") -> Measured:
    return _ratio_of_errors(abs(run.loss - run.predicted_loss_curve).mean("time"))


def _weights_converge(run: "xr.Dataset") -> Measured:
    error = abs(run.plateau_beta - run.predicted_beta).max("coordinate").isel(stage=slice(FIRST))
    return _ratio_of_errors(error.median("stage"))


def _plateaus_at_one_percent(run: "xr.Dataset") -> Measured:
    import numpy as np
    from scipy.signal import find_peaks

    if -2 not in run.scale.values:
        return Measured.unresolved("alpha = 0.01 was not among the scales.")
    loss = run.loss.sel(scale=-2).values
    rate = np.maximum(loss[:-1] - loss[1:], 1e-12 * loss[0])
    plateaus, _ = find_peaks(-np.log(rate), prominence=np.log(2))  # slower by 2 than the drops on both sides
    return Measured(float(len(plateaus)))


claims = (
    Claim(
        name="end",
        says="Algorithm 1 ends at the teacher: largest error of its last beta",
        source="Theorem 4.1; the teacher is the one global minimum",
        statistic=_algorithm_ends_at_teacher,
        high=1e-12,
    ),
    Claim(
        name="order",
        says="At the smallest scale the first ten coordinates are learned in Algorithm 1's order: fraction that is",
        source="Theorem 4.1",
        statistic=_order,
        low=1.0,
    ),
    Claim(
        name="times",
        says="At the smallest scale the first ten stage times are Algorithm 1's: largest relative error",
        source="Theorem 4.1; 1 % for O(1) e-folds out of log(1/alpha) = 74",
        statistic=_times,
        high=0.01,
    ),
    Claim(
        name="one-by-one",
        says="At the smallest scale the rank rises by at most one from plateau to plateau: largest rise of the first ten",
        source="Theorem 4.1",
        statistic=_largest_rise,
        high=1,
    ),
    Claim(
        name="loss-converges",
        says="The loss curves approach the staircase as alpha falls: largest ratio of successive mean distances",
        source="Figure 2a, Theorem 4.1",
        statistic=_loss_converges,
        high=1.0,
    ),
    Claim(
        name="weights-converge",
        says="The weights on the first ten plateaus approach theta^k as alpha falls: largest ratio of successive distances",
        source="Figure 2b, Theorem 4.1",
        statistic=_weights_converge,
        high=1.0,
    ),
    Claim(
        name="one-percent",
        says="Some stagewise learning is already clear with alpha = 0.01: plateaus of the loss after the first",
        source="Figure 2, caption; a plateau falls at most half as fast as the drops beside it",
        statistic=_plateaus_at_one_percent,
        low=1,
    ),
)

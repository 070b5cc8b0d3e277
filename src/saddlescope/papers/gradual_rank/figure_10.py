"""Figures 3 (a) and 10: after noise at random times, training returns to the plateau   (Assumption 4.4)

One head learns a teacher head from initial weights alpha. At random times all nonnegligible weights get Gaussian noise,
and training goes on. The paper takes SGD for 1000 epochs; here it is gradient flow for as long, at learning rate 1.

    beta    u * v = (w_K * w_Q, w_V * w_O), all that the network's output depends on
    c_k     the constant of Assumption 4.4 at stage k: half the smallest eigenvalue of the Hessian of L(u, s u) on the
            support of theta^k; its largest possible value

Gradient flow conserves u^2 - v^2 (Lemma 4.2). Noise changes it, so the weights cannot come back, whatever the minimum
is like: only beta can. Of the noise in a pair (u, v), the component that changes u v is forgotten and the one that
changes u^2 - v^2 is kept, so about 1/sqrt(2) of it remains. Noise also shifts the moment at which the next
coordinate grows out of its tiny value, so that beta, once back, leaves the undisturbed beta again for a while.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.head_stages import predicted_stages
from saddlescope.papers.gradual_rank.shared.noisy_training import (
    at_moment,
    beta_of,
    cut,
    displacement,
    follow,
    make_noisy,
    pair,
)
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask

REST = 1e7  # time t after which the learned coordinates alone are at rest: the slowest of c_k is some 1e-5


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A at the smallest of the paper's scales. The paper does not name its random times."""

    log10_scale: float = -32.0  # log10 of the initial scale alpha
    seed: int = 1  # of the data, the teacher and the initial weights
    noise_seed: int = 0  # of the random times and of the noise
    moments: int = 5  # random times at which noise is added
    until: float = 200.0  # the random times are uniform between the first stage and this, in rescaled time
    noise: float = 0.05  # standard deviation of the noise
    threshold: float = 1e-5  # weights of smaller magnitude are negligible: they get no noise
    epochs: float = 1000.0  # time t for which training goes on: epochs, at learning rate 1
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    tolerance: float = 1e-5  # relative, of stage times; see `saddlescope.flow.gradient_flow`
    points: int = 151  # times after each noise at which weights are stored, evenly spaced in their logarithm

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "moments", "samples", "tokens", "dim")
        parameter_checks.positive(self, "until", "noise", "threshold")
        if not -float("inf") < self.log10_scale < 0:
            raise InputError(f"log10_scale must be finite and negative, such as -32; got {self.log10_scale!r}.")
        if not 1 <= self.epochs < float("inf"):
            raise InputError(f"epochs must be at least 1 and finite; got {self.epochs!r}.")
        parameter_checks.between(1e-11, 1e-2, self, "tolerance")
        parameter_checks.at_least(3, self, "points")
        parameter_checks.at_least(0, self, "seed", "noise_seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head."""
        return cls(moments=3, samples=100, tokens=5, dim=8, until=150.0, tolerance=1e-4, points=101)

    @classmethod
    def paper(cls) -> "Params":
        """The default is already the paper's size."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Algorithm 1, the training without noise, and from each moment the training after it."""
    import jax

    from saddlescope.models import attention_teacher_task

    with jax.enable_x64(True):
        task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.5)))
        undisturbed = context.cached("undisturbed", partial(_train, task, theory, params, context.part(0.5, 0.8)))
        noisy = []
        for moment in range(1, params.moments + 1):
            noisy.append(context.cached(f"noisy{moment}", partial(_disturb, task, undisturbed, params, moment)))
            context.report(0.8 + 0.2 * moment / params.moments, f"noise {moment} of {params.moments} done")
    runs = xr.concat(noisy, dim="moment", combine_attrs="drop").assign_coords(moment=undisturbed.moment)
    return xr.merge([theory, undisturbed, runs], combine_attrs="drop").assign_attrs(theory.attrs | undisturbed.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}")
    )
    report(1.0, "Algorithm 1 done")
    return predicted_stages(learned, until=params.until).assign(
        curvature=("stage", [stage.curvature for stage in learned.stages[1:]])
    )


def _train(
    task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Callable[[float, str], None]
) -> xr.Dataset:
    """The training without noise, cut at random times."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    first = float(theory.predicted_time[0])
    if not first < params.until:
        raise InputError(f"until must be later than the first stage, at {first:.4g}; got {params.until!r}.")
    moments = np.sort(np.random.default_rng(params.noise_seed).uniform(first, params.until, params.moments))
    since = np.append(0.0, np.geomspace(0.1, params.epochs, params.points - 1))
    start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
    trajectory = gradient_flow(
        task.network,
        start,
        until=float(moments[-1] - 1.001 * params.epochs / start.log_scale),  # a little more than is asked for
        tolerance=params.tolerance,
        report=lambda fraction, note: report(fraction, f"without noise, {note}"),
    )
    report(1.0, "without noise, done")
    return cut(trajectory, start, moments, np.tile(since, (params.moments, 1)))


def _disturb(task: "AttentionTeacherTask", undisturbed: xr.Dataset, params: Params, moment: int) -> xr.Dataset:
    """The training after the noise; and where the learned coordinates alone, with and without noise, come to rest."""
    before = at_moment(undisturbed, moment)
    after = make_noisy(before, noise=params.noise, threshold=params.threshold, seed=(params.noise_seed, moment))
    since = undisturbed.since.sel(moment=moment).values
    learned = (np.abs(undisturbed.weights.sel(moment=moment).isel(step=0)) > params.threshold).any("factor").values
    rests = [follow(task.network, start.only(learned), np.array([REST]), params.tolerance) for start in (before, after)]
    return xr.Dataset(
        {
            "noisy": (("step", "factor", "coordinate"), follow(task.network, after, since, params.tolerance)),
            "learned": ("coordinate", learned),
            "rest": (("factor", "coordinate"), rests[0][0]),
            "noisy_rest": (("factor", "coordinate"), rests[1][0]),
        }
    )


# The bounds. "Converge to the original", "tends back" have no number: read here as at most 5 % of the displacement
# left. For learned coordinates alone there is no next stage that could interfere, and 1e-3 leaves room for the error of
# the integration only. A minimum is strict where c_k is above rounding: 1e-12 of the loss at the origin.
LEFT = 0.05


_NOT_MOVED = "At one of the times no weight was above the threshold, so there was no noise; take later times."


def remaining(run: xr.Dataset, of: str) -> xr.DataArray:
    """What is left of the displacement of "beta" or "weights", as a fraction of that just after the noise."""
    away = displacement(run, of)
    return away / away.isel(step=0)


def conserved(run: xr.Dataset) -> xr.DataArray:
    """The weights with the undisturbed beta, and with the u^2 - v^2 that the noise has left behind.

    The larger of |u| and |v| never crosses 0 on the way there, so its sign is that just after the noise.
    """
    u, v = (run.noisy.isel(step=0).sel(factor=factor) for factor in ("u", "v"))
    beta, difference = beta_of(run.weights), u**2 - v**2
    larger = ((abs(difference) + (difference**2 + 4 * beta**2) ** 0.5) / 2) ** 0.5
    larger = np.sign(u.where(difference >= 0, v)) * larger
    smaller = (beta / larger).where(larger != 0, 0.0)
    weights = xr.concat([larger.where(difference >= 0, smaller), smaller.where(difference >= 0, larger)], "factor")
    return weights.assign_coords(factor=["u", "v"])


def _closest(values: xr.DataArray) -> Estimate:
    """The worst moment's smallest value over time."""
    if values.isnull().any():
        return Estimate.unresolved(_NOT_MOVED)
    return Estimate(float(values.min("step").max()))


def _beta_returns(run: xr.Dataset) -> Estimate:
    return _closest(remaining(run, "beta"))


def _beta_stays(run: xr.Dataset) -> Estimate:
    at_the_end = remaining(run, "beta").isel(step=slice(-1, None))
    return _closest(at_the_end)


def _weights_return(run: xr.Dataset) -> Estimate:
    return _closest(remaining(run, "weights"))


def _weights_conserve(run: xr.Dataset) -> Estimate:
    away = ((run.noisy - conserved(run)) ** 2).sum(("coordinate", "factor")) ** 0.5
    return _closest(away / displacement(run, "weights").isel(step=0))


def _same_rest(run: xr.Dataset) -> Estimate:
    away = ((beta_of(run.noisy_rest) - beta_of(run.rest)) ** 2).sum("coordinate") ** 0.5
    return _closest((away / displacement(run, "beta").isel(step=0)).expand_dims("step"))


def _strict_minima(run: xr.Dataset) -> Estimate:
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_message"])
    least = run.curvature.values.argmin()
    where = f"stage {int(run.stage[least])} of {run.sizes['stage']}"
    return Estimate(float(run.curvature[least]), 1e-12 * run.attrs["initial_loss"], remark=where)


claims = (
    Claim(
        name="strict-minima",
        says="The plateaus of all stages are strict local minima on their support: smallest c_k",
        source="Assumption 4.4, with - L(theta^k), which is missing there",
        statistic=_strict_minima,
        low=0.0,
    ),
    Claim(
        name="same-rest",
        says="Followed without the negligible coordinates, beta comes to the same rest with noise as without: what is "
        "left of its displacement, at worst",
        source="Appendix A: 'the weights were close to a strict local minimum'; 1e-3 for the integration",
        statistic=_same_rest,
        high=1e-3,
    ),
    Claim(
        name="beta-returns",
        says="Within 1000 epochs beta comes back to the undisturbed beta: what is left of its displacement at the "
        "closest approach, at worst",
        source="Figure 10 as it can hold, for beta instead of the weights; at most 5 %",
        statistic=_beta_returns,
        high=LEFT,
    ),
    Claim(
        name="beta-stays",
        says="After 1000 epochs beta is where it would be without noise: what is left of its displacement, at worst",
        source="Appendix A: 'the training dynamics quickly converge to the original'; at most 5 %",
        statistic=_beta_stays,
        high=LEFT,
    ),
    Claim(
        name="weights-return",
        says="Each weight comes back to the undisturbed weight: what is left of the displacement at the closest "
        "approach, at worst",
        source="Figure 10, caption, as printed: 'quickly brings each weight back'; at most 5 %",
        statistic=_weights_return,
        high=LEFT,
    ),
    Claim(
        name="weights-conserve",
        says="The weights go where u^2 - v^2, conserved since the noise, and the undisturbed beta put them: distance "
        "over displacement at the closest approach, at worst",
        source="Lemma 4.2, instead of Figure 10 as printed; at most 5 %",
        statistic=_weights_conserve,
        high=LEFT,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """What is left of the noise over time, with a table of the moments; and the entries and weights themselves."""
    return [_remaining(run), _entries(run)]


def _remaining(run: xr.Dataset) -> Figure:

    panels = []
    for of, title in (("beta", "of the products, beta = u v"), ("weights", "of the weights, u and v")):
        left = remaining(run, of)
        marks: list[Line | Mark] = [
            Line(
                x=run.since.sel(moment=moment).values[1:],
                y=left.sel(moment=moment).values[1:],
                group=f"noise at {float(run.moment_time.sel(moment=moment)):.1f}",
                color=k,
            )
            for k, moment in enumerate(run.moment.values)
        ]
        if of == "weights":
            marks.append(Mark(at=2**-0.5, axis="y", label="1/√2"))
        panels.append(
            Panel(
                title=title,
                x=Axis("time t since the noise", "epochs at learning rate 1", scale="log"),
                y=Axis("displacement left", scale="log", range=(1e-3, 3.0)),
                marks=tuple(marks),
            )
        )
    return Figure(
        name="return",
        title="After noise the products return; the weights do not",
        caption="Distance to the training without noise, over that just after the noise, for noise at random rescaled "
        "times. Where beta leaves again, the next coordinate enters a little sooner or later than it would without "
        "noise. The weights keep the part of the noise that changed the conserved u² − v², about 1/√2 of it.",
        panels=tuple(panels),
        table=Table(
            columns=("time", "stage", "weights with noise", "c_k", "noise in beta", "closest", "at t", "at the end",
                     "weights, closest", "at rest"),
            rows=tuple(_row(run.sel(moment=moment)) for moment in run.moment.values),
        ),
    )  # fmt: skip


def _row(here: xr.Dataset) -> tuple[str | float | int, ...]:
    begun = int(here.predicted_time.searchsorted(here.moment_time))
    beta, weights = remaining(here, "beta"), remaining(here, "weights")
    rest = ((beta_of(here.noisy_rest) - beta_of(here.rest)) ** 2).sum("coordinate") ** 0.5
    shift = displacement(here, "beta").isel(step=0)
    return (
        f"{float(here.moment_time):.2f}",
        begun,
        2 * int(here.learned.sum()),
        float(here.curvature[begun - 1]),
        float(shift),
        f"{float(beta.min()):.2%}",
        float(here.since[beta.values.argmin()]),
        f"{float(beta[-1]):.2%}",
        f"{float(weights.min()):.1%}",
        f"{float(rest / shift):.1e}",
    )


def _entries(run: xr.Dataset) -> Figure:

    panels = []
    for moment in run.moment.values:
        here = run.sel(moment=moment)
        learned = here.coordinate.values[here.learned.values]
        curves = {
            "beta": (beta_of(here.noisy), beta_of(here.weights)),
            "weight u": (here.noisy.sel(factor="u"), here.weights.sel(factor="u")),
        }
        for name, (noisy, without) in curves.items():
            marks = [
                line
                for color, i in enumerate(learned)
                for line in pair(
                    here.since.values[1:],
                    noisy.sel(coordinate=i).values[1:],
                    without.sel(coordinate=i).values[1:],
                    color=color,
                    width=1.1,
                )
            ]
            panels.append(
                Panel(
                    title=f"{name}, noise at {float(here.moment_time):.1f}",
                    x=Axis("time t since the noise", "epochs at learning rate 1", scale="log"),
                    y=Axis("entry"),
                    marks=tuple(marks),
                )
            )
    return Figure(
        name="entries",
        title="Each learned coordinate after the noise, and without it",
        caption="Rows: the random times. Left, the learned entries of beta: after the noise (solid) they come back to "
        "the training without noise (dashed). Right, their weights u = (w_K, w_V): they stay beside it.",
        panels=tuple(panels),
    )

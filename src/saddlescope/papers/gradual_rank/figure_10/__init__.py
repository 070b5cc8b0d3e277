"""Figures 3 (a) and 10: after noise at random times, training returns to the plateau.

One head learns a teacher head from initial weights alpha. At random times all nonnegligible weights get Gaussian noise,
and training continues. The paper takes SGD for 1000 epochs; here it is gradient flow for as long, at learning rate 1.

    beta    u * v = (w_K * w_Q, w_V * w_O), all that the network's output depends on
    c_k     the constant of Assumption 4.4 at stage k: half the smallest eigenvalue of the Hessian of L(u, s u) on the
            support of theta^k; its largest possible value

Gradient flow conserves u^2 - v^2 (Lemma 4.2). Noise changes it, so the weights cannot come back, whatever the minimum
is like: only beta can. Of the noise in a pair (u, v), the component that changes u v is forgotten and the one that
changes u^2 - v^2 is kept, so about 1/sqrt(2) of it remains. Noise also shifts the moment at which the next
coordinate grows out of its tiny value, so that beta, once back, leaves the undisturbed beta again for a while.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.figure_10.claims import claims
from saddlescope.papers.gradual_rank.figure_10.figures import figures
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.noisy_training import (
    add_noise,
    run_with_noise,
    state_at,
    undisturbed_weights,
    weights_after,
)
from saddlescope.papers.gradual_rank.shared.stage_times import predicted_stages
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask

REST = 1e7  # time t after which the learned coordinates alone have settled: the slowest of c_k is some 1e-5


class Params(HeadParams):
    """The toy task of appendix A at the smallest of the paper's scales. The paper does not name its random times."""

    log10_scale: float = param(-32.0, "log10 of the initial scale alpha")
    noise_seed: int = param(0, "of the random times and of the noise", ge=0)
    moments: int = param(5, "random times at which noise is added", ge=1)
    until: float = param(200.0, "the random times are uniform between the first stage and this, in rescaled time", gt=0)
    noise: float = param(0.05, "standard deviation of the noise", gt=0)
    threshold: float = param(1e-5, "weights of smaller magnitude are negligible: they get no noise", gt=0)
    epochs: float = param(1000.0, "time t for which training goes on: epochs, at learning rate 1")
    tolerance: float = param(1e-5, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-11, le=1e-2)
    points: int = param(
        151, "times after each noise at which weights are stored, evenly spaced in their logarithm", ge=3
    )

    def check(self) -> None:
        super().check()
        if not -float("inf") < self.log10_scale < 0:
            raise InputError(f"log10_scale must be finite and negative, such as -32; got {self.log10_scale!r}.")
        if not 1 <= self.epochs < float("inf"):
            raise InputError(f"epochs must be at least 1 and finite; got {self.epochs!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the training without noise, and from each moment the training after it."""
    import jax

    with jax.enable_x64(True):
        task = params.task()
        return run_with_noise(
            context,
            partial(_predict, task, params),
            partial(_train, task, params),
            partial(_disturb, task, params),
        )


def _predict(task: "AttentionTeacherTask", params: Params, report: Report) -> xr.Dataset:
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}")
    )
    report(1.0, "Algorithm 1 done")
    return predicted_stages(learned, until=params.until).assign(
        curvature=("stage", [stage.curvature for stage in learned.stages[1:]])
    )


def _train(task: "AttentionTeacherTask", params: Params, theory: xr.Dataset, report: Report) -> xr.Dataset:
    """Train without noise, and record from random times on."""
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
    return undisturbed_weights(trajectory, start, moments, np.tile(since, (params.moments, 1)))


def _disturb(task: "AttentionTeacherTask", params: Params, undisturbed: xr.Dataset, moment: int) -> xr.Dataset:
    """Train after the noise; and follow the learned coordinates alone, with and without noise, to their end."""
    before = state_at(undisturbed, moment)
    after = add_noise(before, noise=params.noise, threshold=params.threshold, seed=(params.noise_seed, moment))
    since = undisturbed.since.sel(moment=moment).values
    learned = (np.abs(undisturbed.weights.sel(moment=moment).isel(step=0)) > params.threshold).any("factor").values
    rests = [
        weights_after(task.network, start.only(learned), np.array([REST]), params.tolerance)
        for start in (before, after)
    ]
    return xr.Dataset(
        {
            "noisy": (("step", "factor", "coordinate"), weights_after(task.network, after, since, params.tolerance)),
            "learned": ("coordinate", learned),
            "rest": (("factor", "coordinate"), rests[0][0]),
            "noisy_rest": (("factor", "coordinate"), rests[1][0]),
        }
    )


entry = Entry(
    "gradual-rank/figure-10",
    "Figures 3 (a) and 10: after noise at random times, training returns to the plateau",
    citation=CITATION,
    source="Assumption 4.4",
    params=Params,
    quick=dict(moments=3, samples=100, tokens=5, dim=8, until=150.0, tolerance=1e-4, points=101),
    run=run,
    claims=claims,
    figures=figures,
)

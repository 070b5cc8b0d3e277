"""Figures 3 (b) and 11: noise at the beginning of a stage does not change where it ends.

Figure 10's experiment at other times: noise comes in the epoch in which a weight first exceeds the threshold in
magnitude, at the beginning of the transition from the saddle theta^(k-1) to theta^k. All weights that exceed it then
get the noise. Of all transitions, the first few are taken whose plateaus alpha resolves, by the theory alone.

    i_k         the coordinate that enters; g_(i_k) its gradient at theta^(k-1)
    size        of the transition: the largest entry of |beta^k - beta^(k-1)|, the unit of all distances here
    progress    beta_(i_k) over its value on the plateau

Assumption 4.5 speaks of the end of the transition. The figure's caption says more, that the noisy training tracks the
other one, and that cannot be: noise of 0.01 makes a weight of 1e-5 a thousand times larger, so the transition comes
sooner by log(1000) = 7 e-folds, which last 7/|g|. What can hold is that it takes the same path, only sooner; and only
if nothing else is under way, which is certain only where the plateau before is resolved as well. Where several
coordinates enter together, noise changes their order.
"""

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.figure_11.claims import claims
from saddlescope.papers.gradual_rank.figure_11.figures import figures
from saddlescope.papers.gradual_rank.shared.head_task import HeadParams
from saddlescope.papers.gradual_rank.shared.noisy_training import (
    add_noise,
    run_with_noise,
    state_at,
    undisturbed_weights,
    weights_after,
)
from saddlescope.papers.gradual_rank.shared.stage_times import predicted_stages, resolved_stages
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit, Trajectory
    from saddlescope.models import AttentionTeacherTask


class Params(HeadParams):
    """The toy task of appendix A at the smallest of the paper's scales."""

    log10_scale: float = param(-32.0, "log10 of the initial scale alpha")
    noise_seed: int = param(0, "of the noise", ge=0)
    transitions: int = param(5, "how many: the first whose plateaus alpha resolves", ge=1)
    level: float = param(0.01, "a plateau is resolved if what ends it is below this in its middle")
    until: float = param(250.0, "transitions with a later plateau are left out, in rescaled time", gt=0)
    noise: float = param(0.01, "standard deviation of the noise", gt=0)
    threshold: float = param(1e-5, "weights of smaller magnitude are negligible: they get no noise")
    tolerance: float = param(1e-5, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-11, le=1e-2)
    points: int = param(301, "times from the noise to the middle of the new plateau at which weights are stored", ge=20)

    def check(self) -> None:
        super().check()
        for name in ("threshold", "level"):
            if not 1e-100 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be between 1e-100 and 1; got {getattr(self, name)!r}.")
        if not -float("inf") < self.log10_scale < 0:
            raise InputError(f"log10_scale must be finite and negative, such as -32; got {self.log10_scale!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the training without noise, and from each beginning of a transition the training after noise."""
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
    """Return the stages, the pull |g_(i_k)| at the saddle before each, and which plateaus alpha resolves."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}")
    )
    report(1.0, "Algorithm 1 done")
    pulls = [abs(before.gradient[stage.entered[0]]) for before, stage in pairwise(learned.stages)]
    resolved = resolved_stages(learned, params.log10_scale * np.log(10), efolds=-np.log(params.level))
    return predicted_stages(learned, until=params.until).assign(pull=("stage", pulls), resolved=("stage", resolved))


def _train(task: "AttentionTeacherTask", params: Params, theory: xr.Dataset, report: Report) -> xr.Dataset:
    """Train without noise, and record from where the coordinates that begin resolved plateaus become nonnegligible."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    wanted = theory.where(theory.resolved & (theory.plateau_time < params.until), drop=True)
    wanted = wanted.isel(stage=slice(params.transitions))
    if not wanted.sizes["stage"]:
        raise InputError(
            f"log10_scale must be so small that alpha resolves a plateau before until={params.until!r}; "
            f"got {params.log10_scale!r}. Take -128."
        )
    start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
    trajectory = gradient_flow(
        task.network,
        start,
        until=float(wanted.plateau_time[-1]),
        tolerance=params.tolerance,
        level=params.threshold**2,  # of beta, where both weights pass the threshold
        report=lambda fraction, note: report(fraction, f"without noise, {note}"),
    )
    report(1.0, "without noise, done")
    moments = np.array([_newly_nonnegligible(trajectory, wanted.sel(stage=k), start) for k in wanted.stage])
    lasting = -start.log_scale * (wanted.plateau_time.values - moments)
    found = lasting > 0
    if not found.any():
        raise InputError(
            f"threshold must be above the initial weights, so that one can pass it; got {params.threshold!r}. "
            "Take it larger, or log10_scale smaller."
        )
    since = lasting[found][:, None] * np.linspace(0.0, 1.0, params.points)
    undisturbed = undisturbed_weights(trajectory, start, moments[found], since)
    return undisturbed.assign(begins=("moment", wanted.stage.values[found]))


def _newly_nonnegligible(trajectory: "Trajectory", stage: xr.Dataset, start: "DiagonalInit") -> float:
    """Return the first epoch with the stage's coordinate above the threshold, in rescaled time; NaN if it always is."""
    of_stage = (int(stage.predicted_coordinate), int(stage.predicted_sign))
    passed = [c.time for c in trajectory.crossings if c.rising and (c.index, c.sign) == of_stage]
    if not passed:
        return math.nan
    return math.ceil(passed[-1] * -start.log_scale) / -start.log_scale


def _disturb(task: "AttentionTeacherTask", params: Params, undisturbed: xr.Dataset, moment: int) -> xr.Dataset:
    """Train after the noise."""
    after = add_noise(
        state_at(undisturbed, moment),
        noise=params.noise,
        threshold=params.threshold,
        seed=(params.noise_seed, moment),
    )
    since = undisturbed.since.sel(moment=moment).values
    weights = weights_after(task.network, after, since, params.tolerance)
    return xr.Dataset({"noisy": (("step", "factor", "coordinate"), weights)})


entry = Entry(
    "gradual-rank/figure-11",
    "Figures 3 (b) and 11: noise at the beginning of a stage does not change where it ends",
    citation=CITATION,
    source="Assumption 4.5",
    params=Params,
    quick=dict(log10_scale=-128.0, transitions=3, samples=100, tokens=5, dim=8, until=150.0, tolerance=1e-4),
    run=run,
    claims=claims,
    figures=figures,
)

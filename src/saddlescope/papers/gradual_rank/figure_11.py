"""Figures 3 (b) and 11: noise at the beginning of a stage does not change its end.

Figure 10's experiment at other times: noise is added in the epoch in which a weight first exceeds the threshold in
magnitude, at the beginning of the transition from the saddle θ^(k-1) to θ^k. All weights above the threshold get it.
The transitions are the first ones whose plateaus α resolves, by the theory alone.

    size        of the transition: the largest entry of |β^k - β^(k-1)|, the unit of all distances here
"""

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank.shared import noisy_training
from saddlescope.papers.gradual_rank.shared.diagonal_entries import coordinate_name
from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of
from saddlescope.papers.gradual_rank.shared.stage_times import resolved_stages
from saddlescope.plot import Axis, Figure, Figures, Panel
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param

if TYPE_CHECKING:
    from saddlescope.theory import IncrementalLearning


class Params(noisy_training.NoiseParams):
    """The toy task of appendix A at the smallest of the paper's scales."""

    transitions: int = param(5, "number of transitions: the first whose plateaus are resolved", ge=1)
    level: float = param(
        0.01, "largest weight, in the middle of a resolved plateau, that ends it", ge=1e-100, lt=1, scale="log"
    )
    until: float = param(250.0, "latest middle of a plateau, in rescaled time", gt=0)
    points: int = param(301, "times from the noise to the middle of the new plateau at which weights are stored", ge=20)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1, the training without noise, and from each beginning of a transition the training after noise."""
    import jax

    from saddlescope.flow import gradient_flow

    def train(theory: xr.Dataset, report: Report) -> xr.Dataset:
        """Train without noise, and record from the times at which entering coordinates pass the threshold."""
        wanted = theory.where(theory.resolved & (theory.plateau_time < params.until), drop=True)
        wanted = wanted.isel(stage=slice(params.transitions))
        if not wanted.sizes["stage"]:
            raise InputError(
                f"log10_scale must be so small that alpha resolves a plateau before until={params.until!r}; "
                f"got {params.log10_scale!r}. Take -128."
            )
        start = params.start(task)
        trajectory = gradient_flow(
            task.network,
            start,
            until=float(wanted.plateau_time[-1]),
            tolerance=params.tolerance,
            level=params.threshold**2,  # of beta, where both weights pass the threshold
            report=report,
        )
        report(1.0, "done")

        def first_epoch(stage: xr.Dataset) -> float:
            """Return the first epoch with the stage's coordinate above the threshold; NaN if it always is."""
            of_stage = (int(stage.predicted_coordinate), int(stage.predicted_sign))
            passed = [c.time for c in trajectory.crossings if c.rising and (c.index, c.sign) == of_stage]
            return math.ceil(passed[-1] * -start.log_scale) / -start.log_scale if passed else math.nan

        moments = np.array([first_epoch(wanted.sel(stage=k)) for k in wanted.stage])
        lasting = -start.log_scale * (wanted.plateau_time.values - moments)
        found = lasting > 0
        if not found.any():
            raise InputError(
                f"threshold must be above the initial weights, so that one can pass it; got {params.threshold!r}. "
                "Take it larger, or log10_scale smaller."
            )
        since = lasting[found][:, None] * np.linspace(0.0, 1.0, params.points)
        undisturbed = noisy_training.undisturbed_weights(trajectory, start, moments[found], since)
        return undisturbed.assign(begins=("moment", wanted.stage.values[found]))

    def disturb(undisturbed: xr.Dataset, moment: int) -> xr.Dataset:
        before, since = noisy_training.state_at(undisturbed, moment), undisturbed.since.sel(moment=moment).values
        return noisy_training.train_after(params, task.network, before, params.disturbed(before, moment), since)

    def resolved(learned: "IncrementalLearning") -> dict[str, object]:
        return {"resolved": resolved_stages(learned, params.log10_scale * np.log(10), efolds=-np.log(params.level))}

    with jax.enable_x64(True):
        task = params.task()
        return noisy_training.run_with_noise(context, task, params.until, resolved, train, disturb)


def transitions(run: xr.Dataset) -> list[xr.Dataset]:
    """Return the transitions of a stored run.

    Each has the products of the trainings: `beta` without noise, `noisy_beta`, and `sgd_beta` with and without; `goal`,
    β of the plateau after it; its `size`, and the coordinate `entering`.
    """
    found = []
    for moment in run.moment.values:
        here = run.sel(moment=moment)
        k = int(here.begins)
        goal = here.predicted_beta.sel(stage=k, drop=True)
        before = here.predicted_beta.sel(stage=k - 1, drop=True) if k > 1 else 0 * goal
        here = here.assign(beta=beta_of(here.weights), noisy_beta=beta_of(here.noisy), sgd_beta=beta_of(here.sgd))
        entering = here.predicted_coordinate.sel(stage=k, drop=True)
        found.append(here.assign(goal=goal, size=abs(goal - before).max(), entering=entering))
    return found


def _endpoint(one: xr.Dataset, noise: str = "with") -> float:
    """Return the least distance to θ^k, largest entry of beta, in units of the size, largest over trainings."""
    flow, sgd = one.noisy_beta if noise == "with" else one.beta, one.sgd_beta.sel(noise=noise, drop=True)
    least = [abs(path - one.goal).max("coordinate").min().item() for path in (flow, *sgd)]
    return max(least) / float(one["size"])


claims = Claims(
    limits="One instance, its first five resolved transitions, one size of noise, three orders of minibatches; the "
    "learning rate, batches and 5 % are ours. 'Track the original dynamics' is read as the same endpoint. At "
    "equal times the trainings are a whole transition apart, since noise of 0.01 makes a weight of 1e-5 a thousand "
    "times larger and the transition log(1000)/|g| sooner."
)


@claims.reading(
    "endpoint",
    "After noise of 0.01 at its start, a toy head's transition still reaches Algorithm 1's endpoint, by flow and SGD",
    "Assumption 4.5, Figure 11 and appendix A: 'tend to the limiting endpoint'; to within 5 %",
    high=0.05,
)
def _endpoint_distance(run: xr.Dataset) -> Estimate:
    """Closest approach of the products to the next plateau, relative to the transition's largest change, over all."""
    found = transitions(run)
    without = max(_endpoint(one, "without") for one in found)
    remark = f"{len(found)} transitions; without noise {without:.2g}"
    return Estimate.largest([_endpoint(one) for one in found], remark, over="transitions")


MOST = 7  # largest number of coordinates in a panel: those that move most, by a hundredth of the size or more


def figures(run: xr.Dataset) -> Figures:
    """Draw the transitions over time."""

    def panel(one: xr.Dataset) -> Panel:
        moved = abs(one.noisy_beta - one.noisy_beta[0]).max("step").values
        moving = np.argsort(-moved, kind="stable")[: min(MOST, int((moved > 0.01 * float(one["size"])).sum()))]
        noisy, without = (of.isel(coordinate=moving).values.T for of in (one.noisy_beta, one.beta))
        entering = int(one.entering)
        widths = [2.2 if i == entering else 1.1 for i in moving]
        marks = noisy_training.paired_lines(one.since.values, noisy, without, widths)
        title = f"{coordinate_name(run, entering)} enters: stage {int(one.begins)}"
        x = Axis("t since the noise", "epochs at rate 1")
        return Panel(title=title, x=x, y=Axis("entry of β"), marks=marks)

    yield Figure(
        name="transitions",
        title="Transitions over time, after noise and without it",
        caption=f"From the noise to the middle of the new plateau: the up to {MOST} entries of β that move most, "
        "after the noise (solid) and without it (dashed); the one that enters is drawn thick.",
        panels=tuple(map(panel, transitions(run))),
        columns=3,
    )


entry = Entry(
    "gradual-rank/figure-11",
    "Figures 3 (b) and 11: noise at the beginning of a stage does not change its end",
    source="Assumption 4.5",
    quick=dict(
        log10_scale=-128.0,
        transitions=3,
        samples=100,
        tokens=5,
        dim=8,
        until=150.0,
        tolerance=1e-4,
        batch=20,
        orders=(0, 1),
    ),
)

"""Figures 3 (b) and 11: noise at the beginning of a stage does not change where it ends   (Assumption 4.5)

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.figure_11.transitions import PROGRESS, Transition, transitions
from saddlescope.papers.gradual_rank.shared.entry_figures import name_of
from saddlescope.papers.gradual_rank.shared.head_stages import predicted_stages, resolved_stages
from saddlescope.papers.gradual_rank.shared.noisy_training import at_moment, cut, follow, make_noisy, pair
from saddlescope.plot import Axis, Figure, Panel, Table
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext

if TYPE_CHECKING:
    from saddlescope.flow import DiagonalInit, Trajectory
    from saddlescope.models import AttentionTeacherTask


@dataclass(frozen=True, kw_only=True)
class Params:
    """The toy task of appendix A at the smallest of the paper's scales."""

    log10_scale: float = -32.0  # log10 of the initial scale alpha
    seed: int = 1  # of the data, the teacher and the initial weights
    noise_seed: int = 0  # of the noise
    transitions: int = 5  # how many: the first whose plateaus alpha resolves
    level: float = 0.01  # a plateau is resolved if what ends it is below this in its middle
    until: float = 250.0  # transitions with a later plateau are left out, in rescaled time
    noise: float = 0.01  # standard deviation of the noise
    threshold: float = 1e-5  # weights of smaller magnitude are negligible: they get no noise
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token
    tolerance: float = 1e-5  # relative, of stage times; see `saddlescope.flow.gradient_flow`
    points: int = 301  # times from the noise to the middle of the new plateau at which weights are stored

    def __post_init__(self) -> None:
        parameter_checks.at_least(1, self, "transitions", "samples", "tokens", "dim")
        parameter_checks.positive(self, "until", "noise")
        for name in ("threshold", "level"):
            if not 1e-100 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be between 1e-100 and 1; got {getattr(self, name)!r}.")
        if not -float("inf") < self.log10_scale < 0:
            raise InputError(f"log10_scale must be finite and negative, such as -32; got {self.log10_scale!r}.")
        parameter_checks.between(1e-11, 1e-2, self, "tolerance")
        parameter_checks.at_least(20, self, "points")
        parameter_checks.at_least(0, self, "seed", "noise_seed")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: a small head."""
        return cls(
            log10_scale=-128.0, transitions=3, samples=100, tokens=5, dim=8, until=150.0, tolerance=1e-4
        )  # fmt: skip

    @classmethod
    def paper(cls) -> "Params":
        """The default is already the paper's size."""
        return cls()


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Algorithm 1, the training without noise, and from the beginning of each transition the training after noise."""
    import jax

    from saddlescope.models import attention_teacher_task

    with jax.enable_x64(True):
        task = attention_teacher_task(params.seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
        theory = context.cached("theory", partial(_predict, task, params, context.part(0.0, 0.5)))
        undisturbed = context.cached("undisturbed", partial(_train, task, theory, params, context.part(0.5, 0.8)))
        noisy = []
        moments = undisturbed.moment.values
        for moment in moments:
            noisy.append(context.cached(f"noisy{moment}", partial(_disturb, task, undisturbed, params, int(moment))))
            context.report(0.8 + 0.2 * moment / len(moments), f"noise {moment} of {len(moments)} done")
    runs = xr.concat(noisy, dim="moment", combine_attrs="drop").assign_coords(moment=undisturbed.moment)
    return xr.merge([theory, undisturbed, runs], combine_attrs="drop").assign_attrs(theory.attrs | undisturbed.attrs)


def _predict(task: "AttentionTeacherTask", params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """The stages, the pull |g_(i_k)| at the saddle before each, and which plateaus alpha resolves."""
    from saddlescope.theory import incremental_learning

    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(fraction, f"Algorithm 1, {note}")
    )
    report(1.0, "Algorithm 1 done")
    pulls = [abs(before.gradient[stage.entered[0]]) for before, stage in pairwise(learned.stages)]
    resolved = resolved_stages(learned, params.log10_scale * np.log(10), efolds=-np.log(params.level))
    return predicted_stages(learned, until=params.until).assign(pull=("stage", pulls), resolved=("stage", resolved))


def _train(
    task: "AttentionTeacherTask", theory: xr.Dataset, params: Params, report: Callable[[float, str], None]
) -> xr.Dataset:
    """The training without noise, cut where the coordinates that begin resolved plateaus become nonnegligible."""
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
    return cut(trajectory, start, moments[found], since).assign(begins=("moment", wanted.stage.values[found]))


def _newly_nonnegligible(trajectory: "Trajectory", stage: xr.Dataset, start: "DiagonalInit") -> float:
    """The first epoch in which the stage's coordinate is above the threshold, in rescaled time; NaN if it always is."""
    of_stage = (int(stage.predicted_coordinate), int(stage.predicted_sign))
    passed = [c.time for c in trajectory.crossings if c.rising and (c.index, c.sign) == of_stage]
    if not passed:
        return math.nan
    return math.ceil(passed[-1] * -start.log_scale) / -start.log_scale


def _disturb(task: "AttentionTeacherTask", undisturbed: xr.Dataset, params: Params, moment: int) -> xr.Dataset:
    """The training after the noise."""
    after = make_noisy(
        at_moment(undisturbed, moment),
        noise=params.noise,
        threshold=params.threshold,
        seed=(params.noise_seed, moment),
    )
    since = undisturbed.since.sel(moment=moment).values
    weights = follow(task.network, after, since, params.tolerance)
    return xr.Dataset({"noisy": (("step", "factor", "coordinate"), weights)})


# The bounds. "Tend to the limiting endpoint", "track the original dynamics" have no number. Read here as: at most 5 %
# of the transition's size from the endpoint, as in Figure 10; at most 10 % of it, what an eye sees, from the curve.
def _endpoint(run: xr.Dataset) -> Estimate:
    found = transitions(run)
    return Estimate(
        max(one.endpoint() for one in found),
        remark=f"{len(found)} transitions; {max(one.endpoint(noisy=False) for one in found):.2g} without noise",
    )


def _tracks(run: xr.Dataset) -> Estimate:
    return Estimate(max(one.farthest() for one in transitions(run)))


def _same_path(run: xr.Dataset) -> Estimate:
    apart, after_a_plateau = [], []
    for one in transitions(run):
        noisy, without = one.path(True), one.path(False)
        if noisy is None or without is None:
            return Estimate.unresolved(f"The transition to stage {one.stage} does not rise through 10 % to 90 %.")
        apart.append(float(abs(noisy[1] - without[1]).max() / one.size))
        if one.stage == 1 or bool(run.resolved.sel(stage=one.stage - 1)):
            after_a_plateau.append(apart[-1])
    others = f"{max(after_a_plateau):.2g} after resolved plateaus, which are {len(after_a_plateau)}"
    return Estimate(max(apart), remark=others if after_a_plateau else "none after a resolved plateau")


claims = (
    Claim(
        name="endpoint",
        says="After noise at its beginning a transition still ends at theta^k: least distance in units of its size, "
        "at worst",
        source="Assumption 4.5 and Appendix A: 'tend to the limiting endpoint'; at most 5 %",
        statistic=_endpoint,
        high=0.05,
    ),
    Claim(
        name="tracks",
        says="The noisy training tracks the one without noise: largest distance at the same time in units of the "
        "transition's size, at worst",
        source="Figure 11, caption, as printed; at most 10 %",
        statistic=_tracks,
        high=0.1,
    ),
    Claim(
        name="same-path",
        says="The transition takes the same path, only sooner: largest distance at the same progress, 10 % to 90 %, in "
        "units of its size, at worst",
        source="Figure 3 (b): 'same nonlinear evolution', as it can hold; at most 10 %",
        statistic=_same_path,
        high=0.1,
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The transitions over time, with a table, and over their progress."""
    found = transitions(run)
    return [_over_time(run, found), _over_progress(run, found)]


MOST = 7  # coordinates that a panel shows: those that move most, and by a hundredth of the size at least


def _moving(one: Transition) -> np.ndarray:

    moved = abs(one.noisy - one.noisy[0]).max(axis=0)
    return np.argsort(-moved, kind="stable")[: min(MOST, int((moved > 0.01 * one.size).sum()))]


def _over_time(run: xr.Dataset, found: tuple[Transition, ...]) -> Figure:

    panels = tuple(
        Panel(
            title=f"{name_of(run, one.entering)} enters: stage {one.stage}",
            x=Axis("time t since the noise", "epochs at learning rate 1"),
            y=Axis("entry of beta"),
            marks=tuple(
                line
                for color, i in enumerate(_moving(one))
                for line in pair(
                    one.since, one.noisy[:, i], one.beta[:, i], color=color, width=2.2 if i == one.entering else 1.1
                )
            ),
        )
        for one in found
    )
    return Figure(
        name="transitions",
        title="After noise when a coordinate becomes nonnegligible, the transition comes sooner",
        caption=f"From the noise to the middle of the new plateau: the up to {MOST} entries of beta that move most, "
        "after the noise (solid) and without it (dashed); the one that enters is drawn thick. The table has how much "
        "sooner that one is half-way, in time t, and what is expected: the e-folds by which noise made its weight "
        "larger, over |g| at the saddle before.",
        panels=panels,
        columns=3,
        table=Table(
            columns=("stage", "enters", "noise at", "size", "to theta^k", "without noise", "at the same time",
                     "at the same progress", "sooner by", "expected"),
            rows=tuple(_row(run, one) for one in found),
        ),
    )  # fmt: skip


def _row(run: xr.Dataset, one: Transition) -> tuple[str | float | int, ...]:
    noisy, without = one.path(True), one.path(False)
    same, sooner = "–", "–"
    if noisy is not None and without is not None:
        same = f"{abs(noisy[1] - without[1]).max() / one.size:.1%}"
        sooner = f"{without[0][40] - noisy[0][40]:.1f}"  # half-way
    return (
        one.stage,
        name_of(run, one.entering),
        f"{one.time:.2f}",
        one.size,
        f"{one.endpoint():.2%}",
        f"{one.endpoint(noisy=False):.2%}",
        f"{one.farthest():.0%}",
        same,
        sooner,
        f"{one.growth / one.pull:.1f}",
    )


def _over_progress(run: xr.Dataset, found: tuple[Transition, ...]) -> Figure:

    grid = np.linspace(*PROGRESS)
    panels = []
    for one in found:
        noisy, without = one.path(True), one.path(False)
        if noisy is None or without is None:
            continue
        panels.append(
            Panel(
                title=f"{name_of(run, one.entering)} enters: stage {one.stage}",
                x=Axis(f"progress of {name_of(run, one.entering)}"),
                y=Axis("entry of beta"),
                marks=tuple(
                    line
                    for color, i in enumerate(_moving(one))
                    for line in pair(
                        grid, noisy[1][:, i], without[1][:, i], color=color, width=2.2 if i == one.entering else 1.1
                    )
                ),
            )
        )
    return Figure(
        name="paths",
        title="The same path, only sooner",
        caption="The same entries against the progress of the entering one, beta_i over its value on the new plateau: "
        "after the noise (solid) and without it (dashed). They part where other coordinates enter at the same time, "
        "since the noise changes the order.",
        panels=tuple(panels),
        columns=3,
    )

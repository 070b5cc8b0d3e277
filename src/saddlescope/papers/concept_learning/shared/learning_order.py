"""Order of learning of two concepts by perceptrons, for varied signals and diversities: Figures 2, 11 and 12.

    panel "signal"      sigma fixed and balanced, mu_1 varied, mu_2 fixed
    panel "diversity"   mu = (1, 2) fixed, sigma_1 varied, sigma_2 fixed
    progress            of concept p: its coordinate of the output at x^ over mu_p, from about 0 to 1
    half-time           after which the progress of a concept stays above 1/2; infinite where it never does
    lead                of concept 1: its progress less that of concept 2, a mean over the run; its sign is the side
                        to which the trajectory bulges, 0 for a straight one

The paper does not list its values but (.05, .05) and (2, .05): those of the entries lie on both sides of a_1 = a_2.
"""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.shared.perceptron_training import PerceptronTraining, PrintedConcepts, train
from saddlescope.plot import Axis, Line, Panel, Table
from saddlescope.reproduction.claim import Claim, Estimate, Kind
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameters import EntryParams, param

SIGNAL, DIVERSITY = "signal", "diversity"

_APART = 1.1  # strengths whose ratio is below this count as equal

_BAR = "the paper has no number; this project's bar, from trial runs of another implementation"


class OrderParams(EntryParams):
    """The paper's training, for several seeds."""

    mu: tuple[float, ...] = param((1.0, 2.0), 'signals of panel "diversity"; mu_2 is that of panel "signal", too')
    varied_mu: tuple[float, ...] = param((1.0, 1.5, 2.5, 3.0), 'mu_1 in panel "signal"')
    sigma: float = param(
        0.05, 'of both concepts, in panel "diversity" of the second; as printed, used as a variance', gt=0
    )
    varied_sigma: tuple[float, ...] = param((0.05, 0.5, 1.5, 2.0), 'sigma_1 in panel "diversity"')
    seeds: int = param(40, "networks for every task", ge=1)
    seed: int = param(
        0, "of samples, rotation, start and SGD of the first network; the others have the next ones", ge=0
    )
    dim: int = param(64, "d, also the width of the hidden layer where there is one", ge=2)
    samples: int = param(5000, "of each cluster", ge=1)
    epochs: int = param(40, "of SGD with batch 128 and learning rate 0.1", ge=1)
    every: int = param(5, "steps between two marks", ge=1)

    def check(self) -> None:
        for name in ("varied_mu", "varied_sigma"):
            values = getattr(self, name)
            if len(values) < 2 or list(values) != sorted(set(values)) or not 0 < values[0] <= values[-1] < float("inf"):
                raise InputError(f"{name} must be two or more, positive and increasing, such as 1,2; got {values!r}.")
        if len(self.mu) != 2 or not all(0 < value < float("inf") for value in self.mu):
            raise InputError(f"mu must be two positive numbers, such as 1,2; got {self.mu!r}.")


def tasks(params: Any) -> list[PrintedConcepts]:
    """Return the tasks of panel "signal", then of panel "diversity"."""
    one, two = params.mu
    signal = [((value, two), (params.sigma, params.sigma)) for value in params.varied_mu]
    return signal + [((one, two), (value, params.sigma)) for value in params.varied_sigma]


def run_panels(training: PerceptronTraining, params: Any, context: RunContext) -> xr.Dataset:
    """Train the networks of both panels for all seeds, in one call."""
    seeds = range(params.seed, params.seed + params.seeds)
    found = train(
        training, tasks(params), seeds, checkpoint=context.scratch / "runs.npz", report=context.part(0.0, 0.6)
    )
    panels = [SIGNAL] * len(params.varied_mu) + [DIVERSITY] * len(params.varied_sigma)
    return found.assign_coords(
        panel=("task", panels), varied=("task", [*params.varied_mu, *params.varied_sigma])
    ).assign_attrs(sigma=params.sigma, mu=params.mu)


def run_two_layers(params: Any, context: RunContext, *, relu: bool) -> xr.Dataset:
    """Train all two-layer networks of Figure 11 or, with ReLU between the layers, 12."""
    training = PerceptronTraining(
        depth=2, dim=params.dim, relu=relu, samples=params.samples, epochs=params.epochs, every=params.every
    )
    found = run_panels(training, params, context)
    context.report(1.0, "done")
    return found


def progress(run: xr.Dataset) -> xr.DataArray:
    """Return the progress of every concept."""
    return run.output / run.mu


def half_times(run: xr.Dataset) -> np.ndarray:
    """Return half-times (task, seed, concept), in the time t of equation 4.1."""
    below = (~(progress(run) > 0.5)).transpose("task", "seed", "concept", "step").values
    last = below.shape[-1] - 1 - np.argmax(below[..., ::-1], axis=-1)  # the last mark at which it is not above
    return np.append(run.time.values, np.inf)[np.where(below.any(axis=-1), last + 1, 0)]


def leads(run: xr.Dataset) -> xr.DataArray:
    """Return the lead of concept 1, (task, seed)."""
    made = progress(run)
    return (made.sel(concept=1) - made.sel(concept=2)).mean("step").transpose("task", "seed")


def stronger_first(run: xr.Dataset) -> np.ndarray:
    """Return 1 where the stronger concept has its half-time first, else 0; NaN at equal strengths, (task, seed)."""
    first, second = np.moveaxis(half_times(run), -1, 0)
    strengths = run.strength.transpose("task", "concept").values
    ordered = np.where(strengths[:, :1] > strengths[:, 1:], first < second, second < first).astype(float)
    ratio = strengths.max(axis=1) / strengths.min(axis=1)
    return np.where(ratio[:, None] >= _APART, ordered, np.nan)


def order_claims(place: str) -> tuple[Claim, ...]:
    """Return claims on the order of learning in both panels, and on the shift of the trajectory."""
    what = {
        SIGNAL: ("the stronger signal (larger mu, equal sigma)", "mu_1 rises"),
        DIVERSITY: ("the larger a_p = sigma_p + mu_p^2/3, here told by diversity,", "sigma_1 rises"),
    }
    return tuple(
        claim
        for panel, (stronger, rises) in what.items()
        for claim in (
            Claim(
                name=f"order-{panel}",
                statement=f"The concept with {stronger} is learned first",
                quantity="part of the networks in which it is",
                kind=Kind.PRINTED,
                source=f"{place}, section 3.1, and a_p of section 4.1 with the cluster at the origin; {_BAR}",
                low=0.9,
                statistic=partial(_ordered_share, panel=panel),
            ),
            Claim(
                name=f"shift-{panel}",
                statement=f"As {rises}, the trajectory bulges ever more towards concept 1",
                quantity="part of the seeds in which the lead of concept 1 rises from task to task",
                kind=Kind.PRINTED,
                source=f"{place}, section 3.1; {_BAR}",
                low=0.9,
                statistic=partial(_shifted_share, panel=panel),
            ),
        )
    )


def arrival_claim(place: str) -> Claim:
    """Return the claim that the networks generalise by the end of training."""
    return Claim(
        name="arrives",
        statement="In the end the output is near the test point",
        quantity="part of the networks whose out-of-distribution loss has fallen to a tenth of its start",
        kind=Kind.PRINTED,
        source=f"{place}: the trajectories end at the test points; {_BAR}",
        low=0.9,
        statistic=_arrived_share,
    )


def select_panel(run: xr.Dataset, panel: str) -> xr.Dataset:
    """Select the tasks of a panel."""
    return run.isel(task=(run.panel == panel).values)


def _ordered_share(run: xr.Dataset, *, panel: str) -> Estimate:
    ordered = stronger_first(select_panel(run, panel))
    known = ~np.isnan(ordered)
    if not known.any():
        return Estimate.unresolved("No task has two strengths that differ by a tenth; vary more.")
    return Estimate.share(ordered[known].sum(), known.sum())


def _shifted_share(run: xr.Dataset, *, panel: str) -> Estimate:
    lead = leads(select_panel(run, panel)).values
    rises = np.all(np.diff(lead, axis=0) > 0, axis=0)
    means = ", ".join(f"{value:+.2f}" for value in lead.mean(axis=1))
    return Estimate.share(rises.sum(), len(rises), f"{rises.sum()} of {len(rises)} seeds; mean leads {means}")


def _arrived_share(run: xr.Dataset) -> Estimate:
    left = run.test_loss.isel(step=-1) / run.test_loss.isel(step=0)
    remark = f"{left.size} networks; median left {float(left.median()):.2g}"
    return Estimate.share(float((left < 0.1).sum()), left.size, remark)


def trajectory_panels(run: xr.Dataset) -> tuple[Panel, ...]:
    """Draw the outputs of the first seed in the plane of the concepts, with points at equal times.

    Where the run has a `prediction`, it is drawn dashed.
    """
    panels = []
    for panel, sign in ((SIGNAL, "μ₁"), (DIVERSITY, "σ₁")):
        one = select_panel(run, panel).isel(seed=0)
        lines: list[Line] = []
        for k, value in enumerate(one.varied.values.tolist()):
            lines += _trajectory(one.isel(task=k), f"{sign} = {value:g}", k)
        mu_1, mu_2 = run.attrs["mu"]
        balanced = f"μ = (μ₁, {mu_2:g}), σ = ({run.attrs['sigma']:g}, {run.attrs['sigma']:g})"
        varied = f"μ = ({mu_1:g}, {mu_2:g}), σ = (σ₁, {run.attrs['sigma']:g})"
        title = balanced if panel == SIGNAL else varied
        panels.append(Panel(title=title, x=Axis("output, concept 1"), y=Axis("output, concept 2"), marks=tuple(lines)))
    return tuple(panels)


def _trajectory(one: xr.Dataset, label: str, color: int) -> list[Line]:
    """Draw one network's output, points at 40 equal times, and the test point."""
    x, y = one.output.transpose("concept", "step").values
    points = slice(None, None, max(1, len(x) // 40))
    goal = np.atleast_2d(one.mu.values).T
    lines = [
        Line(x=x, y=y, group=label, color=color, width=1.2, opacity=0.6),
        Line(x=x[points], y=y[points], group=label, color=color, style="points", width=1.5),
        Line(x=goal[0], y=goal[1], group=label, color=color, style="points", width=5.0),
    ]
    if "prediction" in one:
        x, y = one.prediction.transpose("concept", "step").values
        lines.append(Line(x=x, y=y, group=label, color=color, style="dashed", width=1.0))
    return lines


def order_table(run: xr.Dataset) -> Table:
    """Return a table of predictions and measurements, a row for each task."""
    half, lead, ordered = half_times(run), leads(run).values, stronger_first(run)
    rows = []
    for k, task in enumerate(run.task.values.tolist()):
        a_1, a_2 = run.strength.isel(task=k).values.tolist()
        known = ordered[k][~np.isnan(ordered[k])]
        right = f"{int(known.sum())} of {len(known)}" if len(known) else "a₁ ≈ a₂"
        rows.append((task, a_1, a_2, *np.median(half[k], axis=0).tolist(), float(lead[k].mean()), right))
    columns = (
        "task, numbers as printed", "a₁", "a₂", "half-time of concept 1, median", "of concept 2", "lead of concept 1",
        "stronger first",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))


QUICK = dict(varied_mu=(1.0, 3.0), varied_sigma=(0.05, 2.0), seeds=20, dim=24, samples=1500, every=20)
"""Return parameters for a run of seconds: fewer dimensions, which makes the steps longer, and fewer samples."""

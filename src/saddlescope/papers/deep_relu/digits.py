"""Handwritten digits at depth 6: the whole staircase, found without looking, over seeds.

The experiment of Figure 1 on images of 8 x 8 pixels, small enough to be repeated for many seeds. From small weights a
deep ReLU network stays near the origin, escapes to a plateau on which its deeper layers have rank one, and then to one
of rank two. Stages and ranks are found from the recorded loss and singular values alone, by the same policies for all.
In pilots on other seeds about one in four skipped the plateau of rank one, and did so at deviations 0.02, 0.018 and
0.0165 alike: it depends on the direction of the initial weights, not on their scale.

    L       depth; layers are counted from the input, and the deeper ones are 3 to L - 1
    s_i     singular values of a layer's weights, descending
    plateau a stage of `saddlescope.measure.find_plateaus`; the first one follows the escape from the origin
    eta     learning rate, rate |theta|^(2 - L): steps of the paper's time s
"""

from functools import partial
from typing import TYPE_CHECKING

import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.image_training import image_loss, train_on_images
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    ends_early,
    rank_path,
    select_first_plateau,
    singular_value_ratios,
)
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.sequence_checks import require_distinct
from saddlescope.papers.deep_relu.shared.staircase_metrics import ACCURACY_METRIC, STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training_figures import layer_panels, loss_panel, stage_rows
from saddlescope.plot import Figure, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models.deep import LayeredLoss


class Params(EntryParams):
    """A width at which one seed takes half a minute; the paper has this experiment on MNIST alone (Figure 1)."""

    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "of initial weights and minibatches")
    depth: int = param(6, "number of layers L", ge=4)
    width: int = param(100, "of the hidden layers", ge=1)
    deviation: float = param(0.02, "standard deviation of the initial weights", gt=0)
    rate: float = param(10.0, "of the learning rate rate |theta|^(2 - L)", gt=0)
    batch: int = param(32, "samples in a minibatch", ge=1)
    steps: int = param(200_000, "of stochastic gradient descent: 4,300 epochs of 1,500 images", ge=1)
    marks: int = param(64, "steps at which spectra are stored, for each doubling of the step", ge=1)

    def check(self) -> None:
        require_distinct(0, self, "seeds")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train seed by seed."""
    loss = image_loss("digits", context)
    seeds = []
    for n, seed in enumerate(params.seeds):
        part = context.part(n / len(params.seeds), (n + 1) / len(params.seeds))
        seeds.append(context.cached(f"seed-{seed}", partial(_train, loss, params, seed, context, part)))
    context.report(1.0, "done")
    together = xr.concat(seeds, dim="seed", join="outer", combine_attrs="drop_conflicts")
    return together.assign_coords(seed=list(params.seeds)).assign_attrs(width=params.width, deviation=params.deviation)


def _train(loss: "LayeredLoss", params: Params, seed: int, context: RunContext, report: Report) -> xr.Dataset:
    setup = TrainingSetup(
        depth=params.depth, width=params.width, deviation=params.deviation, rate=params.rate, batch=params.batch,
        steps=params.steps, seed=seed,
    )  # fmt: skip
    return train_on_images(
        loss, setup, context, name=f"seed-{seed}", per_doubling=params.marks,
        report=lambda fraction, note: report(fraction, f"seed {seed}, {note}"),
    )  # fmt: skip


# The bounds. This project's bar, set before any run: for every seed a plateau at rank 1 in the deeper layers, then rank
# 2, and at least 99 % accuracy. Of a pilot on the seeds 100, 101 and 102 the first two have both plateaus (escapes
# at steps 40,143 and 42,281, s_2 / s_1 of up to 0.16 in the deeper layers on the first one); the third goes to rank 2
# at step 54,140 without a plateau at rank 1 that could be distinguished from its drop. So there is a second,
# weaker claim beside the bar: most seeds. All three have accuracy 1.
def _deeper(run: xr.Dataset) -> slice:
    return slice(3, run.sizes["layer"] - 1)


def _incomplete(run: xr.Dataset) -> Estimate | None:
    """Return an undecided estimate where a seed ends before its second escape, else None."""
    early = [str(seed) for seed in run.seed.values if ends_early(run.sel(seed=seed), _deeper(run))]
    if early:
        return Estimate.unresolved(f"Seeds that ended before a rank of 2: {', '.join(early)}; take more steps.")
    return None


claims = Claims()


@claims.add(
    "ranks",
    "The deeper layers have rank 0, then 1, then 2 on the plateaus found",
    quantity="part of the seeds",
    kind="printed",
    source="Section 3.3: one dominant singular value after the first escape, a second one later; most seeds, as in two of three of the pilot on other seeds",
    low=0.5,
)
def _paths(run: xr.Dataset) -> Estimate:
    if early := _incomplete(run):
        return early
    paths = {int(seed): rank_path(run.sel(seed=seed), _deeper(run)) for seed in run.seed.values}
    remark = "; ".join(f"seed {seed}: {'-'.join(map(str, ranks))}" for seed, ranks in paths.items())
    return Estimate(sum(ranks[:3] == [0, 1, 2] for ranks in paths.values()) / len(paths), remark=remark)


claims.add(
    "ranks-every-seed",
    "The same for every seed",
    quantity="value",
    kind="own",
    source="Section 3.3; this project's bar, set before any run",
    low=1.0,
)(_paths)


@claims.add(
    "rank-one",
    "In the middle of a plateau at rank 1 one singular value dominates every deeper layer",
    quantity="largest s_2 / s_1",
    kind="printed",
    source="Section 3.3, no number; the pilot on other seeds had up to 0.16, and 0.3 leaves room",
    high=0.3,
)
def _first_ratio(run: xr.Dataset) -> Estimate:
    """Return the largest s_2 / s_1 of a deeper layer on the first plateau, over the seeds with rank 1 there."""
    first = run.stage_layer_rank.isel(stage=1).sel(layer=_deeper(run))
    seeds = run.seed.values[(first == 1).all("layer").values]
    if not len(seeds):
        return Estimate.unresolved("No seed has a plateau at rank 1.")
    worst = max(
        float(singular_value_ratios(select_first_plateau(run.sel(seed=seed)), 2).sel(layer=_deeper(run)).max())
        for seed in seeds
    )
    return Estimate(worst, remark=f"{len(seeds)} of {run.sizes['seed']} seeds")


@claims.add(
    "accuracy",
    "The network fits the digits in the end",
    quantity="least accuracy on the training images",
    kind="own",
    source="this project's bar; 1.000 in the pilot on other seeds",
    low=0.99,
)
def _accuracy(run: xr.Dataset) -> Estimate:
    return _incomplete(run) or Estimate(float(run.accuracy.isel(step=-1).min()), remark="the worst seed")


@claims.add(
    "escape",
    "The escape from the origin takes about as many steps for every seed",
    quantity="latest over earliest",
    kind="printed",
    source="Section 2.1: the escape is that of a deterministic flow from a random start; the pilot on other seeds had a ratio of 1.35",
    low=1.0,
    high=2.0,
)
def _first_escape(run: xr.Dataset) -> Estimate:
    starts = run.stage_start.isel(stage=1)
    if bool(starts.isnull().any()):
        return Estimate.unresolved("A seed did not escape from the origin; take more steps.")
    return Estimate(float(starts.max() / starts.min()), remark=", ".join(f"{start:.0f}" for start in starts.values))


metrics = (*STAIRCASE_METRICS, ACCURACY_METRIC)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss for every seed with a table of the stages, and the spectra of the first seed over time."""
    by_seed = {f"seed {seed}": run.sel(seed=seed) for seed in run.seed.values}
    first = run.isel(seed=0)
    return [
        Figure(
            name="loss",
            title="Two saddles for every seed",
            caption="Loss on all training images. The table has the stages that were found: where each begins, its "
            "level, and the rank of every layer.",
            panels=(loss_panel(by_seed),),
            columns=1,
            table=_table(run),
        ),
        Figure(
            name="spectra",
            title="One singular value after the first escape, a second one after the next",
            caption=f"The ten largest singular values of every layer, seed {int(first.seed)}. All others keep their "
            "initial sizes.",
            panels=layer_panels(first),
            columns=3,
        ),
    ]


def _table(run: xr.Dataset) -> Table:
    rows = tuple(row for seed in run.seed.values.tolist() for row in stage_rows(run.sel(seed=seed), seed))
    return Table(columns=("seed", "stage", "begins at step", "loss", "ranks of the layers"), rows=rows)


entry = Entry(
    "deep-relu/digits",
    "Handwritten digits at depth 6: the whole staircase, found without looking, over seeds",
    citation=CITATION,
    source="Sections 3.3 and 5",
    params=Params,
    quick=dict(seeds=(1,), width=24, deviation=0.06, steps=12_000, marks=16),
    paper=dict(seeds=tuple(range(20))),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)

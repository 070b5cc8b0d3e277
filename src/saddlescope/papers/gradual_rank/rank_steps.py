"""Do the ranks of single heads go up by steps, as theory says of small weights?.

The paper shows means over heads, which rise gradually whether or not each head learns by steps. Here the staircase of
every head is found by itself, as in Figures 6 and 7 at several initial scales. Theorem 4.1 has steps in the limit of
vanishing scale, and heads of one layer that tie take theirs together.

    step            a singular value of the update leaves a plateau for a higher one, abruptly or while those still to
                    come stay; see `saddlescope.measure.rank_stairs`
    heads           of all layers, each with two updates: of W_K W_Q^T (KQ) and of W_V W_O^T (VO)
    clock           in which steps are looked for: the number of steps of Adam, or the sum of its learning rates so far.
                    Warm-up and decay flatten every curve over the former; an update of rank one then seems to make a
                    step, whatever it does, since nothing grows beside it
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION, figure_6
from saddlescope.papers.gradual_rank.shared import vit_training
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics
from saddlescope.plot import Axis, Band, Figure, Line, Panel
from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.plot.rank_staircase_figure import staircase_figure
from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(figure_6.Params):
    """A narrow ViT of three blocks on the digits embedded in scikit-learn, down to a thirtieth of the usual scale."""

    scales: tuple[float, ...] = param((1.0, 0.1, 0.03), "initial scales, decreasing; 1 is the default of all layers")
    seeds: tuple[int, ...] = param((4, 5, 6, 7), "one training run each: initial weights and order of the images")
    head_width: int = param(16, "columns of W_K, W_Q, W_V and W_O of one head")
    batch: int = param(64, "images in a step")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one ViT per scale and seed, then find the staircase of every head, in both clocks."""
    from saddlescope.measure import rank_staircases
    from saddlescope.train import TrainConfig

    trained = figure_6.run(params, context).transpose("step", ..., "index")
    every = trained.attrs["steps_per_epoch"]
    schedule = TrainConfig(epochs=params.epochs, warmup_epochs=params.warmup_epochs, batch=params.batch)
    rates = np.cumsum([schedule.learning_rate(step, every) for step in range(params.epochs * every)])
    trained = trained.assign_coords(clock=list(CLOCKS)).assign(
        clocks=(("clock", "step"), np.stack([trained.step.values, rates[trained.step.values - 1] / rates[0]]))
    )
    labels = ("scale", "seed", "layer", "head", "product")
    values = trained.update_spectrum.transpose("step", *labels, "index").values
    floors = trained.noise_floor.transpose("step", *labels).values
    found = np.stack([rank_staircases(clock, values, floors, time_unit="") for clock in trained.clocks.values])
    counts = np.array([len(staircase.times) for staircase in found.flat]).reshape(found.shape)
    firsts = [staircase.times[0] if staircase.times else np.nan for staircase in found[0].flat]
    return trained.assign(
        rank_steps=(("clock", *labels), counts, {"long_name": "steps of the rank"}),
        first_step=(labels, np.reshape(firsts, found[0].shape), {"long_name": "time of the first", "units": "steps"}),
    )


def _share(run: xr.Dataset, clock: str) -> xr.DataArray:
    """Return the share of updates that have a step, (scale, seed)."""
    return (run.rank_steps.sel(clock=clock) > 0).mean(("layer", "head", "product")).transpose("scale", "seed")


def _falls(run: xr.Dataset, clock: str) -> Estimate:
    return Estimate.mean(np.polyfit(np.log10(run.scale.values), _share(run, clock).values, 1)[0])


# The bounds. Theory speaks of the limit of vanishing scale and has no number for a given one. Read here as: most heads
# (more than half) have no steps at the usual scale and most have steps at the smallest. In pilots with seeds 0 to 3 the
# shares were 0.08, 0.76 and 0.78 at scales 1, 0.1 and 0.03 over steps. The decay of the learning rate had a part in
# that: with seeds 1 to 3 they were 0.08, 0.57 and 0.60 over the sum of learning rates. So the claims were posed again
# in that clock, with the same bounds, and all are judged on other seeds.
CLOCKS = {"steps": "in the clock of steps", "rates": "in the clock of learning rates"}

claims = Claims()

claims.extend(claim for claim in figure_6.claims if claim.name == "learned")

claims.extend(
    (
        claim
        for clock, over in CLOCKS.items()
        for claim in (
            Claim(
                name=f"ramps-{clock}",
                statement="At the usual initial scale most heads learn gradually",
                quantity=f"share of updates with a step, {over}",
                kind=Kind.OWN,
                source="Theorem 4.1, of small scales only; most: this project's reading, after pilots with other seeds",
                high=0.5,
                statistic=lambda run, clock=clock: Estimate.mean(_share(run, clock).values[0]),
            ),
            Claim(
                name=f"stairs-{clock}",
                statement="At the smallest initial scale most heads learn by steps",
                quantity=f"share of updates with a step, {over}",
                kind=Kind.OWN,
                source="Theorem 4.1; most: this project's reading, after pilots with other seeds",
                low=0.5,
                statistic=lambda run, clock=clock: Estimate.mean(_share(run, clock).values[-1]),
            ),
            Claim(
                name=f"falls-{clock}",
                statement="The smaller the initial scale, the more heads learn by steps",
                quantity=f"slope of the share over its decades, {over}",
                kind=Kind.PRINTED,
                source="Theorem 4.1: steps in the limit of vanishing scale",
                high=0.0,
                statistic=lambda run, clock=clock: _falls(run, clock),
            ),
        )
    )
)


@claims.add(
    "together",
    "Heads of one layer take their first steps together at the smallest scale",
    quantity="distance of two heads' first steps in log time, in a layer over that in different layers",
    kind="own",
    source="Heads of one layer tie in the diagonal model (the entry tied-heads); below 1: this project's reading",
    high=1.0,
)
def _together(run: xr.Dataset) -> Estimate:
    """Return mean distance of the first steps of two heads, in log time: in a layer over that in different ones."""
    ratios = []
    for seed in run.seed.values:
        one = run.first_step.isel(scale=-1).sel(seed=seed).transpose("product", "layer", "head")
        times, layers = np.log(one.values), np.broadcast_to(one.layer.values[:, None], one.shape[1:]).ravel()
        away = np.abs(times.reshape(len(times), -1, 1) - times.reshape(len(times), 1, -1))
        pairs, same = np.triu(np.ones(away.shape[1:], bool), 1), layers[:, None] == layers
        within, between = (away[:, pairs & one] for one in (same, ~same))
        if not (np.isfinite(within).any() and np.isfinite(between).any()):
            return Estimate.unresolved(f"With seed {seed} too few heads have steps to compare their times.")
        ratios.append(np.nanmean(within) / np.nanmean(between))
    return Estimate.mean(ratios)


metrics = image_metrics


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the share of heads that learn by steps over the initial scale, and the steps of all heads at its ends."""
    clock, pictures = run.clocks.sel(clock="rates").values, []
    for name, scale in (("small", run.scale.values[-1]), ("large", run.scale.values[0])):
        figure = staircase_figure(run.sel(scale=scale), clock=clock)
        told = f"Initial scale {scale:g}, seed {int(run.seed[0])}. {figure.caption}"
        title = f"{figure.title}, at initial scale {scale:g}"
        pictures.append(replace(figure, name=f"stairs-{name}", title=title, caption=told, table=None))
    return [_shares(run), *pictures]


def _shares(run: xr.Dataset) -> Figure:
    panels = []
    for clock, over in CLOCKS.items():
        marks: list[Band | Line] = []
        for color, (product, name) in enumerate(PRODUCTS.items()):
            share = (run.rank_steps.sel(clock=clock, product=product) > 0).mean(("layer", "head"))
            x, group = run.scale.values, f"update of {name}"
            marks.append(
                Band(x=x, low=share.min("seed").values, high=share.max("seed").values, group=group, color=color)
            )
            marks.append(Line(x=x, y=share.mean("seed").values, label=group, group=group, color=color))
        y = Axis("share of heads with a step", range=(0.0, 1.0))
        panels.append(Panel(title=over, x=Axis("initial scale", scale="log"), y=y, marks=tuple(marks)))
    return Figure(
        name="shares",
        title="Small weights learn by steps, usual ones gradually",
        caption="Share of heads whose update has a step, in both clocks; mean and range over seeds.",
        panels=tuple(panels),
    )


entry = Entry(
    "gradual-rank/rank-steps",
    "Do the ranks of single heads go up by steps, as theory says of small weights?",
    citation=CITATION,
    source="beyond Section 5",
    params=Params,
    quick=vit_training.QUICK | dict(scales=(1.0, 0.3), seeds=(0, 1, 2), depth=1, epochs=8, learning_rate=1e-2),
    paper=vit_training.PAPER_TRAINING | dict(seeds=(4, 5, 6, 7)),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)

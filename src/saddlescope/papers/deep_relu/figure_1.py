"""Figures 1 and 3: MNIST is learned from saddle to saddle at depth 6, one singular value at a time.

Appendix B: depth 6, no biases, cross-entropy, normal weights of small deviation, SGD with minibatches of 32 and the
learning rate 10 / |theta|^4, images standardised by the mean and deviation of the data set. The default trains
several narrower networks on the embedded digits. The reduced size has the paper's images, a width of 200 and larger
initial weights: with the paper's deviation times the square root of the width (2.2e-3 here), three networks escaped
from the origin after 190,000 to 250,000 steps and were still on the first plateau after 1,200,000.

    s_i      singular values of a layer's weights, descending; layers are counted from the input
    plateau  a stage of `saddlescope.measure.find_plateaus`; the paper draws its vertical lines by eye
    layers   deeper: 4 to 6, as in the paper; inner: 3 to 5, whose inputs and outputs are both wide
"""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    ACCURACY_METRIC,
    STAIRCASE_METRICS,
    judge_ended_early,
    judge_first_plateaus,
    rank_path_share,
    select_first_plateau,
    select_seeds,
    singular_value_ratios,
)
from saddlescope.papers.deep_relu.shared.training import DATASET, Data, TrainingSetup, image_loss, train_seeds
from saddlescope.papers.deep_relu.shared.training_figures import layer_panels, loss_panel, spectra_panel, stage_table
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Figure, Mark
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

INNER = slice(3, 5)  # layers


class Params(EntryParams):
    """Parameters; the default has a narrower network, on digits."""

    dataset: Data = param("digits", DATASET)
    width: int = param(100, "width of the hidden layers", ge=1)
    deviation: float = param(0.02, "standard deviation of the initial weights", gt=0, scale="log")
    rate: float = param(10.0, "factor of the learning rate, which is factor / |theta|^4", gt=0)
    batch: int = param(32, "samples in a minibatch", ge=1)
    steps: int = param(160_000, "steps of stochastic gradient descent", ge=1, scale="log")
    marks: int = param(24, "stored spectra per doubling of the step", ge=1)
    seeds: tuple[int, ...] = param(
        tuple(range(30, 39)), "seeds of the initial weights and minibatches", ge=0, order="distinct"
    )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one network per seed."""
    loss = image_loss(params.dataset, context)
    setup = TrainingSetup(
        depth=6, width=params.width, deviation=params.deviation, rate=params.rate, batch=params.batch,
        steps=params.steps, seed=0,
    )  # fmt: skip
    found = train_seeds(loss, setup, params.seeds, context, per_doubling=params.marks)
    context.report(1.0, "done")
    return found.assign_attrs(data=params.dataset)


# The bounds. "Dominant" is read as: at least twice the next one; a pilot on another seed had 4.8 times in the layers 2
# to 6, and 2.2 times in the first. The first layer is judged with the others, since the paper says "in every layer".
# "Most" is more than half of the networks. Ratios are averaged as logarithms to base 2, in which a factor 2 is 1. The
# quick run ends before its second escape.
claims = Claims()


@claims.add(
    "saddles", "Most depth-6 ReLU networks trained on images from small weights escape from at least two saddles",
    quantity="share of networks with at least two drops between plateaus of the training loss",
    kind="stand-in", source="Section 3.3: 'two distinct saddle points', on a narrower network; most is over half",
    low=0.5, sizes=("default", "reduced", "paper"), evidence="sample", over="seeds", needs=("accuracy",),
    why="A saddle shows as a plateau of the loss, and the drop after it is the escape from it",
    doubt="A slow stretch of one descent may pass for a plateau, since the finder asks only for a relative slowdown",
)  # fmt: skip
def _escapes(run: xr.Dataset) -> Estimate:
    enough = int((run.stages_found >= 3).sum())
    return judge_ended_early(run, INNER) or Estimate.share(enough, run.sizes["seed"])


@claims.add(
    "dominant",
    "After the first saddle escape of depth-6 ReLU networks, every layer's largest singular value is at least twice "
        "the second",
    quantity="mean over networks of log₂ of the largest ratio of second to first singular value of a layer, midway "
        "through the first plateau after the escape", kind="stand-in",
    source="Section 3.3: 'a single dominant singular value in every layer', read as a factor 2; a narrower network",
    high=-1.0, sizes=("default", "reduced", "paper"), evidence="sample", over="seeds",
    why="The layer with the largest ratio decides whether one singular value dominates in every layer",
    doubt="The factor 2 is ours, and the middle of the plateau is the most favourable time at which to look",
)  # fmt: skip
def _dominance(run: xr.Dataset) -> Estimate:
    if early := judge_first_plateaus(run):
        return early
    worst = [float(singular_value_ratios(select_first_plateau(one), 2).max()) for one in select_seeds(run)]
    return Estimate.mean(np.log2(worst), f"ratios {min(worst):.2f} to {max(worst):.2f}")


@claims.add(
    "deeper",
    "After its first saddle escape, a depth-6 ReLU network's layers 4-6 are closer to rank one than layers 1-3",
    quantity="mean over networks of log₂ of the mean ratio of second to first singular value in layers 4-6 over that "
        "in layers 1-3, midway through the first plateau", kind="stand-in",
    source="Section 3.3: 'particularly pronounced in the deeper layers (layers 4-6)'; a narrower network", high=0.0,
    sizes=("default", "reduced", "paper"), evidence="sample", over="seeds",
    why="A smaller ratio of the second singular value to the first is a spectrum closer to rank one",
    doubt="The first layer, which sees all input dimensions, may alone make the difference",
)  # fmt: skip
def _deeper_less(run: xr.Dataset) -> Estimate:
    if early := judge_first_plateaus(run):
        return early
    found = [singular_value_ratios(select_first_plateau(one), 2) for one in select_seeds(run)]
    ratios = [float(one.sel(layer=slice(4, 6)).mean() / one.sel(layer=slice(1, 3)).mean()) for one in found]
    return Estimate.mean(np.log2(ratios), f"ratios {min(ratios):.2f} to {max(ratios):.2f}")


@claims.add(
    "rise", "On the first loss plateaus, layers 3 to 5 of most depth-6 ReLU networks have the ranks 0, 1, 2",
    quantity="share of networks with common ranks 0, 1, 2 of layers 3 to 5 on the first loss plateaus",
    kind="stand-in",
    source="Section 3.3: one dominant singular value, then a second one; most is over half", low=0.5,
    sizes=("default", "reduced", "paper"), evidence="sample", over="seeds", needs=("accuracy",),
    why="The rank on a plateau counts the singular values learned so far, so each escape should add one",
    doubt="The rank depends on the gap rule of the finder, and layers 3 to 5 were chosen by us",
)  # fmt: skip
def _rise(run: xr.Dataset) -> Estimate:
    return judge_ended_early(run, INNER) or rank_path_share(run, INNER)


@claims.add(
    "second", "In trained depth-6 ReLU networks, singular values s_i of layers 3 to 5 have s₃/s₂ at most half s₂/s₁",
    quantity="mean over networks of log₂ of the largest ratio of s₃/s₂ to s₂/s₁ of a layer, over layers 3 to 5, at the "
        "last step", kind="stand-in",
    source="Section 3.3: 'a second dominant singular value appears'; at least a factor 2, 0.25 in a pilot", high=-1.0,
    sizes=("default", "reduced", "paper"), evidence="sample", over="seeds", needs=("accuracy",),
    why="If a second singular value joins the first, the gap in the spectrum moves from behind s₁ to behind s₂",
    doubt="Longer training adds further singular values, so the result depends on the last step",
)  # fmt: skip
def _second_value(run: xr.Dataset) -> Estimate:
    two, three = (singular_value_ratios(run.isel(step=-1), value).sel(layer=INNER) for value in (2, 3))
    ratios = (three / two).max("layer").values
    return judge_ended_early(run, INNER) or Estimate.mean(
        np.log2(ratios), f"ratios {ratios.min():.2f} to {ratios.max():.2f}"
    )


@claims.add(
    "accuracy",
    "Every trained depth-6 ReLU network classifies at least 95 % of its training images correctly at the last step",
    quantity="smallest share of training images classified correctly at the last step, over networks", kind="own",
    source="this project's bar; 0.983 in a pilot on another seed, no number in the paper", low=0.95,
    sizes=("default", "reduced", "paper"), evidence="cases", over="seeds",
    why="A network that does not fit its images has not finished the path that the other claims describe",
    doubt="Accuracy on training images says nothing about unseen ones, and the bar of 95 % is ours",
)  # fmt: skip
def _accuracy(run: xr.Dataset) -> Estimate:
    return judge_ended_early(run, INNER) or Estimate.smallest(run.accuracy.isel(step=-1).values)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 1, the loss and spectra at two steps, and Figure 3, spectra over time, of the first seed."""
    by_seed = {f"seed {int(one.seed)}": one for one in select_seeds(run)}
    first = run.isel(seed=0)
    at, end = select_first_plateau(first), first.isel(step=-1)
    seen = [] if at.step.isnull() else [(at, f"first plateau, step {int(at.step)}")]
    marks = tuple(Mark(at=float(one.step) / 1000) for one, _ in seen)
    return [
        Figure(
            name="escape",
            title="Loss, and spectra of all layers on the first plateau and at the end",
            caption=f"Left: loss on all {run.samples} training images of {run.data}, for every seed. Right: the ten "
            f"largest singular values of each layer of seed {int(first.seed)} at the marked step, half-way through the "
            "first plateau, and at the last step. The table lists the stages found.",
            panels=(loss_panel(by_seed, marks), *(spectra_panel(*one) for one in [*seen, (end, "last step")])),
            columns=3,
            table=stage_table(by_seed, "network"),
        ),
        Figure(
            name="path",
            title="Singular values of each layer over training",
            caption="The ten largest singular values of the weights of each layer against the step, "
            f"seed {int(first.seed)}.",
            panels=layer_panels(first),
            columns=3,
        ),
    ]


entry = Entry(
    "deep-relu/figure-1",
    "Figures 1 and 3: MNIST is learned from saddle to saddle at depth 6, one singular value at a time",
    citation=CITATION, source="Section 3.3", params=Params,
    quick=dict(width=24, deviation=0.06, steps=16_000, marks=16, seeds=(0, 1)),
    reduced=dict(dataset="mnist", width=200, deviation=0.01, steps=1_200_000, seeds=(50, 51, 52)),
    paper=dict(dataset="mnist", width=1000, deviation=1e-3, steps=1_875_000, marks=6, seeds=(30, 31, 32, 33)),
    run=run, claims=claims, data=IMAGES, figures=figures, metrics=(*STAIRCASE_METRICS, ACCURACY_METRIC),
)  # fmt: skip

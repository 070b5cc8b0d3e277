"""Figures 1 and 3: at depth 6 MNIST is learned from saddle to saddle, a singular value at a time.

Appendix B: depth 6, no biases, cross-entropy, normal weights of small deviation, SGD with minibatches of 32 and the
learning rate 10 / |theta|^4, images standardised by the mean and deviation of the data set. Without a data
folder, the embedded digits replace MNIST.

    s_i     singular values of a layer's weights, descending; layers are counted from the input
    plateau a stage of `saddlescope.measure.find_plateaus`; the paper draws its vertical lines by eye
    deeper  layers: 4 to 6, as in the paper; inner layers: 3 to 5, of which both sides are wide
"""

from collections.abc import Callable
from functools import partial

import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.image_training import Data, image_loss, train_on_images
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    count_escapes,
    describe_stages,
    ends_early,
    rank_path,
    select_first_plateau,
    singular_value_ratios,
)
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.staircase_metrics import ACCURACY_METRIC, STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training_figures import layer_panels, loss_panel, spectra_panel, stage_table
from saddlescope.plot import Figure, Mark
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

INNER = slice(3, 5)  # layers


class Params(EntryParams):
    """A tenth of the paper's width, at which the path takes four minutes."""

    dataset: Data = param("mnist", "the images; embedded digits where there is no data folder")
    width: int = param(100, "of the hidden layers", ge=1)
    deviation: float = param(0.016, "standard deviation of the initial weights", gt=0)
    rate: float = param(10.0, "of the learning rate rate / |theta|^4", gt=0)
    batch: int = param(32, "samples in a minibatch", ge=1)
    steps: int = param(300_000, "of stochastic gradient descent: 160 epochs of 60,000 images", ge=1)
    marks: int = param(24, "steps at which spectra are stored, for each doubling of the step", ge=1)
    seed: int = param(0, "of initial weights and minibatches", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one network."""
    loss = image_loss(params.dataset, context)
    setup = TrainingSetup(
        depth=6, width=params.width, deviation=params.deviation, rate=params.rate, batch=params.batch,
        steps=params.steps, seed=params.seed,
    )  # fmt: skip
    options = {"name": "network", "per_doubling": params.marks, "report": context.part(0.0, 1.0)}
    found = context.cached("network", partial(train_on_images, loss, setup, context, **options))
    context.report(1.0, "done")
    return found


# The bounds. "Dominant" is read as: at least twice the next one; a pilot on another seed had 4.8 times in the layers 2
# to 6, and 2.2 times in the first. The first layer is judged with the others, since the paper says "in every layer".
def _no_plateau(run: xr.Dataset) -> Estimate:
    return Estimate.unresolved(f"No plateau was found after the origin: {describe_stages(run)}.")


def _rise(run: xr.Dataset) -> Estimate:
    """Return 1 if the ranks of the inner layers on the plateaus are 0, 1, 2, repetitions aside, else 0."""
    return Estimate(float(rank_path(run, INNER) == [0, 1, 2]), remark=describe_stages(run))


def _second_value(run: xr.Dataset) -> Estimate:
    """Return the largest final (s_3 / s_2) / (s_2 / s_1) of the inner layers: below 1 where the gap is after two."""
    at = run.isel(step=-1)
    two, three = (singular_value_ratios(at, value).sel(layer=INNER) for value in (2, 3))
    values = ", ".join(f"{float(a):.2f} and {float(b):.2f}" for a, b in zip(two, three, strict=True))
    return Estimate(float((three / two).max()), remark=f"s_2/s_1 and s_3/s_2 of the layers 3 to 5: {values}")


def _accuracy(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.accuracy.isel(step=-1)))


def _if_complete(run: xr.Dataset, *, statistic: Callable[[xr.Dataset], Estimate]) -> Estimate:
    """Return a statistic of the complete path; undecided where the run ends on the first plateau."""
    if ends_early(run, INNER):
        return Estimate.unresolved(f"The run ended before the second escape; take more steps. {describe_stages(run)}.")
    return statistic(run)


claims = Claims()

claims.add(
    "saddles",
    "The loss shows at least two saddles",
    quantity="escapes found",
    kind="reading",
    source="Section 3.3: 'two distinct saddle points'",
    low=2.0,
)(partial(_if_complete, statistic=count_escapes))


@claims.add(
    "dominant",
    "After the first escape one singular value dominates in every layer",
    quantity="largest s_2 / s_1",
    kind="reading",
    source="Section 3.3: 'a single dominant singular value in every layer'; at least twice the next one",
    high=0.5,
)
def _dominance(run: xr.Dataset) -> Estimate:
    """Return the largest s_2 / s_1 of any layer in the middle of the first plateau."""
    at = select_first_plateau(run)
    if at.step.isnull():
        return _no_plateau(run)
    found = singular_value_ratios(at, 2)
    remark = f"at step {int(at.step)}: " + ", ".join(f"{float(ratio):.2f}" for ratio in found)
    return Estimate(float(found.max()), remark=remark)


@claims.add(
    "deeper",
    "It does so more in the deeper layers",
    quantity="mean s_2 / s_1 of the layers 4 to 6 over that of 1 to 3",
    kind="reading",
    source="Section 3.3: 'particularly pronounced in the deeper layers (layers 4-6)'",
    high=1.0,
)
def _deeper_less(run: xr.Dataset) -> Estimate:
    """Return the mean s_2 / s_1 of the layers 4 to 6 over that of the layers 1 to 3 on the first plateau."""
    at = select_first_plateau(run)
    if at.step.isnull():
        return _no_plateau(run)
    found = singular_value_ratios(at, 2)
    return Estimate(float(found.sel(layer=slice(4, 6)).mean() / found.sel(layer=slice(1, 3)).mean()))


claims.add(
    "rise",
    "The inner layers have rank 0, then 1, then 2, and no other, on the plateaus found",
    quantity="1 where they have",
    kind="printed",
    source="Section 3.3: the rank increases following subsequent escapes; so it was in the pilot on another seed",
    low=1.0,
)(partial(_if_complete, statistic=_rise))

claims.add(
    "second",
    "In the end two singular values stand out in the inner layers",
    quantity="s_3 / s_2 over s_2 / s_1, at worst",
    kind="reading",
    source="Section 3.3: 'a second dominant singular value appears'; at least a factor 2, 0.25 in the pilot",
    high=0.5,
)(partial(_if_complete, statistic=_second_value))

claims.add(
    "accuracy",
    "The network has learned in the end",
    quantity="accuracy on the training images",
    kind="printed",
    source="no number in the paper; 0.983 in the pilot on another seed, and 0.95 leaves room",
    low=0.95,
)(partial(_if_complete, statistic=_accuracy))

metrics = (*STAIRCASE_METRICS, ACCURACY_METRIC)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 1, the loss and spectra at two steps, and Figure 3, spectra over time."""
    at, end = select_first_plateau(run), run.isel(step=-1)
    seen = [] if at.step.isnull() else [(at, f"after the first escape, step {int(at.step)}")]
    marks = tuple(Mark(at=float(one.step) / 1000) for one, _ in seen)
    return [
        Figure(
            name="escape",
            title="After the first escape every layer has one dominant singular value",
            caption="Left: loss on all training images, with a line where the spectra to the right are taken. Right: "
            "the ten largest singular values of each layer there, and in the end. The table has the stages found.",
            panels=(loss_panel({"loss": run}, marks), *(spectra_panel(*one) for one in [*seen, (end, "in the end")])),
            columns=3,
            table=stage_table(run),
        ),
        Figure(
            name="path",
            title="One singular value a saddle",
            caption="The ten largest singular values of each layer over training. Those that nothing has been learned "
            "with keep their initial sizes.",
            panels=layer_panels(run),
            columns=3,
        ),
    ]


entry = Entry(
    "deep-relu/figure-1",
    "Figures 1 and 3: at depth 6 MNIST is learned from saddle to saddle, a singular value at a time",
    citation=CITATION,
    source="Section 3.3",
    params=Params,
    quick=dict(dataset="digits", width=24, deviation=0.06, steps=16_000, marks=16),
    paper=dict(width=1000, deviation=1e-3, steps=1_875_000, marks=6),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)

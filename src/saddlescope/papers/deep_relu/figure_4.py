"""Figure 4: at depth 4 the plateaus are less distinct than at depth 6.

The experiment of Figure 1 at depth 4, from two initial deviations, beside depth 6. The paper sees fewer distinct
plateaus at depth 4, and takes it as a hint that ReLU networks, unlike linear ones, need depth besides small weights.

    s_i      singular values of a layer's weights, descending; layers are counted from the input
    plateau  a stage of `saddlescope.measure.find_plateaus`
    stay     number of steps that the loss spends in each of 24 equal bands, from 2 to 50 % of its fall
    distinct the longest stay over the median one: 1 for a straight descent, large where a plateau is distinct

The paper gives no learning rate for depth 4. Its counterpart rate |theta|^(2 - L) is 10 / |theta|^2 at rate 10, with
which small weights make a far too large step as they escape: at rate 10 and deviation 0.002 |theta|
goes from 0.6 to 78 within the first 523 steps. So the rate at depth 4 is a separate, smaller parameter.
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.image_training import Data, image_loss, train_on_images
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    describe_stages,
    ends_early,
    plateau_distinctness,
    rank_path,
)
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.staircase_metrics import ACCURACY_METRIC, STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.training_figures import layer_panels, loss_panel, stage_rows
from saddlescope.plot import Figure, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

INNER = slice(2, 3)  # layers at depth 4

NAMES = ("depth 4, larger", "depth 4, smaller", "depth 6")


class Params(EntryParams):
    """A tenth of the paper's width, at which the three networks take six minutes."""

    dataset: Data = param("mnist", "the images; embedded digits where there is no data folder")
    width: int = param(100, "of the hidden layers", ge=1)
    deviations: tuple[float, ...] = param((0.016, 0.001), "of the initial weights at depth 4: two, decreasing")
    rate: float = param(0.3, "at depth 4, of the learning rate rate / |theta|^2", gt=0)
    steps: int = param(120_000, "of stochastic gradient descent at depth 4", ge=1)
    deep_deviation: float = param(0.016, "standard deviation of the initial weights at depth 6", gt=0)
    deep_rate: float = param(10.0, "at depth 6, of the learning rate rate / |theta|^4", gt=0)
    deep_steps: int = param(300_000, "of stochastic gradient descent at depth 6", ge=1)
    batch: int = param(32, "samples in a minibatch", ge=1)
    marks: int = param(24, "steps at which spectra are stored, for each doubling of the step", ge=1)
    seed: int = param(0, "of initial weights and minibatches", ge=0)

    def check(self) -> None:
        if len(self.deviations) != 2 or not 0 < self.deviations[1] < self.deviations[0] < float("inf"):
            raise InputError(f"deviations must be two positive numbers, decreasing; got {self.deviations!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the three networks; steps and layers that one lacks are NaN."""
    loss = image_loss(params.dataset, context)
    larger, smaller = params.deviations
    settings = (
        (4, larger, params.rate, params.steps),
        (4, smaller, params.rate, params.steps),
        (6, params.deep_deviation, params.deep_rate, params.deep_steps),
    )
    edges = (0.0, 0.2, 0.4, 1.0)  # of the progress
    found = []
    for n, (depth, deviation, rate, steps) in enumerate(settings):
        setup = TrainingSetup(
            depth=depth, width=params.width, deviation=deviation, rate=rate, batch=params.batch, steps=steps,
            seed=params.seed,
        )  # fmt: skip
        name, report = f"network-{n}", partial(_report_named, context.part(edges[n], edges[n + 1]), NAMES[n])
        options = {"name": name, "per_doubling": params.marks, "report": report}
        found.append(context.cached(name, partial(train_on_images, loss, setup, context, **options)))
    context.report(1.0, "done")
    fill = {"stage_rank": -1, "stage_layer_rank": -1}
    together = xr.concat(found, dim="network", join="outer", combine_attrs="drop_conflicts", fill_value=fill)
    return together.assign_coords(
        network=list(NAMES), depth=("network", [one[0] for one in settings]),
        deviation=("network", [one[1] for one in settings]),
    )  # fmt: skip


def _report_named(report: Report, name: str, fraction: float, note: str) -> None:
    report(fraction, f"{name}, {note}")


def _select_network(run: xr.Dataset, name: str) -> xr.Dataset:
    """Return one network, at its own steps and layers."""
    one = run.sel(network=name)
    return one.isel(step=one.loss.notnull().values, layer=slice(int(one.depth)))


# The bounds. A pilot on another seed had the numbers 2.5 and 8.4 at depth 4 and 33 at depth 6, and on the first plateau
# the inner layers' ranks 6 and 1 at depth 4. A factor 2 is asked for where the paper says "more".
def _compare_distinctness(run: xr.Dataset, one: str, other: str) -> Estimate:
    distinctness = {name: plateau_distinctness(_select_network(run, name)) for name in (one, other)}
    return Estimate(
        distinctness[one] / distinctness[other],
        remark=", ".join(f"{name}: {value:.3g}" for name, value in distinctness.items()),
    )


def _incomplete(run: xr.Dataset) -> Estimate | None:
    if ends_early(_select_network(run, NAMES[2]), slice(3, 5)):
        return Estimate.unresolved("The network of depth 6 ended before its second escape; take more deep_steps.")
    return None


def _first_rank(run: xr.Dataset, *, name: str) -> Estimate:
    """Return the rank of the inner layers on the first plateau after the origin."""
    one = _select_network(run, name)
    ranks = rank_path(one, INNER)
    if len(ranks) < 2:
        return Estimate.unresolved(f"No plateau was found after the origin: {describe_stages(one)}.")
    if ranks[1] < 0:
        return Estimate.unresolved(f"The inner layers differ in rank: {describe_stages(one)}.")
    return Estimate(float(ranks[1]), remark=describe_stages(one))


claims = Claims()


@claims.add(
    "depth",
    "Plateaus are more distinct at depth 6 than at depth 4 from the same deviation",
    quantity="ratio",
    kind="reading",
    source="Section 5: 'more distinct plateaus in depth 6 layer compared to a depth 4 layer'; at least 2",
    low=2.0,
)
def _by_depth(run: xr.Dataset) -> Estimate:
    return _incomplete(run) or _compare_distinctness(run, NAMES[2], NAMES[0])


@claims.add(
    "depth-needed",
    "At depth 4 a smaller initialisation alone does not make them more distinct",
    quantity="ratio",
    kind="reading",
    source="Section 5, as it suggests: 'we need to also increase the depth'; up to 1.5 is the same",
    high=1.5,
)
def _by_deviation(run: xr.Dataset) -> Estimate:
    return _compare_distinctness(run, NAMES[1], NAMES[0])


claims.add(
    "smaller-is-sharper",
    "At depth 4 a smaller initialisation alone makes them more distinct",
    quantity="ratio",
    kind="printed",
    source="the contrary of what Section 5 suggests, seen in a pilot on another seed; at least a factor 2",
    low=2.0,
)(_by_deviation)

claims.add(
    "smaller-is-rank-one",
    "At depth 4, from the smaller deviation, the inner layers have rank 1 on the first plateau",
    quantity="value",
    kind="printed",
    source="Section 5, as conjectured for depth and small weights together; so it was in a pilot on another seed",
    low=1.0,
    high=1.0,
)(partial(_first_rank, name=NAMES[1]))

claims.add(
    "larger-is-not",
    "From the larger deviation they have a higher rank there",
    quantity="value",
    kind="printed",
    source="Figure 4: fewer distinct plateaus; rank 6 in a pilot on another seed",
    low=2.0,
)(partial(_first_rank, name=NAMES[0]))


@claims.add(
    "accuracy",
    "All three networks have learned in the end",
    quantity="least accuracy on the training images",
    kind="printed",
    source="no number in the paper; 0.983 or more in a pilot on another seed, and 0.95 leaves room",
    low=0.95,
)
def _accuracy(run: xr.Dataset) -> Estimate:
    worst = min(float(_select_network(run, name).accuracy[-1]) for name in NAMES)
    return _incomplete(run) or Estimate(worst, remark="the worst of three")


metrics = (*STAIRCASE_METRICS, ACCURACY_METRIC)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the three losses with a table of their stages, and the spectra at depth 4 from either deviation."""
    networks = {name: _select_network(run, name) for name in NAMES}
    titles = {name: f"{name} ({float(one.deviation):g})" for name, one in networks.items()}
    losses = tuple(
        loss_panel({titles[name]: one}, title=titles[name], color=n) for n, (name, one) in enumerate(networks.items())
    )
    rows = tuple(row for name, one in networks.items() for row in stage_rows(one, titles[name]))
    return [
        Figure(
            name="loss",
            title="Plateaus at depth 4 from two initial deviations, and at depth 6",
            caption="Loss on all training images. The table has the stages found in each run.",
            panels=losses,
            columns=3,
            table=Table(columns=("network", "stage", "begins at step", "loss", "ranks of the layers"), rows=rows),
        ),
        *(
            Figure(
                name=f"path-{n}",
                title=f"Spectra over training: {titles[name]}",
                caption="The ten largest singular values of each layer.",
                panels=layer_panels(networks[name]),
                columns=2,
            )
            for n, name in enumerate(NAMES[:2])
        ),
    ]


entry = Entry(
    "deep-relu/figure-4",
    "Figure 4: at depth 4 the plateaus are less distinct than at depth 6",
    citation=CITATION,
    source="Appendix B and Section 5",
    params=Params,
    quick=dict(
        dataset="digits",
        width=24,
        deviations=(0.06, 0.01),
        rate=1.0,
        steps=3000,
        deep_deviation=0.1,
        deep_steps=6000,
        marks=12,
    ),
    paper=dict(
        width=1000, deviations=(1e-3, 1e-4), steps=1_875_000, deep_deviation=1e-3, deep_steps=1_875_000, marks=6
    ),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)

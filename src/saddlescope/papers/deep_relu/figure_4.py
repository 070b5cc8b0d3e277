"""Figure 4: plateaus of the loss at depth 4 are less distinct than at depth 6.

The experiment of Figure 1 at depth 4, from two initial deviations, beside depth 6. The paper sees fewer distinct
plateaus at depth 4, and takes it as a hint that ReLU networks, unlike linear ones, need depth besides small weights.

    s_i           singular values of a layer's weights, descending; layers are counted from the input
    plateau       a stage of `saddlescope.measure.find_plateaus`
    stay          number of steps that the loss spends in each of 24 equal bands, from 2 to 50 % of its fall
    distinctness  the longest stay over the median one: 1 for a straight descent, large for a distinct plateau

The paper gives no learning rate for depth 4. Its counterpart rate |theta|^(2 - L) is 10 / |theta|^2 at rate 10, with
which small weights make a far too large step as they escape: at rate 10 and deviation 0.002 |theta|
goes from 0.6 to 78 within the first 523 steps. So the rate at depth 4 is a separate, smaller parameter.
"""

from functools import partial

import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    ACCURACY_METRIC,
    STAIRCASE_METRICS,
    describe_stages,
    ends_early,
    plateau_distinctness,
    rank_path,
)
from saddlescope.papers.deep_relu.shared.training import (
    Data,
    TrainingSetup,
    concatenate_networks,
    image_loss,
    train_on_images,
)
from saddlescope.papers.deep_relu.shared.training_figures import layer_panels, loss_panel, stage_table
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

LARGER, SMALLER, DEEP = NAMES = ("depth 4, larger", "depth 4, smaller", "depth 6")


class Params(EntryParams):
    """Parameters; the default is a tenth of the paper's width."""

    dataset: Data = param("mnist", "training images; embedded digits if there is no data folder")
    width: int = param(100, "width of the hidden layers", ge=1)
    deviations: tuple[float, ...] = param(
        (0.016, 0.001), "two standard deviations of the initial weights at depth 4",
        gt=0, least=2, most=2, order="decreasing", scale="log",
    )  # fmt: skip
    rate: float = param(0.3, "factor of the learning rate at depth 4, which is factor / |theta|^2", gt=0)
    steps: int = param(120_000, "steps of stochastic gradient descent at depth 4", ge=1, scale="log")
    deep_deviation: float = param(0.016, "standard deviation of the initial weights at depth 6", gt=0, scale="log")
    deep_rate: float = param(10.0, "factor of the learning rate at depth 6, which is factor / |theta|^4", gt=0)
    deep_steps: int = param(300_000, "steps of stochastic gradient descent at depth 6", ge=1, scale="log")
    batch: int = param(32, "samples in a minibatch", ge=1)
    marks: int = param(24, "stored spectra per doubling of the step", ge=1)
    seed: int = param(0, "seed of the initial weights and minibatches", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the three networks; steps and layers that one lacks are NaN."""
    loss = image_loss(params.dataset, context)
    settings = [(4, deviation, params.rate, params.steps) for deviation in params.deviations]
    settings.append((6, params.deep_deviation, params.deep_rate, params.deep_steps))
    found = []
    for (n, (depth, deviation, rate, steps)), step in context.steps(enumerate(settings), [0.2, 0.2, 0.6]):
        setup = TrainingSetup(
            depth=depth, width=params.width, deviation=deviation, rate=rate, batch=params.batch, steps=steps,
            seed=params.seed,
        )  # fmt: skip
        checkpoint = context.scratch / f"network-{n}.npz"
        options = {"checkpoint": checkpoint, "per_doubling": params.marks, "report": step.note(NAMES[n])}
        found.append(step.cached(f"network-{n}", partial(train_on_images, loss, setup, **options)))
    context.report(1.0, "done")
    depths, deviations, *_ = zip(*settings, strict=True)
    return concatenate_networks(found, "drop_conflicts").assign_coords(
        network=list(NAMES), depth=("network", list(depths)), deviation=("network", list(deviations))
    )


def _select_network(run: xr.Dataset, name: str) -> xr.Dataset:
    """Return one network, at its own steps and layers."""
    one = run.sel(network=name)
    return one.isel(step=one.loss.notnull().values, layer=slice(int(one.depth)))


# The bounds. A pilot on another seed had the numbers 2.5 and 8.4 at depth 4 and 33 at depth 6, and on the first plateau
# the inner layers' ranks 6 and 1 at depth 4. A factor 2 is asked for where the paper says "more". The quick network of
# depth 6 ends before its second escape.
claims = Claims()


def _compare_distinctness(run: xr.Dataset, one: str, other: str) -> Estimate:
    distinctness = {name: plateau_distinctness(_select_network(run, name)) for name in (one, other)}
    remark = ", ".join(f"{name}: {value:.3g}" for name, value in distinctness.items())
    return Estimate(distinctness[one] / distinctness[other], remark=remark)


def _incomplete(run: xr.Dataset) -> Estimate | None:
    if ends_early(_select_network(run, DEEP), slice(3, 5)):
        return Estimate.unresolved("The network of depth 6 ended before its second escape; take more deep_steps.")
    return None


@claims.add(
    "depth", "Loss plateaus are at least twice as distinct at depth 6 as at depth 4 with the larger initial weights",
    quantity="plateau distinctness (longest over median stay of the loss in equal value bands) of a ReLU network, "
        "depth 6 over depth 4", kind="stand-in",
    source="Section 5: 'more distinct plateaus in depth 6 layer compared to a depth 4 layer'; at least 2", low=2.0,
    sizes=("default", "paper"),
)  # fmt: skip
def _by_depth(run: xr.Dataset) -> Estimate:
    return _incomplete(run) or _compare_distinctness(run, DEEP, LARGER)


@claims.add(
    "depth-needed",
    "At depth 4, smaller initial weights make the loss plateaus of ReLU networks at most 1.5 times as distinct",
    quantity="plateau distinctness (longest over median stay of the loss in equal value bands), smaller over "
        "larger initial weights", kind="stand-in",
    source="Section 5 suggests it: 'we need to also increase the depth'; up to 1.5 counts as equal", high=1.5,
)  # fmt: skip
def _by_deviation(run: xr.Dataset) -> Estimate:
    return _compare_distinctness(run, SMALLER, LARGER)


claims.add(
    "smaller-is-sharper",
    "At depth 4, smaller initial weights make the loss plateaus of ReLU networks at least twice as distinct",
    quantity="plateau distinctness (longest over median stay of the loss in equal value bands), smaller over larger "
        "initial weights", kind="own",
    source="the contrary of the suggestion in Section 5, seen in a pilot on another seed; at least a factor 2",
    low=2.0,
)(_by_deviation)  # fmt: skip


def _first_rank(run: xr.Dataset, name: str) -> Estimate:
    one = _select_network(run, name)
    ranks = rank_path(one, slice(2, 3))
    if len(ranks) < 2:
        return Estimate.unresolved(f"No plateau was found after the origin: {describe_stages(one)}.")
    if ranks[1] < 0:
        return Estimate.unresolved(f"The inner layers differ in rank: {describe_stages(one)}.")
    return Estimate(float(ranks[1]), remark=describe_stages(one))


claims.add(
    "smaller-is-rank-one",
    "Layers 2 and 3 of a depth-4 network with smaller initial weights have rank one after the first escape",
    quantity="common rank of the weights of layers 2 and 3 on the first loss plateau after the escape from the "
        "origin", kind="own",
    source="Section 5 expects this of depth and small weights together; so it was in a pilot on another seed",
    low=1.0, high=1.0,
)(partial(_first_rank, name=SMALLER))  # fmt: skip

claims.add(
    "larger-is-not",
    "Layers 2 and 3 of a depth-4 network with larger initial weights have rank above one after the first escape",
    quantity="common rank of the weights of layers 2 and 3 on the first loss plateau after the escape from the "
        "origin", kind="own", source="Figure 4 shows fewer distinct plateaus; rank 6 in a pilot on another seed",
    low=2.0,
)(partial(_first_rank, name=LARGER))  # fmt: skip


@claims.add(
    "accuracy",
    "All three networks, of depth 4 and 6, classify at least 95 % of training images correctly after training",
    quantity="smallest share of training images classified correctly at the last step, over two networks of depth "
        "4 and one of depth 6", kind="own",
    source="this project's bar; at least 0.983 in a pilot on another seed, no number in the paper", low=0.95,
    sizes=("default", "paper"),
)  # fmt: skip
def _accuracy(run: xr.Dataset) -> Estimate:
    worst = min(float(_select_network(run, name).accuracy[-1]) for name in NAMES)
    return _incomplete(run) or Estimate(worst, remark="the worst of three")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the three losses with a table of their stages, and the spectra at depth 4 from either deviation."""
    networks = {f"{name} ({float(run.deviation.sel(network=name)):g})": _select_network(run, name) for name in NAMES}
    return [
        Figure(
            name="loss",
            title="Loss at depth 4 from two initial deviations, and at depth 6",
            caption="Loss on all training images against the step; the titles have the depth and the initial "
            "deviation. The table lists the stages found in each run.",
            panels=tuple(loss_panel({key: one}, title=key, color=n) for n, (key, one) in enumerate(networks.items())),
            columns=3,
            table=stage_table(networks, "network"),
        ),
        *(
            Figure(
                name=f"path-{n}",
                title=f"Singular values of each layer over training: {key}",
                caption="The ten largest singular values of the weights of each layer against the step.",
                panels=layer_panels(one),
                columns=2,
            )
            for n, (key, one) in enumerate(list(networks.items())[:2])
        ),
    ]


entry = Entry(
    "deep-relu/figure-4", "Figure 4: plateaus of the loss at depth 4 are less distinct than at depth 6",
    citation=CITATION, source="Appendix B and Section 5", params=Params,
    quick=dict(dataset="digits", width=24, deviations=(0.06, 0.01), rate=1.0, steps=3000, deep_deviation=0.1,
        deep_steps=6000, marks=12),
    paper=dict(width=1000, deviations=(1e-3, 1e-4), steps=1_875_000, deep_deviation=1e-3, deep_steps=1_875_000,
        marks=6), run=run, claims=claims, figures=figures, metrics=(*STAIRCASE_METRICS, ACCURACY_METRIC),
)  # fmt: skip

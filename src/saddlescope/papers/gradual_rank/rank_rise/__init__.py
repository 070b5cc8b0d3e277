"""Does the rank of a transformer's updates rise? Figures 4 and 15 against accumulated gradient noise.

The paper says that the updates of W_K W_Qᵀ and W_V W_Oᵀ gradually increase in stable rank during training. An update
that learns nothing may do so, too. So each network here has a null: gradients of the same minibatches at the frozen
initial weights, each with a random sign, by the same Adam with the same learning rates.

    network         labels          trained on the labels, from the usual initial weights
                    small           the same from small initial weights
                    shuffled        the labels permuted: a contrast, which decides nothing
                    linear          linear attention: another contrast
    null            noise, small-noise: draws of gradient noise at the usual and at the small initial weights

What a rise is and when it counts is in `measures`. Every network and seed is one resumable run, stored once: run the
entry for some networks and seeds in one process and for others in another, with the same `--out`, then for all of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import (
    RANKS,
    TRANSIENT,
    agreed,
    departures,
    distinct_rises,
    ranks_of,
    rise_above_noise,
    upper_level,
)
from saddlescope.papers.gradual_rank.shared.training_metrics import banded
from saddlescope.papers.gradual_rank.shared.vit_training import (
    CIFAR,
    QUICK,
    REDUCED,
    Training,
    accumulate,
    changes,
    train,
)
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Axis, Band, Figure, Line, Mark, Panel
from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.reproduction import Claims, Entry, Estimate, Evidence, RunContext, param

Network = Literal["labels", "noise", "small", "small-noise", "shuffled", "linear"]


class Params(Training, seeds=(5, 6)):
    """A small ViT on the digits embedded in scikit-learn, with its null and its contrasts."""

    networks: tuple[Network, ...] = param(get_args(Network), "networks and nulls to run", order="distinct")
    small: float = param(0.1, "small initial scale", ge=1e-6, le=1, scale="log")
    draws: int = param(20, "draws of gradient noise for each seed", ge=2)
    records: int = param(100, "evenly spaced records, in addition to those of geometrically growing steps", ge=20)
    optimizer: Literal["adam"] = param("adam", "optimiser of networks and noise: Adam")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train the networks, accumulate the noise, and measure the ranks of all heads."""
    spectra, trained = dict[str, xr.Dataset](), list[xr.Dataset]()
    for name, step in context.steps(params.networks):
        step = replace(step, report=step.note(name))
        scale = params.small if name.startswith("small") else 1.0
        if name.endswith("noise"):
            one = accumulate(params, step, initial_scale=scale, draws=params.draws, records=params.records)
        else:
            one = train(
                params,
                step,
                initial_scale=scale,
                attention="linear" if name == "linear" else "softmax",
                shuffled=name == "shuffled",
                records=params.records,
            )
        spectra[name] = one
    result = xr.Dataset(attrs={"dataset": params.dataset})
    for name, one in spectra.items():
        prefix = name.replace("-", "_")
        result[f"{prefix}_rank"] = ranks_of(one.update_spectrum)
        if name.endswith("noise"):
            continue
        result[f"{prefix}_initial_rank"] = ranks_of(one.initial_spectrum)
        result[f"{prefix}_train_loss"], result[f"{prefix}_test_accuracy"] = one.train_loss, one.test_accuracy
        null = spectra.get("small-noise" if name == "small" else "noise")
        if null is not None:
            found = _departures(one, null)
            result[f"{prefix}_departure"] = found
            counts = distinct_rises(found.values, float(one.step[-1]))
            result[f"{prefix}_rises"] = found.isel(index=0, drop=True).copy(data=counts)
        trained.append(one)
    if trained:
        result.attrs["warmup"] = params.warmup_epochs * trained[0].attrs["steps_per_epoch"]
    return result


def _departures(one: xr.Dataset, null: xr.Dataset) -> xr.DataArray:
    """Return the steps at which the singular values of all heads leave the noise."""
    dims = ("seed", "layer", "head", "product", "index")
    values = one.update_spectrum.transpose("step", *dims).values
    level = upper_level(null.update_spectrum.transpose("draw", "step", *dims).values[..., 0].astype(float))
    return xr.DataArray(departures(one.step.values.astype(float), values, level), dims=dims)


STARTS = {"labels": "its usual initial weights", "small": "a tenth of its usual initial weights"}
NULLS = {"labels": "noise", "small": "small_noise"}
RISES = {
    "labels": "Section 5, Figures 4 and 15: 'gradually increases in stable rank during training'; noise: this project",
    "small": "Figures 6 and 7, at small initial weights; noise: this project",
}

claims = Claims(
    limits="A rank that rises because the network learns ends higher than where its transient ended, by more than an "
    "update that accumulates noise gains in as many steps. A rise is judged with all baselines, and with every seed "
    "and every layer left out: unless all cases agree, the claim is undecided. The noise is that at the initial "
    "weights, heads of one network are no independent cases, and the network is narrow. A direction that grows slower "
    "than 5 % of the largest in a tenth of training is not counted as a rise of its own."
)


def _missing(run: xr.Dataset, *names: str) -> str:
    """Return a sentence on the networks that a run lacks, empty if it has them."""
    missing = [name.replace("_", "-") for name in names if f"{name}_rank" not in run]
    return f"Runs not finished: {', '.join(missing)}." if missing else ""


def _learned(network: str) -> Callable[[xr.Dataset], bool]:
    def learned(run: xr.Dataset) -> bool:
        """Training at least halves the loss of every network, where it has finished."""
        loss = run.get(f"{network}_train_loss")
        return loss is None or bool((loss.isel(epoch=-1) / loss.isel(epoch=0)).max() <= 0.5)

    return learned


def _add_rise(network: str, product: str, measure: str) -> None:
    of_paper = (network, measure) == ("labels", "stable")

    @(claims.stand_in if of_paper else claims.extension)(
        f"rises-{network}-{product}-{measure}",
        f"In a narrow vision transformer from {STARTS[network]}, the {RANKS[measure]} of the update of "
        f"{PRODUCTS[product]} rises above gradient noise",
        RISES[network] if of_paper else f"after {RISES[network]}",
        low=0.0,
        requires=[_learned(network)],
    )
    def rise(run: xr.Dataset) -> Estimate:
        """Rise, median over heads, minus the upper end of gradient noise's 95 % prediction interval; nearest case."""
        if why := _missing(run, network, NULLS[network]):
            return Estimate.unresolved(why)
        rank, null = (run[f"{name}_rank"].sel(product=product, measure=measure) for name in (network, NULLS[network]))
        found = agreed(rise_above_noise(rank, null, run.attrs["warmup"]))
        return replace(found, evidence=Evidence.CASES, over="baselines, and seeds and layers left out")


def _add_gradual(network: str, product: str) -> None:
    @claims.extension(
        f"gradual-{network}-{product}",
        f"In a narrow vision transformer from {STARTS[network]}, at least half of the {PRODUCTS[product]} updates gain "
        "rank at two or more times",
        "after Section 1: 'the rank of this difference grows gradually during training'; half: this project",
        low=0.5,
        requires=[_learned(network)],
    )
    def distinct(run: xr.Dataset) -> Estimate:
        """Share of heads of all seeds with two or more distinct rises."""
        if why := _missing(run, network, NULLS[network]):
            return Estimate.unresolved(why)
        several = run[f"{network}_rises"].sel(product=product).values >= 2
        return Estimate.share(several.sum(), several.size, over="heads")


for _network in STARTS:
    for _product in PRODUCTS:
        for _measure in RANKS:
            _add_rise(_network, _product, _measure)
        _add_gradual(_network, _product)


NAMES = {
    "usual": {
        "labels": "trained on labels",
        "noise": "gradient noise",
        "shuffled": "shuffled labels",
        "linear": "linear attention",
    },
    "small": {"small": "trained on labels", "small_noise": "gradient noise"},
}
"""Names of the networks and nulls, by their initial weights."""


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw both ranks of both products against the steps, by layer; a figure for each size of the initial weights."""
    return [
        _by_layer(run, measure, start, drawn)
        for start, names in NAMES.items()
        if (drawn := {name: label for name, label in names.items() if f"{name}_rank" in run})
        for measure in RANKS
    ]


def _by_layer(run: xr.Dataset, measure: str, start: str, drawn: dict[str, str]) -> Figure:
    panels = []
    for layer in run.layer.values:
        for product, title in PRODUCTS.items():
            last = float(run.step[-1])
            marks: list[Band | Line | Mark] = [Mark(at=TRANSIENT * last, label="16 % of training", axis="x")]
            if "warmup" in run.attrs:
                marks.append(Mark(at=float(run.attrs["warmup"]), label="end of warm-up", axis="x"))
            for color, (name, label) in enumerate(drawn.items()):
                rank = run[f"{name}_rank"].sel(measure=measure, product=product, layer=layer)
                marks += _curve(rank, label, color)
            axes = {"x": Axis("optimiser steps", scale="log"), "y": Axis(RANKS[measure])}
            panels.append(Panel(title=f"{title}, layer {layer}", marks=tuple(marks), **axes))
    return Figure(
        name=f"{start}-{measure}",
        title=f"{RANKS[measure].capitalize()} of the updates from {start} initial weights",
        caption="Median over heads and seeds. Bands: quartiles over heads and seeds for trained networks, the central "
        "95 % of the medians of the draws for gradient noise.",
        panels=tuple(panels),
    )


def _curve(rank: xr.DataArray, label: str, color: int) -> list[Band | Line]:
    """Draw the median over heads and seeds, with its band over heads and seeds, or over the draws of a null."""
    of_heads, noise = ["seed", "head"], "draw" in rank.dims
    within = rank.median(of_heads).quantile([0.025, 0.975], "draw") if noise else rank.quantile([0.25, 0.75], of_heads)
    middle = rank.median([*of_heads, "draw"] if noise else of_heads)
    band, line = banded(rank.step.values, within.isel(quantile=0), middle, within.isel(quantile=1), label, color)
    return [band, replace(line, style="dashed" if noise else "solid")]


NINE_HOURS = dict(seeds=(5, 6), epochs=300, warmup_epochs=9, test_every=10, precision="float32", compiled=False)
"""The reduced network for the paper's number of steps, with its share of warm-up: nine hours a network on one core.
Matrix products are in float32: in bfloat16 stable ranks of W_K W_Qᵀ were 10 % off."""

entry = Entry(
    "gradual-rank/rank-rise",
    "The rank of a vision transformer's updates against that of accumulated gradient noise",
    source="Section 5, Figures 4 and 15, with a null",
    quick=changes(Params, QUICK | dict(heads=4, head_width=8, draws=3, records=20, epochs=4)),
    reduced=changes(Params, REDUCED | NINE_HOURS),
    paper=changes(Params, CIFAR | dict(seeds=(5, 6), precision="tf32")),
    data=IMAGES,
)

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

from dataclasses import replace
from typing import Literal, get_args

import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.rank_rise.claims import claims
from saddlescope.papers.gradual_rank.rank_rise.figures import figures
from saddlescope.papers.gradual_rank.rank_rise.measures import departures, distinct_rises, ranks_of, upper_level
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
from saddlescope.reproduction import Entry, RunContext, param

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


LONG = dict(seeds=(5, 6), epochs=300, warmup_epochs=9, test_every=10, precision="float32", compiled=False)
"""The reduced network for the paper's number of steps, with its share of warm-up: nine hours a network on one core.
Matrix products are in float32: in bfloat16 stable ranks of W_K W_Qᵀ were 10 % off."""

entry = Entry(
    "gradual-rank/rank-rise",
    "The rank of a vision transformer's updates against that of accumulated gradient noise",
    citation=CITATION,
    source="Section 5, Figures 4 and 15, with a null",
    params=Params,
    quick=changes(Params, QUICK | dict(heads=4, head_width=8, draws=3, records=20, epochs=4)),
    reduced=changes(Params, REDUCED | LONG),
    paper=changes(Params, CIFAR | dict(seeds=(5, 6), precision="tf32")),
    run=run,
    claims=claims,
    figures=figures,
    data=IMAGES,
)

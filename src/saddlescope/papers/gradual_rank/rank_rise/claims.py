"""Claims on rises of rank above accumulated gradient noise."""

from collections.abc import Callable
from dataclasses import replace

import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import RANKS, agreed, rise_above_noise
from saddlescope.papers.gradual_rank.shared.training_metrics import LONG
from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.reproduction import Claims, Estimate, Evidence

STARTS = {"labels": "the usual initial weights", "small": "small initial weights"}
NULLS = {"labels": "noise", "small": "small_noise"}

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
    kind = claims.stand_in if measure == "stable" else claims.extension

    @kind(
        f"rises-{network}-{product}-{measure}",
        f"From {STARTS[network]}, the {RANKS[measure]} of the update of {PRODUCTS[product]} rises above gradient noise",
        "Section 5, Figures 4 and 15: 'gradually increases in stable rank during training'",
        low=0.0,
        sizes=LONG,
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
        f"From {STARTS[network]}, at least half of the {PRODUCTS[product]} updates gain rank at two or more times",
        "Section 1: 'the rank of this difference grows gradually during training'; half: this project",
        low=0.5,
        sizes=LONG,
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

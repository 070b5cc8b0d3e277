"""Claims on rises of rank above accumulated gradient noise."""

from functools import partial

import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import RANKS, agreed, rise_above_noise
from saddlescope.plot.rank_figures import PRODUCTS
from saddlescope.reproduction.claim import Claims, Estimate, Size

LONG: tuple[Size, ...] = ("default", "reduced", "paper")  # the quick networks are trained for seconds
STARTS = {"labels": "the usual initial weights", "small": "small initial weights"}
NULLS = {"labels": "noise", "small": "small_noise"}

claims = Claims()


def _missing(run: xr.Dataset, *names: str) -> str:
    """Return a sentence on the networks that a run lacks, empty if it has them."""
    missing = [name.replace("_", "-") for name in names if f"{name}_rank" not in run]
    return f"Runs not finished: {', '.join(missing)}." if missing else ""


def _learned(run: xr.Dataset, network: str) -> Estimate:
    if why := _missing(run, network):
        return Estimate.unresolved(why)
    loss = run[f"{network}_train_loss"]
    return Estimate.largest((loss.isel(epoch=-1) / loss.isel(epoch=0)).values)


def _rise(run: xr.Dataset, network: str, product: str, measure: str) -> Estimate:
    if why := _missing(run, network, NULLS[network]):
        return Estimate.unresolved(why)
    rank, null = (run[f"{name}_rank"].sel(product=product, measure=measure) for name in (network, NULLS[network]))
    return agreed(rise_above_noise(rank, null, run.attrs["warmup"]))


def _distinct(run: xr.Dataset, network: str, product: str) -> Estimate:
    if why := _missing(run, network, NULLS[network]):
        return Estimate.unresolved(why)
    several = run[f"{network}_rises"].sel(product=product).values >= 2
    return Estimate.share(several.sum(), several.size)


for _network, _start in STARTS.items():
    claims.add(
        f"learned-{_network}", f"From {_start}, training at least halves the loss of every network",
        quantity="training loss of the last epoch over that of the first, largest over seeds", kind="own",
        source="check of this project that the networks learn", high=0.5, sizes=LONG, evidence="cases", over="seeds",
        why="The rank of an update that fits nothing says nothing about learning",
        doubt="Half the loss is a low bar, and a training loss says nothing about other images",
    )(partial(_learned, network=_network))  # fmt: skip
    for _product, _name in PRODUCTS.items():
        for _measure, _rank in RANKS.items():
            claims.add(
                f"rises-{_network}-{_product}-{_measure}",
                f"From {_start}, the {_rank} of the update of {_name} rises above gradient noise",
                quantity=f"rise of the {_rank}, median over heads, minus the upper end of the 95 % prediction "
                "interval of gradient noise; least decided case of all baselines, seeds and layers left out",
                kind="stand-in" if _measure == "stable" else "own",
                source="Section 5, Figures 4 and 15: 'gradually increases in stable rank during training'", low=0.0,
                sizes=LONG, evidence="cases", over="baselines, and seeds and layers left out",
                needs=(f"learned-{_network}",),
                why="A rank that rises because the network learns ends higher than where its transient ended, by more "
                    "than an update that accumulates noise gains in as many steps",
                doubt="The noise is that at the initial weights, heads of one network are no independent cases, and "
                    "the network is narrow",
            )(partial(_rise, network=_network, product=_product, measure=_measure))  # fmt: skip
        claims.add(
            f"gradual-{_network}-{_product}",
            f"From {_start}, at least half of heads' {_name} updates gain rank at two or more times",
            quantity="share of heads of all seeds with two or more distinct rises", kind="own",
            source="Section 1: 'the rank of this difference grows gradually during training'; half: reading of this "
                "project", low=0.5, sizes=LONG, evidence="sample", over="heads", needs=(f"learned-{_network}",),
            why="If the rank grows gradually, new directions appear at different times of training, not all at its "
                "start",
            doubt="A direction that grows slower than 5 % of the largest in a tenth of training is not counted",
        )(partial(_distinct, network=_network, product=_product))  # fmt: skip

"""Claims on vision transformers that several entries share: the paper's words with numbers.

The paper says "gradually increases", "ultimately low-rank when compared to the initial spectrum" and "extremely
low-rank" without numbers. Read here as: the mean over heads rises from the end of the first epoch to the last, and half
of the heads or more have a rising trend; at most half the initial product's stable rank; at most a third of the
directions that the initial product needs for 90 % of its energy. All with the spread over seeds.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claim, Estimate, Kind

NAMES = {"KQ": "W_K W_Q^T", "VO": "W_V W_O^T"}


def since_first_epoch(values: xr.DataArray, run: xr.Dataset) -> xr.DataArray:
    """Return the records since the end of the first epoch: the very first steps are noise of the optimiser."""
    first = int(abs(run.step.values - run.attrs["steps_per_epoch"]).argmin())
    return values.isel(step=slice(first, None))


def _rise(product: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        rank = since_first_epoch(run.stable_rank.sel(product=product), run).mean(("layer", "head"))
        return Estimate.mean((rank.isel(step=-1) - rank.isel(step=0)).values)

    return statistic


def rising_share(run: xr.Dataset, product: str) -> xr.DataArray:
    """Return the share of heads whose stable rank rises: Kendall's tau of rank and step is above 0; for each seed."""
    rank = since_first_epoch(run.stable_rank.sel(product=product), run).transpose("step", "seed", "layer", "head")
    later, earlier = np.triu_indices(rank.sizes["step"], 1)[::-1]
    agreeing = np.nan_to_num(np.sign(rank.values[later] - rank.values[earlier])).sum(axis=0)
    return xr.DataArray((agreeing > 0).mean(axis=(1, 2)), dims="seed")


def _heads_rise(product: str) -> Callable[[xr.Dataset], Estimate]:
    return lambda run: Estimate.mean(rising_share(run, product).values)


def _against_initial(product: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        last = run.stable_rank.sel(product=product).isel(step=-1).mean(("layer", "head"))
        initial = run.initial_stable_rank.sel(product=product).mean(("layer", "head"))
        return Estimate.mean((last / initial).values)

    return statistic


def _energy_against_initial(product: str) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        last = run.energy_rank.sel(product=product).mean(("layer", "head"))
        initial = run.initial_energy_rank.sel(product=product).mean(("layer", "head"))
        return Estimate.mean((last / initial).values)

    return statistic


def _learned(run: xr.Dataset) -> Estimate:
    loss = run.train_loss
    return Estimate.mean((loss.isel(epoch=-1) / loss.isel(epoch=0)).values)


LEARNED = Claim(
    name="learned",
    statement="Training works",
    quantity="loss in the last epoch over loss in the first",
    kind=Kind.PRINTED,
    source="needed for the figures to mean something",
    high=0.5,
    statistic=_learned,
)


def rise_claims(source: str) -> tuple[Claim, ...]:
    """Claim that the stable rank of both updates rises, on average: last step minus end of the first epoch."""
    return tuple(
        Claim(
            name=f"rise-{product}",
            statement=f"The stable rank of the update of {name} rises",
            quantity="last step minus end of the first epoch",
            kind=Kind.PRINTED,
            source=source,
            low=0.0,
            statistic=_rise(product),
        )
        for product, name in NAMES.items()
    )


def trend_claims(source: str) -> tuple[Claim, ...]:
    """Claim that half of the heads or more have a rising trend."""
    return tuple(
        Claim(
            name=f"heads-rise-{product}",
            statement=f"In half of the heads or more the stable rank of the update of {name} rises",
            quantity="share with Kendall's tau of rank and step above 0, from the end of the first epoch on",
            kind=Kind.OWN,
            source=f"{source}; half of the heads is this project's reading",
            low=0.5,
            statistic=_heads_rise(product),
        )
        for product, name in NAMES.items()
    )


def low_claims(source: str) -> tuple[Claim, ...]:
    """Claim that both updates end at no more than half the stable rank of the initial product."""
    return tuple(
        Claim(
            name=f"low-{product}",
            statement=f"The update of {name} ends low-rank",
            quantity="its stable rank over that of the initial product",
            kind=Kind.PRINTED,
            source=source,
            high=0.5,
            statistic=_against_initial(product),
        )
        for product, name in NAMES.items()
    )


def growth_claims(rises: str) -> tuple[Claim, ...]:
    """Return all of the above, with the source of the rise; of Figures 12 to 19."""
    low = "Appendix B: 'gradual increase in stable rank, leading to a low rank bias'; half is this project's reading"
    return LEARNED, *rise_claims(rises), *trend_claims(rises), *low_claims(low)


def spectrum_claim(product: str, source: str) -> Claim:
    """Claim that the last update needs no more than a third of the directions of the initial product."""
    return Claim(
        name=f"spectrum-{product}",
        statement=f"The learned perturbation of {NAMES[product]} is extremely low-rank",
        quantity="directions for 90 % of its energy over those of the initial product",
        kind=Kind.PRINTED,
        source=source,
        high=1 / 3,
        statistic=_energy_against_initial(product),
    )

"""Figures 1, 4 to 7 and 12 to 19: spectra and ranks of the learned updates of vision transformers.

ViTs are trained on real images. At every record the spectrum of what training added to W_K W_Qᵀ and W_V W_Oᵀ is
compared with that of the initial product. Terms are those of `shared.vit_training`. The defaults train narrow networks
on embedded data in place of the paper's:

                    default                                  reduced
    CIFAR-10        digits of scikit-learn                   CIFAR-10
    CIFAR-100       pairs of these digits, side by side      pairs of images of CIFAR-10, side by side
    ImageNet        digits of scikit-learn                   CIFAR-10

The network for ImageNet has the 12 blocks and 12 heads of ViT-B/16. `--data DIR --set dataset=cifar100` trains on
CIFAR-100 itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics, of_both
from saddlescope.papers.gradual_rank.shared.vit_training import (
    CIFAR,
    GPU,
    QUICK,
    QUICK_PAIRS,
    REDUCED,
    NarrowTraining,
    PairsTraining,
    Training,
    changes,
    learned,
    train,
    training_figure,
)
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Figure, Figures
from saddlescope.plot.rank_figures import (
    PRODUCTS,
    evolution_figure,
    scale_rank_figure,
    spectrum_figure,
    spectrum_stages_figure,
    stable_rank_figure,
)
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext, param


class ScaledTraining(Training, seeds=(5, 6, 7, 8)):  # few, since the demo waits for them
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    initial_scale: float = param(
        1.0, "factor on the default initial weights of all layers but the patch embedding", ge=1e-6, le=1e6, scale="log"
    )


def train_scaled(params: ScaledTraining, context: RunContext) -> xr.Dataset:
    """Train one ViT per seed."""
    return train(params, context, initial_scale=params.initial_scale)


class SeveralScales(NarrowTraining, depth=3):
    """A narrow ViT of three blocks on the digits embedded in scikit-learn; seeds give the same draws at every scale."""

    scales: tuple[float, ...] = param(
        (1.0, 0.3, 0.1), "initial scales; 1 is the default", ge=1e-6, le=1e6, least=2, order="decreasing", scale="log"
    )


def train_at_scales(params: SeveralScales, context: RunContext) -> xr.Dataset:
    """Train one ViT per scale and seed."""
    return context.over({"scale": params.scales}, lambda scale, step: train(params, step, initial_scale=scale))


class SGDTraining(NarrowTraining, optimizer="sgd", learning_rate=0.3):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10, at the paper's learning rate of SGD."""


class SGDPairsTraining(PairsTraining, optimizer="sgd", learning_rate=0.3):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100, at the paper's learning rate of SGD."""


_DEEP = dict(depth=12, embedding=96, heads=12, head_width=16, mlp=384)


class DeepTraining(Training, seeds=(5, 6, 7, 8, 9), epochs=8, batch=64, **_DEEP):
    """A narrow ViT of 12 blocks on the embedded digits, for ViT-B/16 on ImageNet."""


VIT_B_16 = (
    GPU
    | dict(dataset="imagenet", seeds=(0, 1, 2), patch=16, embedding=768, head_width=64, mlp=3072, epochs=360)
    | dict(batch=4096, pieces=8, learning_rate=3e-3, warmup_epochs=15, test_every=5)
)
"""Appendix B.2: ViT-B/16 on ImageNet."""

DEEP_REDUCED = REDUCED | _DEEP | dict(epochs=24, learning_rate=1e-3)
"""The blocks and heads of ViT-B/16, every width a quarter or an eighth of its own, on CIFAR-10."""

LIMITS = (
    "The paper gives no numbers: 'gradually increases' is read as a mean over heads that is higher at the end than "
    "after the first epoch, whose steps may be mostly noise of the optimiser; 'low-rank' as at most half the initial "
    "product's stable rank, which one dominating direction can make low however wide the rest is; Figure 5's as a "
    "third of its directions with 90 % of the energy. A claim on both products is decided by the worse one, and the "
    "remark has both; the rank of W_V W_Oᵀ alone rises more often. A fall may be that of this noise, and an update "
    "that learns nothing may rise too: see rank-rise. Training is short, from 8 to 40 epochs at the default size for "
    "up to 500, so that the first epoch, in warm-up, is a larger part of it: a slow rise could not show. Narrow "
    "networks on digits (default) or CIFAR-10 (reduced) stand for the paper's, on ImageNet too; the 100 classes are "
    "pairs of these images, side by side, for CIFAR-100's."
)


def _since_first_epoch(values: xr.DataArray, run: xr.Dataset, product: str) -> xr.DataArray:
    """Return the records since the end of the first epoch."""
    first = int(abs(run.step.values - run.attrs["steps_per_epoch"]).argmin())
    return values.sel(product=product).isel(step=slice(first, None))


def _rise(run: xr.Dataset, product: str) -> xr.DataArray:
    rank = _since_first_epoch(run.stable_rank, run, product).mean(("layer", "head"))
    return rank.isel(step=-1) - rank.isel(step=0)


def _ratio(run: xr.Dataset, last: xr.DataArray, initial: str, product: str) -> xr.DataArray:
    """Return the mean over heads of a rank of the last update over that of the initial product."""
    heads = ("layer", "head")
    return last.sel(product=product).mean(heads) / run[initial].sel(product=product).mean(heads)


def _growth_claims(
    rises: str, low: str = "Appendix B: 'leading to a low rank bias'; half: this project", which: str = ""
) -> Claims:
    """Return the claims that the updates of both products rise in rank and end with a low one, with their sources."""
    claims = Claims(limits=LIMITS, requires=[learned])
    both = f"{PRODUCTS['KQ']} and {PRODUCTS['VO']}"

    @claims.stand_in(
        "rise",
        f"After the first epoch, the updates of both {both} in a narrow vision transformer{which} rise in stable rank",
        f"{rises}; after the first epoch: this project",
        low=0.0,
    )
    def rise(run: xr.Dataset) -> Estimate:
        """Stable rank of the update at the end minus after the first epoch, mean over heads and seeds."""
        return of_both(_rise, run, low=0.0)

    @claims.stand_in(
        "low",
        f"The updates of {both} in a narrow vision transformer{which} end with at most half the stable rank of the "
        "initial products",
        low,
        high=0.5,
    )
    def final(run: xr.Dataset) -> Estimate:
        """Stable rank of the final update over that of the initial product, each a mean over heads, mean over seeds."""
        last = run.stable_rank.isel(step=-1)
        return of_both(lambda run, product: _ratio(run, last, "initial_stable_rank", product), run, high=0.5)

    return claims


def _directions(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the directions for 90 % of the energy, mean over heads, since the first epoch: (seeds, records)."""
    from saddlescope.measure import energy_rank

    since = _since_first_epoch(run.update_spectrum, run, product)
    ranks = energy_rank(since.transpose("seed", "step", "layer", "head", "index").values, fraction=0.9)
    return ranks.mean(axis=(-2, -1))


figure_1_claims = Claims(
    limits="The printed spectra of updates fall far faster than the initial one at all stages, and later ones slower "
    "than earlier ones. Read as numbers of singular directions with 90 % of the energy: at most half of the initial "
    "product's at every record since the end of the first epoch, and more at the end than after that epoch. A claim "
    "on both products is decided by the worse one, W_V W_Oᵀ of Figure 14, and the remark has both; that of Figure 1 "
    "spans less than half. After one epoch an update may be mostly noise of the optimiser, and a later fall that of "
    "this noise: see rank-rise. W_V W_Oᵀ alone widens. Narrow networks on digits (default) or CIFAR-10 (reduced) "
    "stand for the paper's.",
    requires=[learned],
)


@figure_1_claims.stand_in(
    "narrow",
    f"After epoch one, a narrow vision transformer's updates of both {PRODUCTS['KQ']} and {PRODUCTS['VO']} have 90 % "
    "of their energy in at most half as many directions as the initial products",
    "Figure 14, of which Figure 1 has W_K W_Qᵀ; half, 90 %: this project",
    high=0.5,
)
def _narrow(run: xr.Dataset) -> Estimate:
    """Directions with 90 % of the energy, the update's most after the first epoch over the initial product's."""

    def widest(run: xr.Dataset, product: str) -> np.ndarray:
        initial = run.initial_energy_rank.sel(product=product).mean(("layer", "head")).values
        return _directions(run, product).max(axis=1) / initial

    return of_both(widest, run, high=0.5)


@figure_1_claims.stand_in(
    "widens",
    f"After epoch one, a narrow vision transformer's updates of both {PRODUCTS['KQ']} and {PRODUCTS['VO']} spread over "
    "more directions",
    "Section 1 and Figure 1: 'grows gradually'; on CIFAR-10 it 'does not grow as much'",
    low=0.0,
)
def _widens(run: xr.Dataset) -> Estimate:
    """Directions with 90 % of the update's energy, at the end minus after epoch one, mean over heads and seeds."""
    return of_both(lambda run, product: np.diff(_directions(run, product)[:, [0, -1]])[:, 0], run, low=0.0)


figure_4_claims = _growth_claims(
    "Section 5, Figures 4 and 15: 'gradually increases in stable rank'",
    "Section 5: 'ultimately low-rank when compared to the initial spectrum'; half: this project",
)


@figure_4_claims.stand_in(
    "spectrum-KQ",
    f"A narrow vision transformer's final update of {PRODUCTS['KQ']} has 90 % of its energy in at most a third as "
    "many directions as the initial product",
    "Section 5, Figure 5: 'extremely low-rank when compared to the initial spectrum'; a third, 90 %: this project",
    high=1 / 3,
)
def _directions_left(run: xr.Dataset) -> Estimate:
    """Directions with 90 % of the energy, mean over heads, final update over initial product, mean over seeds."""
    return Estimate.mean(_ratio(run, run.energy_rank, "initial_energy_rank", "KQ"), over="seeds")


figure_6_claims = Claims(
    limits="'Smaller initialization scales lead to lower-rank attention heads' has no numbers; it is read as a slope "
    "of the logarithms. Three scales make a slope, and training ends after as many epochs at each, not at the same "
    "loss. Figure 7 shows the product of keys and queries, Figure 6 both; the worse one decides, and the remark has "
    "both. Narrow networks on digits (default) or CIFAR-10 (reduced) stand for the paper's.",
    requires=[learned],
)


@figure_6_claims.stand_in(
    "falls",
    "As the initial scale falls from 1 to 0.1, narrow vision transformers end with updates of lower stable rank",
    "Figure 7: 'smaller initialization scales lead to lower-rank attention heads'",
    low=0.0,
)
def _falls(run: xr.Dataset) -> Estimate:
    """Slope of the log final stable rank of the update, mean over heads, over log initial scale, mean over seeds."""

    def slope(run: xr.Dataset, product: str) -> np.ndarray:
        rank = run.stable_rank.sel(product=product).isel(step=-1).mean(("layer", "head")).transpose("scale", "seed")
        return np.polyfit(np.log10(run.scale.values), np.log10(rank.values), 1)[0]

    return of_both(slope, run, low=0.0)


def _evolutions(run: xr.Dataset) -> Figures:
    """Draw singular values of one head over training (Figure 6), stable rank over scale (Figure 7), the training."""
    layer = run.layer.values.tolist()[1]
    each = [evolution_figure(run.sel(scale=scale), layer=layer) for scale in run.scale.values]
    panels = [
        replace(figure.panels[k], title=f"{figure.panels[k].title}, scale {scale:g}")
        for k in range(len(PRODUCTS))
        for scale, figure in zip(run.scale.values, each, strict=True)
    ]
    yield Figure(
        name="evolution",
        title="Singular values of one head's update at each initial scale",
        caption=f"{each[0].caption} One run (seed {int(run.seed[0])}) at each initial scale.",
        panels=tuple(panels),
        columns=len(each),
    )
    yield scale_rank_figure(run)
    yield from (
        replace(training_figure(run.sel(scale=scale)), name=f"training-{k}", title=f"Training at scale {scale:g}")
        for k, scale in enumerate(run.scale.values)
    )


def _drawn(*pictures: Callable[[xr.Dataset], Figure]) -> Callable[[xr.Dataset], list[Figure]]:
    """Return a function that draws these figures of a run."""
    return lambda run: [draw(run) for draw in pictures]


def _stages_of_one_head(run: xr.Dataset) -> Figure:
    """Draw what the paper draws: the first head alone."""
    return replace(spectrum_stages_figure(run.isel(head=[0])), name="spectrum-stages-head-0")


_ranks_and_last = _drawn(stable_rank_figure, spectrum_figure, training_figure)
_ranks_and_stages = _drawn(stable_rank_figure, spectrum_stages_figure, training_figure)

_TRAINED: dict[str, Any] = dict(run=train, metrics=image_metrics, data=IMAGES)

figure_1 = Entry(
    "gradual-rank/figure-1",
    "Figures 1 and 14: spectra of the learned updates of attention at stages of training",
    source="Section 1 and appendix B.2",
    params=NarrowTraining,
    quick=QUICK,
    reduced=changes(NarrowTraining, REDUCED),
    paper=changes(NarrowTraining, CIFAR),
    claims=figure_1_claims,
    figures=_drawn(spectrum_stages_figure, _stages_of_one_head, training_figure),
    **_TRAINED,
)

figure_4 = Entry(
    "gradual-rank/figure-4",
    "Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank",
    source="Section 5 and appendix B.2",
    params=ScaledTraining,
    quick=QUICK,
    reduced=changes(ScaledTraining, REDUCED),
    paper=changes(ScaledTraining, CIFAR),
    run=train_scaled,
    claims=figure_4_claims,
    figures=_ranks_and_last,
    metrics=image_metrics,
    data=IMAGES,
)

figure_12 = Entry(
    "gradual-rank/figure-12",
    "Figure 12: gradual rank increase in a vision transformer trained with SGD",
    source="Appendix B.1, Figure 12",
    params=SGDTraining,
    quick=changes(SGDTraining, QUICK | dict(learning_rate=0.3)),
    reduced=changes(SGDTraining, REDUCED | dict(learning_rate=0.3)),
    paper=changes(SGDTraining, CIFAR | dict(learning_rate=0.3)),
    claims=_growth_claims("Section 5 and Figure 12: 'similar gradual rank increase behavior'", which=" under SGD"),
    figures=_ranks_and_last,
    **_TRAINED,
)

figure_13 = Entry(
    "gradual-rank/figure-13",
    "Figure 13: gradual rank increase with SGD on 100 classes",
    source="Appendix B.1, Figure 13",
    params=SGDPairsTraining,
    quick=changes(SGDPairsTraining, QUICK_PAIRS | dict(learning_rate=0.3)),
    reduced=changes(SGDPairsTraining, REDUCED | dict(dataset="cifar10-pairs", learning_rate=0.3)),
    paper=changes(SGDPairsTraining, CIFAR | dict(dataset="cifar100", learning_rate=0.3)),
    claims=_growth_claims(
        "Section 5 and Figure 13: 'similar gradual rank increase behavior'", which=" under SGD on 100 classes"
    ),
    figures=_ranks_and_last,
    **_TRAINED,
)

figure_16 = Entry(
    "gradual-rank/figure-16",
    "Figures 16 and 17: updates of low and growing rank on 100 classes",
    source="Appendix B.2, Figures 16 and 17",
    params=PairsTraining,
    quick=changes(PairsTraining, QUICK_PAIRS),
    reduced=changes(PairsTraining, REDUCED | dict(dataset="cifar10-pairs")),
    paper=changes(PairsTraining, CIFAR | dict(dataset="cifar100")),
    claims=_growth_claims("Appendix B and Figure 17: 'gradual increase in stable rank'", which=" on 100 classes"),
    figures=_ranks_and_stages,
    **_TRAINED,
)

figure_18 = Entry(
    "gradual-rank/figure-18",
    "Figures 18 and 19: updates of low and growing rank in a deep ViT with 12 heads",
    source="Appendix B.2, Figures 18 and 19",
    params=DeepTraining,
    quick=changes(DeepTraining, QUICK | dict(depth=3)),
    reduced=changes(DeepTraining, DEEP_REDUCED),
    paper=VIT_B_16,
    claims=_growth_claims(
        "Appendix B and Figure 19: 'gradual increase in stable rank'; Section 1: 'easier to see for ImageNet'",
        which=" of 12 blocks",
    ),
    figures=_ranks_and_stages,
    **_TRAINED,
)

figure_6 = Entry(
    "gradual-rank/figure-6",
    "Figures 6 and 7: smaller initial weights lead to updates of lower rank",
    source="Section 5, effect of initialization scale",
    params=SeveralScales,
    quick=QUICK | dict(scales=(1.0, 0.3), epochs=6),
    reduced=changes(SeveralScales, REDUCED),
    paper=changes(SeveralScales, CIFAR),
    run=train_at_scales,
    claims=figure_6_claims,
    figures=_evolutions,
    metrics=image_metrics,
    data=IMAGES,
)

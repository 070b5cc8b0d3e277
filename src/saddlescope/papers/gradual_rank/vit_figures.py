"""Figures 1, 4, 5 and 12 to 19: spectra and ranks of the learned updates of vision transformers.

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

from functools import partial
from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.training_metrics import image_metrics
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
    train,
    training_figure,
)
from saddlescope.papers.image_data import IMAGES
from saddlescope.plot import Figure
from saddlescope.plot.rank_figures import PRODUCTS, spectrum_figure, spectrum_stages_figure, stable_rank_figure
from saddlescope.reproduction.catalogue import SIZES
from saddlescope.reproduction.claim import Claims, Estimate, Size
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

LONG: tuple[Size, ...] = ("default", "reduced", "paper")
"""The quick networks are too small, and trained too briefly, for their ranks to mean anything."""


class ScaledTraining(Training):
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    seeds: tuple[int, ...] = param(
        (5, 6, 7, 8), "seeds of the training runs: initial weights and order of the images", ge=0, order="distinct"
    )  # few, since the demo waits for them
    initial_scale: float = param(
        1.0,
        "factor on the default initial weights of all layers but the patch embedding",
        ge=1e-6,
        le=1e6,
        scale="log",
    )


def train_scaled(params: ScaledTraining, context: RunContext) -> xr.Dataset:
    """Train one ViT per seed."""
    return train(params, context, initial_scale=params.initial_scale)


class SGDTraining(NarrowTraining):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10, at the paper's learning rate of SGD."""

    optimizer: Literal["adam", "sgd"] = param("sgd", "optimiser: SGD without momentum, or Adam")
    learning_rate: float = param(0.3, "peak learning rate", gt=0, scale="log")


class SGDPairsTraining(PairsTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100, at the paper's learning rate of SGD."""

    optimizer: Literal["adam", "sgd"] = param("sgd", "optimiser: SGD without momentum, or Adam")
    learning_rate: float = param(0.3, "peak learning rate", gt=0, scale="log")


class DeepTraining(Training):
    """A narrow ViT of 12 blocks on the embedded digits, for ViT-B/16 on ImageNet."""

    seeds: tuple[int, ...] = param(
        (5, 6, 7, 8, 9), "seeds of the training runs: initial weights and order of the images", ge=0, order="distinct"
    )
    depth: int = param(12, "number of transformer blocks", ge=1)
    embedding: int = param(96, "dimension of a token", ge=1)
    heads: int = param(12, "attention heads per block", ge=1)
    head_width: int = param(16, "columns of W_K, W_Q, W_V and W_O of one head", ge=1)
    mlp: int = param(384, "width of the feedforward layers", ge=1)
    epochs: int = param(8, "passes through the training images", ge=1)
    batch: int = param(64, "images per training step", ge=1)


VIT_B_16 = GPU | {
    "dataset": "imagenet", "seeds": (0, 1, 2), "patch": 16, "embedding": 768, "head_width": 64, "mlp": 3072,
    "epochs": 360, "batch": 4096, "pieces": 8, "learning_rate": 3e-3, "warmup_epochs": 15, "test_every": 5,
}  # fmt: skip
"""Appendix B.2: ViT-B/16 on ImageNet."""


DEEP_REDUCED = REDUCED | {
    "depth": 12, "embedding": 96, "heads": 12, "head_width": 16, "mlp": 384, "epochs": 24, "learning_rate": 1e-3,
}  # fmt: skip
"""The blocks and heads of ViT-B/16, every width a quarter or an eighth of its own, on CIFAR-10."""


# The bounds. The paper says "gradually increases", "ultimately low-rank when compared to the initial spectrum" and
# "extremely low-rank" without numbers. Read here as: the mean over heads rises from the end of the first epoch to the
# last, and so does the trend of the median head; at most half the initial product's stable rank; at most a
# third of the directions that the initial product needs for 90 % of its energy. Figures 1 and 14 show spectra of
# updates that fall far faster than that of the initial product at all stages, and later ones that fall slower than
# earlier ones. Read here as: at every record since the end of the first epoch the update needs at most half the
# directions; and the last one needs more of them than the one at the end of the first epoch.
def _since_first_epoch(values: xr.DataArray, run: xr.Dataset, product: str) -> xr.DataArray:
    """Return the records since the end of the first epoch: the very first steps are noise of the optimiser."""
    first = int(abs(run.step.values - run.attrs["steps_per_epoch"]).argmin())
    return values.sel(product=product).isel(step=slice(first, None))


def _add_learned(claims: Claims, sizes: tuple[Size, ...] = LONG) -> None:
    @claims.add(
        "learned",
        "Training the vision transformer at least halves its mean training loss between the first epoch and the last",
        quantity="ratio of the last epoch's mean training loss to the first's, mean over seeds", kind="own",
        source="check of this project that the networks learn", high=0.5, sizes=sizes, evidence="sample", over="seeds",
        why="The rank of an update that fits nothing says nothing about learning, so the loss has to fall first",
        doubt="Half the loss is a low bar, and a training loss says nothing about images that were not trained on",
    )  # fmt: skip
    def learned(run: xr.Dataset) -> Estimate:
        return Estimate.mean((run.train_loss.isel(epoch=-1) / run.train_loss.isel(epoch=0)).values)


def _rise(run: xr.Dataset, product: str) -> Estimate:
    rank = _since_first_epoch(run.stable_rank, run, product).mean(("layer", "head"))
    return Estimate.mean((rank.isel(step=-1) - rank.isel(step=0)).values)


def _median_trend(run: xr.Dataset, product: str) -> Estimate:
    """Return Kendall's τ of the median head: positive where the rank of more than half of the heads trends upwards."""
    rank = _since_first_epoch(run.stable_rank, run, product).transpose("step", "seed", "layer", "head")
    later, earlier = np.triu_indices(rank.sizes["step"], 1)[::-1]
    trend = np.nan_to_num(np.sign(rank.values[later] - rank.values[earlier])).mean(axis=0)
    return Estimate.mean(np.median(trend, axis=(1, 2)))


def _ratio(run: xr.Dataset, last: xr.DataArray, initial: str, product: str) -> Estimate:
    """Return the mean over heads of a rank of the last update over that of the initial product."""
    heads = ("layer", "head")
    return Estimate.mean((last.sel(product=product).mean(heads) / run[initial].sel(product=product).mean(heads)).values)


def _final_ratio(run: xr.Dataset, product: str) -> Estimate:
    return _ratio(run, run.stable_rank.isel(step=-1), "initial_stable_rank", product)


def _growth_claims(
    rise: str,
    low: str = "Appendix B: 'leading to a low rank bias' in Figures 12 to 19; half: reading of this project",
    *,
    learned: tuple[Size, ...] = LONG,
) -> Claims:
    """Return the claims that updates learn, rise in rank and end with a low one, with sources of rise and low rank."""
    claims = Claims()
    _add_learned(claims, learned)
    for product, name in PRODUCTS.items():
        claims.add(
            f"rise-{product}",
            f"After the first epoch, a vision transformer's learned updates of {name} increase in stable rank on "
                "average over heads",
            quantity="stable rank of the update (change since initialization) at the end minus after the first "
                "epoch, mean over heads and seeds", kind="stand-in", source=rise, low=0.0, sizes=LONG,
            evidence="sample", over="seeds", needs=("learned",),
            why="A rank that increases gradually is higher at the end than after one epoch, when the optimiser's noisy "
                "first steps are over",
            doubt="Two records decide, whatever lies between; few heads of high rank can carry the mean; networks "
                "are narrow and images small",
        )(partial(_rise, product=product))  # fmt: skip
    for product, name in PRODUCTS.items():
        claims.add(
            f"heads-rise-{product}",
            f"In at least half of attention heads, the stable rank of the learned update of {name} trends upwards",
            quantity="Kendall's τ between stable rank of the update and step after the first epoch, median over heads, "
                "mean over seeds", kind="stand-in",
            source=f"{rise}; half of the heads: reading of this project", low=0.0, sizes=LONG,
            evidence="sample", over="seeds", needs=("learned",),
            why="τ of the median head is positive if the rank of more than half the heads rises between most pairs of "
                "records",
            doubt="Records are evenly spaced in the logarithm of the step, so that late training counts little in τ",
        )(partial(_median_trend, product=product))  # fmt: skip
    for product, name in PRODUCTS.items():
        claims.add(
            f"low-{product}",
            f"A vision transformer's learned update of {name} ends with at most half the stable rank of the initial "
            "product",
            quantity="mean stable rank over heads of the final update (change since initialization) over that of "
            "the initial product, mean over seeds",
            kind="stand-in", source=low, high=0.5, sizes=LONG, evidence="sample", over="seeds", needs=("learned",),
            why="Initial products are random matrices of the same shape: an update of random directions has at least "
                "their stable rank",
            doubt="Half is a bar of this project, and one dominating direction makes the stable rank low however wide "
                "the rest is",
        )(partial(_final_ratio, product=product))  # fmt: skip
    return claims


figure_1_claims = Claims()
_add_learned(figure_1_claims, SIZES)


def _directions(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the directions for 90 % of the energy, mean over heads, since the first epoch: (seeds, records)."""
    from saddlescope.measure import energy_rank

    since = _since_first_epoch(run.update_spectrum, run, product)
    ranks = energy_rank(since.transpose("seed", "step", "layer", "head", "index").values, fraction=0.9)
    return ranks.mean(axis=(-2, -1))


def _widest(run: xr.Dataset, product: str) -> Estimate:
    initial = run.initial_energy_rank.sel(product=product).mean(("layer", "head")).values
    return Estimate.mean(_directions(run, product).max(axis=1) / initial)


def _widening(run: xr.Dataset, product: str) -> Estimate:
    directions = _directions(run, product)
    return Estimate.mean(directions[:, -1] - directions[:, 0])


for _product, _name in PRODUCTS.items():
    figure_1_claims.add(
        f"narrow-{_product}",
        f"After epoch one, the learned update of {_name} spans at most half as many directions as the initial "
            "product",
        quantity="number of singular directions with 90 % of a head's energy, update's largest after the first "
            "epoch over initial product's, mean over seeds", kind="stand-in",
        source="Figures 1 and 14; half: reading of this project", high=0.5, sizes=LONG,
        evidence="sample", over="seeds", needs=("learned",),
        why="The printed spectra of updates fall faster than the initial one at all stages, so few directions have to "
            "hold most of the energy, always",
        doubt="The 90 % and the half are ours, and the first epoch, in which Adam's noise is wide, is left out",
    )(partial(_widest, product=_product))  # fmt: skip
    figure_1_claims.add(
        f"widens-{_product}",
        f"After the first epoch, a vision transformer's learned update of {_name} spreads over more directions",
        quantity="number of singular directions with 90 % of the update's energy, at the end minus after the first "
            "epoch, mean over heads and seeds", kind="stand-in",
        source="Section 1: 'the rank of this difference grows gradually during training; see Figure 1'", low=0.0,
        sizes=LONG, evidence="sample", over="seeds", needs=("learned",),
        why="If the rank of the update grows, the same share of its energy needs more directions at the end than after "
            "one epoch",
        doubt="Small heads have few directions to count, the count ignores the last tenth of the energy, and only two "
            "records are compared",
    )(partial(_widening, product=_product))  # fmt: skip

figure_4_claims = _growth_claims(
    "Section 5, Figures 4 and 15: 'gradually increases in stable rank'",
    "Section 5: 'ultimately low-rank when compared to the initial spectrum'; half: reading of this project",
    learned=SIZES,
)


@figure_4_claims.add(
    "spectrum-KQ",
    f"The final learned update of {PRODUCTS['KQ']} concentrates in at most a third as many directions as the "
        "initial product",
    quantity="number of singular directions with 90 % of the energy, mean over heads, final update over initial "
        "product, mean over seeds", kind="stand-in",
    source="Section 5: 'extremely low-rank when compared to the initial spectrum'; a third: reading of this project",
    high=1 / 3, sizes=LONG, evidence="sample", over="seeds", needs=("learned",),
    why="An extremely low-rank update holds nearly all its energy in a few of the directions over which a random "
        "product spreads its own",
    doubt="A third is a bar of this project, and heads of 32 columns leave little room between low and full rank",
)  # fmt: skip
def _directions_left(run: xr.Dataset) -> Estimate:
    return _ratio(run, run.energy_rank, "initial_energy_rank", "KQ")


def _stages(run: xr.Dataset) -> list[Figure]:
    """Draw spectra at stages of training, of the mean over heads and of the first head; the training."""
    return [spectrum_stages_figure(run), spectrum_stages_figure(run, head=0), training_figure(run)]


def _ranks_and_last(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks over training, the last spectra with the initial ones, and the training."""
    return [stable_rank_figure(run), spectrum_figure(run), training_figure(run)]


def _ranks_and_stages(run: xr.Dataset) -> list[Figure]:
    """Draw stable ranks over training, spectra at stages of training, and the training."""
    return [stable_rank_figure(run), spectrum_stages_figure(run), training_figure(run)]


figure_1 = Entry(
    "gradual-rank/figure-1", "Figures 1 and 14: spectra of the learned updates of attention at stages of training",
    citation=CITATION, source="Section 1 and appendix B.2", params=NarrowTraining, quick=QUICK,
    reduced=changes(NarrowTraining, REDUCED), paper=changes(NarrowTraining, CIFAR), run=train,
    claims=figure_1_claims, figures=_stages, metrics=image_metrics, data=IMAGES,
)  # fmt: skip

figure_4 = Entry(
    "gradual-rank/figure-4", "Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank",
    citation=CITATION, source="Section 5 and appendix B.2", params=ScaledTraining, quick=QUICK,
    reduced=changes(ScaledTraining, REDUCED), paper=changes(ScaledTraining, CIFAR), run=train_scaled,
    claims=figure_4_claims, figures=_ranks_and_last, metrics=image_metrics, data=IMAGES,
)  # fmt: skip

figure_12 = Entry(
    "gradual-rank/figure-12", "Figure 12: gradual rank increase in a vision transformer trained with SGD",
    citation=CITATION, source="Appendix B.1, Figure 12", params=SGDTraining,
    quick=changes(SGDTraining, QUICK | {"learning_rate": 0.3}),
    reduced=changes(SGDTraining, REDUCED | {"learning_rate": 0.3}),
    paper=changes(SGDTraining, CIFAR | {"learning_rate": 0.3}), run=train,
    claims=_growth_claims("Section 5 and Figure 12: 'similar gradual rank increase behavior' with SGD"),
    figures=_ranks_and_last, metrics=image_metrics, data=IMAGES,
)  # fmt: skip

figure_13 = Entry(
    "gradual-rank/figure-13", "Figure 13: gradual rank increase with SGD on 100 classes", citation=CITATION,
    source="Appendix B.1, Figure 13", params=SGDPairsTraining,
    quick=changes(SGDPairsTraining, QUICK_PAIRS | {"learning_rate": 0.3}),
    reduced=changes(SGDPairsTraining, REDUCED | {"dataset": "cifar10-pairs", "learning_rate": 0.3}),
    paper=changes(SGDPairsTraining, CIFAR | {"dataset": "cifar100", "learning_rate": 0.3}), run=train,
    claims=_growth_claims("Section 5 and Figure 13: 'similar gradual rank increase behavior' with SGD"),
    figures=_ranks_and_last, metrics=image_metrics, data=IMAGES,
)  # fmt: skip

figure_16 = Entry(
    "gradual-rank/figure-16", "Figures 16 and 17: updates of low and growing rank on 100 classes", citation=CITATION,
    source="Appendix B.2, Figures 16 and 17", params=PairsTraining, quick=changes(PairsTraining, QUICK_PAIRS),
    reduced=changes(PairsTraining, REDUCED | {"dataset": "cifar10-pairs"}),
    paper=changes(PairsTraining, CIFAR | {"dataset": "cifar100"}), run=train,
    claims=_growth_claims("Appendix B and Figure 17: 'gradual increase in stable rank'"), figures=_ranks_and_stages,
    metrics=image_metrics, data=IMAGES,
)  # fmt: skip

figure_18 = Entry(
    "gradual-rank/figure-18",
    "Figures 18 and 19: updates of low and growing rank in a deep ViT with 12 heads",
    citation=CITATION,
    source="Appendix B.2, Figures 18 and 19",
    params=DeepTraining,
    quick=changes(DeepTraining, QUICK | {"depth": 3}),
    reduced=changes(DeepTraining, DEEP_REDUCED),
    paper=VIT_B_16,
    run=train,
    claims=_growth_claims(
        "Appendix B and Figure 19: 'gradual increase in stable rank'; Section 1: 'easier to see for ImageNet'",
        learned=SIZES,
    ),
    figures=_ranks_and_stages,
    metrics=image_metrics,
    data=IMAGES,
)

"""Figure 20: ranks of the learned updates of GPT-2.

A GPT-2 is trained from scratch on text with Adam, by `transformers.Trainer` with the tracker as a callback. The paper
trains GPT-2 small on WikiText-103 with a pretrained vocabulary; here the vocabulary is learned on the text, and the
defaults train a small GPT-2 on the help texts of Python. Terms are those of `shared.vit_training`.
"""

import xarray as xr

from saddlescope.papers.gradual_rank.shared.gpt2_training import PAPER, QUICK, TEXTS, GPT2Params, train
from saddlescope.papers.gradual_rank.shared.training_metrics import language_metrics, of_both
from saddlescope.plot import Axis, Figure, Figures, Mark, Panel, lines
from saddlescope.plot.rank_figures import (
    PRODUCTS,
    evolution_figure,
    initial_stable_rank,
    spectrum_stages_figure,
    stable_rank_figure,
)
from saddlescope.reproduction import Claims, Entry, Estimate, RunContext

SMOKE = QUICK | dict(characters=6000, epochs=2, tests=2)
REDUCED = dict(text="wikitext-2", vocabulary=4096, seeds=(0, 1, 2), block=256, depth=6, batch=8) | dict(
    learning_rate=1.8e-3, tests=18, compiled=True
)
"""Forty minutes a seed on one core: WikiText-2, half the blocks, a sixth of the width, six times the learning rate."""
FULL = PAPER | dict(seeds=(0, 1, 2), tests=90)


class Params(GPT2Params, seeds=(5, 6, 7, 8, 9)):  # three left the rise of W_V W_Oᵀ undecided
    """A small GPT-2 on the help texts that come with Python: minutes on two cores."""


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and keep the heads."""
    return train(params, context).drop_dims("matrix")


def learned(run: xr.Dataset) -> bool:
    """Every model ends with a test loss at least 10 % below that of a guess by token frequencies."""
    return bool(run.test_loss.isel(test_step=-1).max() <= 0.9 * run.attrs["guess_loss"])


def late_rise(rank: xr.DataArray) -> xr.DataArray:
    """Return the rise from a tenth of the training to its end."""
    return rank.isel(step=-1) - rank.sel(step=rank.step[-1] / 10, method="nearest")


claims = Claims(
    limits="The caption says 'increases gradually, but remains small throughout training' without numbers. It is read "
    "as a rise from a tenth of the training to its end, on average over heads, and as at most half the initial "
    "product's stable rank. A pilot on seed 1000 led to the tenth: before it, Adam's first steps have equal size. A "
    "claim on both products is decided by the worse one, and the remark has both: at the default size the rank of W_K "
    "W_Qᵀ falls, at the reduced size it rises. Two records decide a rise, and there is no null of gradient noise here. "
    "`throughout` is decided by Adam's first steps. Model and text are far smaller than the paper's.",
    requires=[learned],
)
_BOTH = f"{PRODUCTS['KQ']} and of {PRODUCTS['VO']}"


@claims.stand_in(
    "rise",
    f"From a tenth of a small GPT-2's training to its end, the stable ranks of the learned updates of {_BOTH} increase",
    "Figure 20, caption: 'increases gradually'; a tenth: this project",
    low=0.0,
)
def _rise(run: xr.Dataset) -> Estimate:
    """Stable rank of the update at the end minus after a tenth of training, mean over heads and seeds."""
    rank = run.stable_rank.mean(("layer", "head"))
    return of_both(lambda _, product: late_rise(rank.sel(product=product)), run, low=0.0)


def _relative(run: xr.Dataset, product: str) -> xr.DataArray:
    """Return the mean stable rank over heads of the updates, over that of the initial products, (seed, step)."""
    heads = ("layer", "head")
    initial = initial_stable_rank(run).sel(product=product).mean(heads)
    return run.stable_rank.sel(product=product).mean(heads) / initial


@claims.stand_in(
    "low",
    f"A small GPT-2's learned updates of {_BOTH} end with at most half the stable rank of the initial products",
    "Section 5: 'ultimately low-rank when compared to the initial spectrum'; half: this project",
    high=0.5,
)
def _low(run: xr.Dataset) -> Estimate:
    """Stable rank of the final update over that of the initial product, each a mean over heads, mean over seeds."""
    return of_both(lambda run, product: _relative(run, product).isel(step=-1), run, high=0.5)


@claims.extension(
    "throughout",
    f"From Adam's first step on, a small GPT-2's updates of {_BOTH} have at most half the initial stable rank",
    "after Figure 20, caption: 'remains small throughout training'; half, and the first steps: this project",
    high=0.5,
)
def _throughout(run: xr.Dataset) -> Estimate:
    """Largest stable rank of the update over training, over that of the initial product, mean over heads and seeds."""
    return of_both(lambda run, product: _relative(run, product).max("step"), run, high=0.5)


def training_figure(run: xr.Dataset) -> Figure:
    """Draw the losses over training, one curve per seed."""

    def panel(name: str, values: xr.DataArray, *marks: Mark) -> Panel:
        curves = lines(values, x="test_step", hue="seed", label="seed {}", grouped=True)
        return Panel(x=Axis("optimiser steps"), y=Axis(name, "nats"), marks=(*curves, *marks))

    guess = Mark(at=run.attrs["guess_loss"], label="guess by token frequencies", axis="y")
    return Figure(
        name="training",
        title="Test and training loss",
        caption=f"Cross-entropy on {run.attrs['text']}, in nats per token, of {run.attrs['vocabulary']} tokens; one "
        "line per seed. Training loss: mean since the previous test.",
        panels=(panel("test loss", run.test_loss, guess), panel("training loss", run.train_loss)),
    )


def figures(run: xr.Dataset) -> Figures:
    """Draw stable ranks over training (Figure 20), spectra at stages of training, one head's staircase, the losses."""
    yield stable_rank_figure(run)
    yield spectrum_stages_figure(run)
    yield evolution_figure(run, layer=run.layer.values.tolist()[run.sizes["layer"] // 2])
    yield training_figure(run)


entry = Entry(
    "gradual-rank/figure-20",
    "Figure 20: GPT-2 learns by updates of low rank",
    source="Section 5 and appendix B.2",
    quick=SMOKE,
    reduced=REDUCED,
    paper=FULL,
    metrics=language_metrics,
    data=TEXTS,
)

"""GPT-2 trained from scratch on text, with spectra recorded by the tracker: the shared part of the language entries."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.plot import Axis, Figure, Line, Mark, Panel
from saddlescope.reproduction.claim import Claim, Estimate, Kind
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

    from saddlescope.train.data.text import TextData, TokenizedText
    from saddlescope.train.language_training import LanguageConfig


class GPT2Params(EntryParams):
    """A small GPT-2 on a text that comes with Python: minutes on two cores."""

    text: Literal["python-topics", "python-library", "wikitext-2", "wikitext-103"] = param(
        "python-topics", "WikiText: --data"
    )
    characters: int = param(
        0, "of the training text, from its start, and a quarter of them of the tests; 0 takes all", ge=0
    )
    vocabulary: int = param(1024, "tokens of the byte-pair encoding, learnt on the training text", ge=256)
    seeds: tuple[int, ...] = param((0, 1, 2), "one training run each: initial weights and order of the blocks")
    block: int = param(64, "tokens read at once", ge=2)
    depth: int = param(4, "transformer blocks", ge=1)
    embedding: int = param(128, "dimension of a token", ge=1)
    heads: int = param(4, "attention heads in a block", ge=1)
    epochs: int = param(3, "passes through the training text", ge=1)
    batch: int = param(16, "blocks in a step", ge=1)
    learning_rate: float = param(1e-3, "of Adam, at the start; it falls linearly to 0", gt=0)
    tests: int = param(9, "measurements of the losses, evenly spaced over training", ge=1)
    precision: Literal["float32", "tf32", "bf16"] = param("float32", "of the steps; tf32 and bf16 for a GPU")
    compiled: bool = param(False, "whether torch.compile makes the steps faster, on a GPU")
    threads: int = param(1, "of PyTorch on the processor; matrices this small gain little from more", ge=1)

    def check(self) -> None:
        if self.embedding % self.heads:
            raise InputError(f"heads must divide embedding={self.embedding}; got {self.heads!r}.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")


def read_text(name: str, context: RunContext, characters: int = 0) -> "TextData":
    """Read the text of that name; where `characters` are not 0, that many for training and a quarter for the test."""
    from saddlescope.train.data.text import load_text

    if name.startswith("wikitext") and context.data is None:
        raise InputError(
            f"text {name!r} needs the folder of its official files: give --data or set SADDLESCOPE_DATA, or take "
            "text=python-topics, which comes with Python."
        )
    text = load_text(name, context.data)
    return text.first(characters, -(-characters // 4)) if characters else text


def train(params: GPT2Params, context: RunContext, *, matrices: str | None = None) -> xr.Dataset:
    """Train one GPT-2 per seed and join their records along the dimension `seed`.

    No weights are loaded anywhere: the models are `fresh_gpt2`, and the first test loss of each is in the record.

    Args:
        params: of the runs.
        context: each run stores its checkpoints in the scratch folder.
        matrices: pattern of single matrices to record besides, as `RankTracker` takes it.

    Returns:
        The tracker's data set for each seed, with layers numbered from 1, and besides: `test_loss` and `train_loss`
        (seed, test_step) in nats a token; in the attributes the digest of the text and the loss of a guess by the
        tokens' frequencies.
    """
    from saddlescope.train.data.text import learn_vocabulary, tokenize

    text = read_text(params.text, context, params.characters)
    data = tokenize(text, learn_vocabulary(text, params.vocabulary), block=params.block)
    together = each_seed(
        params, context, lambda seed, report: _train_one(params, context, data, seed, matrices, report)
    )
    return together.assign_attrs(
        text=text.name,
        text_digest=text.digest(),
        vocabulary=data.vocabulary,
        guess_loss=frequency_loss(data.train, data.test, data.vocabulary),
    )


def each_seed(
    params: GPT2Params,
    context: RunContext,
    make: Callable[[int, Report], xr.Dataset],
) -> xr.Dataset:
    """Run `make` for each seed and join the results along the dimension `seed`; finished seeds are cached.

    Args:
        params: has the seeds.
        context: caches the finished ones.
        make: from a seed and a `report` for its part of the run.
    """

    def reporter(k: int, seed: int) -> Report:
        part = context.part(k / len(params.seeds), (k + 1) / len(params.seeds))
        return lambda fraction, note: part(fraction, f"seed {seed}, {note}")

    runs = [
        context.cached(f"seed-{seed}", functools.partial(make, seed, reporter(k, seed)))
        for k, seed in enumerate(params.seeds)
    ]
    return xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(params.seeds))


def _train_one(
    params: GPT2Params,
    context: RunContext,
    data: "TokenizedText",
    seed: int,
    matrices: str | None,
    report: Report,
) -> xr.Dataset:
    from saddlescope.train import Geometric, RankTracker
    from saddlescope.train.language_training import fit_language
    from saddlescope.train.tracker.hugging_face import RankTrackerCallback

    tracker = RankTrackerCallback(functools.partial(RankTracker, schedule=Geometric(1.15), matrices=matrices))
    history = fit_language(
        fresh_model(params, data, seed),
        data,
        training(params, seed, steps=params.epochs * -(-len(data.train) // params.batch)),
        tracker=tracker,
        checkpoint=context.scratch / f"seed-{seed}",
        report=report,
    )
    return (
        tracker.tracker.to_xarray()
        .assign(test_loss=("test_step", history.test_loss), train_loss=("test_step", history.train_loss))
        .assign_coords(layer=np.arange(1, params.depth + 1), test_step=history.steps)
    )


def fresh_model(params: GPT2Params, data: "TokenizedText", seed: int) -> "GPT2LMHeadModel":
    """Return an untrained GPT-2 of the entry's sizes."""
    from saddlescope.train.architectures.gpt2 import GPT2Sizes, fresh_gpt2

    sizes = GPT2Sizes(
        vocabulary=data.vocabulary,
        block=params.block,
        embedding=params.embedding,
        depth=params.depth,
        heads=params.heads,
    )
    return fresh_gpt2(sizes, seed=seed)


def training(params: GPT2Params, seed: int, *, steps: int, learning_rate: float | None = None) -> "LanguageConfig":
    """Return the entry's training configuration, with another learning rate where one is given."""
    from saddlescope.train.language_training import LanguageConfig

    return LanguageConfig(
        steps=steps,
        batch=params.batch,
        learning_rate=learning_rate or params.learning_rate,
        test_every=-(-steps // params.tests),
        tests_per_checkpoint=1,
        seed=seed,
        threads=params.threads,
        precision=params.precision,
        compiled=params.compiled,
    )


def frequency_loss(train: np.ndarray, test: np.ndarray, vocabulary: int) -> float:
    """Return the cross-entropy, in nats per token, of guessing test tokens by frequency in training (one added each).

    The loss of a model that knows how often tokens occur, and nothing of the text before them.
    """
    counts = np.bincount(train.ravel(), minlength=vocabulary) + 1
    shares = counts / counts.sum()
    return float(-np.log(shares[test.ravel()]).mean())


def over_seeds(values: xr.DataArray) -> Estimate:
    """Return the mean over seeds with its interval.

    Seeds, not heads, are the trials: heads of one model train together.
    """
    return Estimate.mean(values.values)


def early_and_late(rank: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Return a rank at a tenth of the training, before which Adam's steps have equal size, and at its end."""
    return rank.sel(step=rank.step[-1] / 10, method="nearest"), rank.isel(step=-1)


def learning_claims() -> tuple[Claim, ...]:
    """Return the claims that the models start from scratch and learn, which the figures need to mean something."""

    def start(run: xr.Dataset) -> Estimate:
        return over_seeds(run.test_loss.isel(test_step=0) / np.log(run.attrs["vocabulary"]))

    def learned(run: xr.Dataset) -> Estimate:
        return over_seeds(run.test_loss.isel(test_step=-1) / run.attrs["guess_loss"])

    return (
        Claim(
            name="from-scratch",
            statement="The models start from scratch",
            quantity="first test loss over that of a uniform guess, ln(vocabulary)",
            kind=Kind.PRINTED,
            source="Appendix B.2: 'We trained GPT-2'; a pretrained model starts far below 1",
            low=0.95,
            high=1.05,
            statistic=start,
        ),
        Claim(
            name="learned",
            statement="Training works",
            quantity="last test loss over that of a guess by the tokens' frequencies",
            kind=Kind.PRINTED,
            source="needed for the figures to mean something; 1 is what a model reaches that ignores the text before",
            high=0.9,
            statistic=learned,
        ),
    )


def training_figure(run: xr.Dataset) -> Figure:
    """Draw the losses over training, one curve per seed."""

    def curves(values: xr.DataArray) -> Sequence[Line]:
        return [
            Line(
                x=run.test_step.values,
                y=values.sel(seed=seed).values,
                label=f"seed {seed}",
                group=f"seed {seed}",
                color=k,
            )
            for k, seed in enumerate(run.seed.values)
        ]

    guess = Mark(at=run.attrs["guess_loss"], label="guess by frequency", axis="y")
    return Figure(
        name="training",
        title="The training itself",
        caption=f"Cross-entropy on {run.attrs['text']}, in nats a token, of {run.attrs['vocabulary']} tokens; training "
        "loss: mean since the test before.",
        panels=(
            Panel(x=Axis("optimiser steps"), y=Axis("test loss", "nats"), marks=(*curves(run.test_loss), guess)),
            Panel(x=Axis("optimiser steps"), y=Axis("training loss", "nats"), marks=tuple(curves(run.train_loss))),
        ),
    )


QUICK = dict(
    characters=6000,
    vocabulary=300,
    seeds=(0, 1),
    block=16,
    depth=2,
    embedding=32,
    heads=2,
    epochs=2,
    learning_rate=1e-2,
    tests=2,
)
"""Seconds: two blocks, two heads, the start of the text."""

PAPER = dict(
    text="wikitext-103",
    vocabulary=50257,
    seeds=(0,),
    block=256,
    depth=12,
    embedding=768,
    heads=12,
    learning_rate=3e-4,
    tests=90,
    precision="bf16",
    compiled=True,
    threads=8,
)
"""Appendix B.2: GPT-2 small on WikiText-103, three epochs in blocks of 256; for a GPU."""

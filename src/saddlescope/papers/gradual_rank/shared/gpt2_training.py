"""GPT-2 trained from scratch on text, with spectra recorded by the tracker: the shared part of the language entries."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank.shared.shared_training import report_slow_precision, train_seeds
from saddlescope.reproduction import DataSets, EntryParams, RunContext, param
from saddlescope.reproduction.device import prepare_device

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

    from saddlescope.training.data.text import TextData, TokenizedText
    from saddlescope.training.language_training import LanguageConfig


class GPT2Params(EntryParams):
    """A small GPT-2 on a text that comes with Python: minutes on two cores."""

    text: Literal["python-topics", "python-library", "wikitext-2", "wikitext-103"] = param(
        "python-topics", "training text; python-* come with Python, wikitext-* are in the data folder"
    )
    characters: int = param(
        0, "characters of the training text, from its start, four times those of the test text; 0 takes all", ge=0
    )
    vocabulary: int = param(1024, "tokens of the byte-pair encoding, learned on the training text", ge=256)
    seeds: tuple[int, ...] = param(
        (0, 1, 2), "seeds of the training runs: initial weights and order of the blocks", ge=0, order="distinct"
    )
    block: int = param(64, "tokens per block of text", ge=2)
    depth: int = param(4, "number of transformer blocks", ge=1)
    embedding: int = param(128, "dimension of a token", ge=1)
    heads: int = param(4, "attention heads per transformer block", ge=1)
    epochs: int = param(3, "passes through the training text", ge=1)
    batch: int = param(16, "blocks of text per training step", ge=1)
    learning_rate: float = param(1e-3, "initial learning rate of Adam; it decays linearly to 0", gt=0, scale="log")
    tests: int = param(9, "measurements of the losses, evenly spaced over training", ge=1)
    precision: Literal["float32", "tf32", "bf16"] = param(
        "float32", "precision of matrix products, tf32 on a GPU only; the weights are always float32"
    )
    compiled: bool = param(False, "compilation by torch.compile: faster in long runs")
    threads: int = param(1, "threads of PyTorch on the processor; small matrices gain little from more", ge=1)

    def check(self) -> None:
        if self.embedding % self.heads:
            raise InputError(f"heads must divide embedding={self.embedding}; got {self.heads!r}.")


QUICK: dict[str, Any] = dict(vocabulary=300, seeds=(0, 1), block=16, depth=2, embedding=32, heads=2, learning_rate=1e-2)
"""Seconds, on the start of the text: two blocks, two heads."""

PAPER: dict[str, Any] = dict(
    text="wikitext-103", vocabulary=50257, block=256, depth=12, embedding=768, heads=12, learning_rate=3e-4
) | dict(precision="tf32", compiled=True, threads=8)
"""Appendix B.2: GPT-2 small on WikiText-103 in blocks of 256; for a GPU. Not in bfloat16: in one small GPT-2 the
stable ranks of the updates of W_K W_Qᵀ were then 10 % off after 100 steps (mean over heads; 70 % in one head), and with
compilation alone .2 %."""


def read_whole_text(name: str, folder: Path | None, report: Report) -> "TextData":
    """Return the text of that name.

    Raises:
        InputError: there is no data folder for a text that does not come with Python, or its files are not there.
    """
    from saddlescope.training.data.text import load_text

    if name.startswith("wikitext") and folder is None:
        raise InputError(
            f"text {name!r} needs the folder of its official files: give --data or set SADDLESCOPE_DATA, or take "
            "text=python-topics, which comes with Python."
        )
    return load_text(name, folder)


TEXTS = DataSets(read_whole_text, parameters=("text",))
"""Data of the entries that train on one text."""


def read_text(name: str, context: RunContext, characters: int = 0) -> "TextData":
    """Read the text of that name: all of it, or so many characters for training and a quarter of them for the test."""
    text = context.read_data(name, read_whole_text)
    return text.first(characters, -(-characters // 4)) if characters else text


def train(params: GPT2Params, context: RunContext) -> xr.Dataset:
    """Train one GPT-2 per seed and join their records along `seed`; entries that need the same training share it.

    No weights are loaded anywhere: the models are `fresh_gpt2`, and the first test loss of each is in the record.

    Returns:
        The tracker's data set for each seed, of heads and of the matrices of each block, with layers numbered from 1;
        `test_loss` and `train_loss` (seed, test_step) in nats per token; in the attributes the digest of the text and
        the loss of a guess by token frequencies.
    """
    from saddlescope.ranks import Geometric, RankTracker
    from saddlescope.training.data.text import learn_vocabulary, tokenize
    from saddlescope.training.language_training import fit_language

    text = read_text(params.text, context, params.characters)
    data = tokenize(text, learn_vocabulary(text, params.vocabulary), block=params.block)
    report_slow_precision(params.precision, _device(), context)

    def train_one(seed: int, step: RunContext) -> xr.Dataset:
        model = fresh_model(params, data, seed)
        tracker = RankTracker(model, schedule=Geometric(1.15), matrices="transformer.h.*")
        history = fit_language(
            model,
            data,
            training(params, seed, steps=params.epochs * -(-len(data.train) // params.batch)),
            tracker=tracker,
            checkpoint=step.scratch / "checkpoint.pt",
            report=step.report,
        )
        return (
            tracker.to_xarray()
            .assign(test_loss=("test_step", history.test_loss), train_loss=("test_step", history.train_loss))
            .assign_coords(layer=np.arange(1, params.depth + 1), test_step=history.steps)
        )

    together = train_seeds("gpt2", params, GPT2Params, {"text_digest": text.digest()}, context, train_one)
    return together.assign_attrs(
        text=text.name,
        text_digest=text.digest(),
        vocabulary=data.vocabulary,
        guess_loss=frequency_loss(data.train, data.test, data.vocabulary),
    )


def fresh_model(params: GPT2Params, data: "TokenizedText", seed: int) -> "GPT2LMHeadModel":
    """Return an untrained GPT-2 of the entry's sizes, on the GPU if there is one."""
    from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2

    sizes = GPT2Sizes(vocabulary=data.vocabulary, **params.only("block", "embedding", "depth", "heads"))
    return fresh_gpt2(sizes, seed=seed).to(_device())  # pyright: ignore[reportArgumentType]


def _device() -> str:
    """Return cuda if PyTorch finds a GPU, else cpu."""
    import torch

    return prepare_device("cuda" if torch.cuda.is_available() else "cpu")


def training(params: GPT2Params, seed: int, *, steps: int, learning_rate: float | None = None) -> "LanguageConfig":
    """Return the training configuration of an entry; a given learning rate replaces that of the parameters."""
    from saddlescope.training.language_training import LanguageConfig

    return LanguageConfig(
        steps=steps,
        learning_rate=learning_rate or params.learning_rate,
        test_every=-(-steps // params.tests),
        seed=seed,
        **params.only("batch", "threads", "precision", "compiled"),
    )


def frequency_loss(train: np.ndarray, test: np.ndarray, vocabulary: int) -> float:
    """Return the cross-entropy, in nats per token, of guessing test tokens by frequency in training (one added each).

    A model that uses token frequencies but ignores the text before each token reaches this loss.
    """
    counts = np.bincount(train.ravel(), minlength=vocabulary) + 1
    shares = counts / counts.sum()
    return float(-np.log(shares[test.ravel()]).mean())

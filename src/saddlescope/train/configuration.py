"""How to train: the optimiser, the schedule of its learning rate, batches, and numerics."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope.train.numerics import PRECISIONS, Precision


def check(
    name: str, value: float | int, *, low: float | int, high: float | int = math.inf, open_low: bool = False
) -> None:
    """Refuses a number that is not finite or not between two bounds.

    Raises:
        InputError: it is not.
    """
    if not (math.isfinite(value) and (value > low if open_low else value >= low) and value <= high):
        bounds = f"{'above' if open_low else 'at least'} {low}" + (f" and at most {high}" if high < math.inf else "")
        raise InputError(f"{name} must be {bounds}; got {value!r}.")


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam without weight decay; the default rate is the paper's for CIFAR-10 (appendix B.2)."""

    learning_rate: float = 1e-4  # at the top of the schedule
    betas: tuple[float, float] = (0.9, 0.999)  # memory of the first and second moment

    def __post_init__(self) -> None:
        check("learning_rate", self.learning_rate, low=0, open_low=True)
        for beta in self.betas:
            check("betas", beta, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser."""
        known = list(parameters)
        fused = True if known[0].device.type == "cuda" else None  # one kernel for all weights
        return torch.optim.Adam(known, lr=self.learning_rate, betas=self.betas, fused=fused)


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent; the default rate is the paper's for CIFAR-10 (appendix B.1), without momentum."""

    learning_rate: float = 0.3  # at the top of the schedule
    momentum: float = 0.0  # fraction of the last step that is kept

    def __post_init__(self) -> None:
        check("learning_rate", self.learning_rate, low=0, open_low=True)
        check("momentum", self.momentum, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser."""
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the defaults are the paper's for CIFAR-10 with Adam (appendix B.2).

    The learning rate rises linearly over the warm-up and then falls to 0 along half a cosine. Images are not augmented.
    """

    optimizer: Adam | SGD = field(default_factory=Adam)  # Adam(...) or SGD(...)
    epochs: int = 500  # passes over the training images
    warmup_epochs: int = 15  # over which the learning rate rises to its top
    batch: int = 512  # images a step; the last incomplete batch of an epoch is left out
    pieces: int = 1  # a batch goes through the model in so many pieces, to save memory; their gradients are averaged
    test_every: int = 1  # epochs between two measurements of test loss and accuracy
    seed: int = 0  # of the order of the images, and of layers that draw random numbers
    threads: int | None = None  # of PyTorch on the processor, while it trains; None leaves them as they are
    precision: Precision = "float32"  # of matrix products; see `saddlescope.train.numerics`
    compiled: bool = False  # whether the model runs through torch.compile: other rounding, much faster on a GPU

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "pieces", "test_every"):
            check(name, getattr(self, name), low=1)
        if self.batch % self.pieces:
            raise InputError(f"pieces must divide batch={self.batch}; got {self.pieces!r}.")
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        check("warmup_epochs", self.warmup_epochs, low=0, high=self.epochs)
        check("seed", self.seed, low=0)
        if self.threads is not None:
            check("threads", self.threads, low=1)

    def learning_rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of the step with this number, from 0."""
        warmup = self.warmup_epochs * steps_an_epoch
        top = self.optimizer.learning_rate
        if step < warmup:
            return top * (step + 1) / warmup
        remaining = max(self.epochs * steps_an_epoch - warmup, 1)
        return top * (1 + math.cos(math.pi * (step - warmup) / remaining)) / 2

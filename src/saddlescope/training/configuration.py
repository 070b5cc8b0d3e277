"""Configuration of image training: optimiser, schedule of the learning rate, batches, precision."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope.training.torch_settings import PRECISIONS, Precision


def check_range(
    name: str, value: float | int, *, low: float | int, high: float | int = math.inf, open_low: bool = False
) -> None:
    """Raise InputError unless a number is finite and between two bounds."""
    if not (math.isfinite(value) and (value > low if open_low else value >= low) and value <= high):
        finite = "" if math.isfinite(value) else "finite and "
        upper = f" and at most {high}" if high < math.inf else ""
        raise InputError(f"{name} must be {finite}{'above' if open_low else 'at least'} {low}{upper}; got {value!r}.")


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam without weight decay; the default rate is the paper's for CIFAR-10 (appendix B.2)."""

    learning_rate: float = 1e-4  # largest learning rate of the schedule
    betas: tuple[float, float] = (0.9, 0.999)  # decay of the first and second moment

    def __post_init__(self) -> None:
        check_range("learning_rate", self.learning_rate, low=0, open_low=True)
        for beta in self.betas:
            check_range("betas", beta, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """Return PyTorch's optimiser."""
        return torch.optim.Adam(parameters, lr=self.learning_rate, betas=self.betas, fused=True)  # one kernel


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent; the default rate is the paper's for CIFAR-10 (appendix B.1), without momentum."""

    learning_rate: float = 0.3  # largest learning rate of the schedule
    momentum: float = 0.0  # fraction of the previous step that is added

    def __post_init__(self) -> None:
        check_range("learning_rate", self.learning_rate, low=0, open_low=True)
        check_range("momentum", self.momentum, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """Return PyTorch's optimiser."""
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of image training; the defaults are the paper's for CIFAR-10 with Adam (appendix B.2).

    The learning rate rises linearly over the warm-up and then falls to 0 along half a cosine. Images are not augmented.
    """

    optimizer: Adam | SGD = field(default_factory=Adam)  # Adam(...) or SGD(...)
    epochs: int = 500  # passes over the training images
    warmup_epochs: int = 15  # epochs of linear increase of the learning rate
    batch: int = 512  # images per step; the last incomplete batch of an epoch is dropped
    pieces: int = 1  # number of parts of a batch, computed one after the other to save memory; gradients are averaged
    test_every: int = 1  # epochs between two measurements of test loss and accuracy
    seed: int = 0  # seed of the order of the images, and of layers that draw random numbers
    threads: int | None = None  # PyTorch threads on the processor during training; None leaves the number unchanged
    precision: Precision = "float32"  # of matrix products; see `saddlescope.training.torch_settings`
    compiled: bool = False  # use torch.compile: different rounding, much faster on a GPU

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "pieces", "test_every"):
            check_range(name, getattr(self, name), low=1)
        if self.batch % self.pieces:
            raise InputError(f"pieces must divide batch={self.batch}; got {self.pieces!r}.")
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        check_range("warmup_epochs", self.warmup_epochs, low=0, high=self.epochs)
        check_range("seed", self.seed, low=0)
        if self.threads is not None:
            check_range("threads", self.threads, low=1)

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step, numbered from 0."""
        warmup = self.warmup_epochs * steps_per_epoch
        top = self.optimizer.learning_rate
        if step < warmup:
            return top * (step + 1) / warmup
        remaining = max(self.epochs * steps_per_epoch - warmup, 1)
        return top * (1 + math.cos(math.pi * (step - warmup) / remaining)) / 2

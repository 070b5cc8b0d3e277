"""Configurations whose numbers are in ranges, and that of image training: optimiser, learning rates, batches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import torch
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope.training.torch_settings import Precision


@dataclass(frozen=True)
class Bounds:
    """Range of a number, or of each number of a tuple, in the annotation of a field: `Annotated[int, Bounds(1)]`."""

    low: float | int
    high: float | int = math.inf
    open_low: bool = False
    open_high: bool = False

    def check(self, name: str, value: float | int) -> None:
        """Raise InputError unless a number is finite and in the range."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        if not (math.isfinite(value) and above and below):
            finite = "" if math.isfinite(value) else "finite and "
            lower = f"{'above' if self.open_low else 'at least'} {self.low}"
            upper = f" and {'below' if self.open_high else 'at most'} {self.high}" if self.high < math.inf else ""
            raise InputError(f"{name} must be {finite}{lower}{upper}; got {value!r}.")


Count = Annotated[int, Bounds(1)]
Seed = Annotated[int, Bounds(0)]
Threads = Annotated[int | None, Bounds(1)]
Positive = Annotated[float, Bounds(0, open_low=True)]
NonNegative = Annotated[float, Bounds(0)]
BelowOne = Annotated[float, Bounds(0, 1, open_high=True)]


class Configuration:
    """Base of frozen data classes: numbers are in the ranges, and words among those, that annotations name."""

    def __post_init__(self) -> None:
        for name, annotation in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if get_origin(annotation) is Literal and value not in get_args(annotation):
                raise unknown(name, value, get_args(annotation))
            for bounds in getattr(annotation, "__metadata__", ()):
                for number in value if isinstance(value, tuple) else () if value is None else (value,):
                    bounds.check(name, number)


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class Adam(Configuration):
    """Adam without weight decay; the default rate is the paper's for CIFAR-10 (appendix B.2)."""

    learning_rate: Positive = 1e-4  # largest learning rate of the schedule
    betas: Annotated[tuple[float, float], Bounds(0, 1, open_high=True)] = (
        0.9,
        0.999,
    )  # decay of first and second moment

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """Return PyTorch's optimiser."""
        return torch.optim.Adam(parameters, lr=self.learning_rate, betas=self.betas, fused=True)  # one kernel


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class SGD(Configuration):
    """Stochastic gradient descent; the default rate is the paper's for CIFAR-10 (appendix B.1), without momentum."""

    learning_rate: Positive = 0.3  # largest learning rate of the schedule
    momentum: BelowOne = 0.0  # fraction of the previous step that is added

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """Return PyTorch's optimiser."""
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class TrainConfig(Configuration):
    """Configuration of image training; the defaults are the paper's for CIFAR-10 with Adam (appendix B.2).

    The learning rate rises linearly over the warm-up and then falls to 0 along half a cosine. Images are not augmented.
    """

    optimizer: Adam | SGD = field(default_factory=Adam)  # Adam(...) or SGD(...)
    epochs: Count = 500  # passes over the training images
    warmup_epochs: int = 15  # epochs of linear increase of the learning rate
    batch: Count = 512  # images per step; the last incomplete batch of an epoch is dropped
    pieces: Count = 1  # number of parts of a batch, computed one after the other to save memory; gradients are averaged
    test_every: Count = 1  # epochs between two measurements of test loss and accuracy
    seed: Seed = 0  # seed of the order of the images, and of layers that draw random numbers
    threads: Threads = None  # PyTorch threads on the processor during training; None leaves the number unchanged
    precision: Precision = "float32"  # of matrix products; see `saddlescope.training.torch_settings`
    compiled: bool = False  # use torch.compile: different rounding, much faster on a GPU

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch % self.pieces:
            raise InputError(f"pieces must divide batch={self.batch}; got {self.pieces!r}.")
        Bounds(0, self.epochs).check("warmup_epochs", self.warmup_epochs)

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of a step, numbered from 0."""
        warmup = self.warmup_epochs * steps_per_epoch
        top = self.optimizer.learning_rate
        if step < warmup:
            return top * (step + 1) / warmup
        remaining = max(self.epochs * steps_per_epoch - warmup, 1)
        return top * (1 + math.cos(math.pi * (step - warmup) / remaining)) / 2

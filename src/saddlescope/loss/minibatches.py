"""Minibatches of a loss that is a mean over samples: the samples that a step of stochastic gradient descent sees.

An epoch goes through a permutation of the samples, a minibatch at a time, and leaves out those that fill none. The
samples of a step thus depend on the seed and on the step's number alone, not on what is recorded.

    one run       epoch e = 0, 1, ... has `jax.random.permutation(fold_in(key(seed), e), samples)`
    many runs     epoch e = 1, 2, ... has `numpy.random.default_rng((seed, e)).permutation(samples)`; JAX's permutations
                  would take most of the time
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Int

from saddlescope._shared.compiled_functions import compiled_for_constants
from saddlescope._shared.errors import InputError
from saddlescope.loss.compiled import Loss

_NUMBERS = 250_000  # of samples in the epochs that are drawn at once, unless one epoch has more


@runtime_checkable
class FiniteSumLoss(Protocol):
    """A loss that is a mean over samples, and can be restricted to some of them. `DiagonalNetwork` is one."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        ...

    def batch(self, indices: Int[Array, "b"]) -> Loss:
        """Return the mean over the samples with these indices only; called in compiled code."""
        ...


@dataclass(frozen=True)
class Minibatches:
    """Minibatches of one run or of many.

    Attributes:
        samples: number of samples.
        size: samples in a minibatch.
        seeds: of the permutations, one for each run.
        many: True where the runs are a leading axis.
        epochs: that are drawn at once.
    """

    samples: int
    size: int
    seeds: tuple[int, ...]
    many: bool
    epochs: int

    @classmethod
    def of(cls, loss: Any, size: int, seeds: tuple[int, ...], steps: int, *, many: bool = False) -> "Minibatches":
        """Return the minibatches of a loss, or of losses like it, for so many steps.

        Raises:
            InputError: the loss is no `FiniteSumLoss`, or has fewer samples than a minibatch; or a seed is negative.
        """
        if not isinstance(loss, FiniteSumLoss):
            raise InputError(
                "loss must have `samples` and `batch(indices)` to be trained on minibatches; got one of type "
                f"{type(loss).__name__!r} without them. Use DiagonalNetwork, or see saddlescope.loss.FiniteSumLoss."
            )
        if not isinstance(size, int | np.integer) or not 1 <= size <= loss.samples:
            raise InputError(
                f"batch must be an integer between 1 and the {loss.samples!r} samples of the loss; got {size!r}."
            )
        for seed in seeds:
            if not isinstance(seed, int | np.integer) or seed < 0:
                raise InputError(f"seed must be an integer of at least 0; got {seed!r}.")
        per_epoch = loss.samples // size
        most = min(-(-steps // per_epoch), _NUMBERS // (per_epoch * size * len(seeds)))
        epochs = 2 ** (max(most, 1).bit_length() - 1)  # few shapes: each is compiled once
        return cls(loss.samples, int(size), tuple(map(int, seeds)), many, epochs)

    @property
    def per_epoch(self) -> int:
        """Number of steps in an epoch."""
        return self.samples // self.size

    @property
    def per_block(self) -> int:
        """Number of steps in the epochs that are drawn at once, a block."""
        return self.per_epoch * self.epochs

    def block(self, number: int) -> Int[np.ndarray, "*runs steps batch"]:
        """Return the samples of the minibatches of a block, counted from 0."""
        epochs = np.arange(self.epochs * number, self.epochs * (number + 1), dtype=np.int32)
        of_seed = {}
        for seed in set(self.seeds):
            if self.many:
                drawn = [np.random.default_rng((seed, int(epoch) + 1)).permutation(self.samples) for epoch in epochs]
            else:
                drawn = _permutations(self.samples, jax.random.key(seed), epochs)
            whole = np.asarray(drawn, np.int32)[:, : self.per_epoch * self.size]
            of_seed[seed] = whole.reshape(self.per_block, self.size)
        return np.stack([of_seed[seed] for seed in self.seeds]) if self.many else of_seed[self.seeds[0]]


@compiled_for_constants(1)
def _permutations(samples: int, key: Array, epochs: Int[Array, "e"]) -> Int[Array, "e samples"]:
    return jax.lax.map(lambda epoch: jax.random.permutation(jax.random.fold_in(key, epoch), samples), epochs)

"""Minibatches of a loss that is a mean over samples: the samples that a step of stochastic gradient descent sees.

Epoch e goes through the permutation `jax.random.permutation(fold_in(key(seed), e), samples)`, a minibatch at a time.
The samples of a step thus depend on the seed and on the step's number alone, not on what is recorded.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from saddlescope._shared.errors import InputError
from saddlescope.loss.compiled import Loss


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


class Minibatches(eqx.Module):
    """Minibatches of a loss, for compiled code.

    Attributes:
        loss: a `FiniteSumLoss`.
        size: samples in a minibatch.
        key: of the permutations.
    """

    loss: Any
    size: int = eqx.field(static=True)
    key: Array

    @classmethod
    def of(cls, loss: Any, size: int, seed: int) -> "Minibatches":
        """Return the minibatches of a loss for a seed.

        Raises:
            InputError: the loss is no `FiniteSumLoss`, or has fewer samples than a minibatch; or the seed is negative.
        """
        require_minibatches(loss, size, seed)
        return cls(loss, int(size), jax.random.key(seed))

    def no_epoch(self) -> Int[Array, "samples"]:
        """Return a placeholder for the permutation before the first epoch."""
        return jnp.arange(self.loss.samples)

    @property
    def per_epoch(self) -> int:
        """Number of steps in an epoch, which leaves out the samples that fill no minibatch."""
        return self.loss.samples // self.size

    def order(self, epoch: Int[Array, ""]) -> Int[Array, "samples"]:
        """Return the permutation of an epoch."""
        return jax.random.permutation(jax.random.fold_in(self.key, epoch), self.loss.samples)

    def at(self, place: Int[Array, ""], order: Int[Array, "samples"]) -> Loss:
        """Return the loss on one minibatch, counted from 0, of an epoch with that permutation."""
        return self.loss.batch(jax.lax.dynamic_slice_in_dim(order, place * self.size, self.size))

    def of_step(self, number: Int[Array, ""], order: Int[Array, "samples"]) -> tuple[Loss, Int[Array, "samples"]]:
        """Return the loss on the minibatch of a step, and its epoch's permutation, given that of the step before."""
        epoch, place = jnp.divmod(number, self.per_epoch)
        order = jax.lax.cond(place == 0, lambda: self.order(epoch), lambda: order)
        return self.at(place, order), order


def require_minibatches(loss: Any, size: int, seed: int) -> None:
    """Raise unless a loss has minibatches of a size.

    Raises:
        InputError: the loss is no `FiniteSumLoss`, or has fewer samples than a minibatch; or the seed is negative.
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
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be an integer of at least 0; got {seed!r}.")

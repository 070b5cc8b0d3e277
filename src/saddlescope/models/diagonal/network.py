"""Networks with diagonal weights: f(x; u, v) = h(x; u * v) for any twice-differentiable h (Definition 3.1).

    u, v    the trained weights, each of shape (p,)
    beta    their elementwise product u * v, which alone determines the network's output
    L       mean loss over the samples
    g       -dL/dbeta; u' = v * g, v' = u * g under gradient flow (equation 4)

Equations of Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023), "Transformers learn through gradual rank
increase".
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped

from saddlescope._shared.arguments import require
from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.models.sample_blocks import BLOCK_ENTRIES


def squared_error(target: Array, prediction: Array) -> Array:
    """Return the mean over the entries of the squared difference, without a factor 1/2."""
    if jnp.shape(target) != jnp.shape(prediction):  # which would broadcast
        raise InputError(
            f"targets must have the shape of the network's output; got {jnp.shape(target)!r} for one sample, and "
            f"{jnp.shape(prediction)!r} as its output."
        )
    return jnp.mean((prediction - target) ** 2)


class DiagonalNetwork(AbstractLoss):
    """Loss L(beta) of a network with diagonal weights on a data set.

    Attributes:
        h: function of one sample's input and beta to the output; twice continuously differentiable in beta.
        inputs: the samples' inputs, first axis the sample.
        targets: the samples' targets, first axis the sample.
        loss: function of one sample's target and output to its loss; twice continuously differentiable.

    Raises:
        InputError: inputs and targets have no samples, or different numbers of samples, or contain NaN or infinity.
    """

    h: Callable[[Array, Array], Array] = eqx.field(static=True)
    inputs: Shaped[Array, "..."]
    targets: Shaped[Array, "..."]
    loss: Callable[[Array, Array], Array] = eqx.field(static=True, default=squared_error)

    def __check_init__(self) -> None:
        require("h", self.h, Callable)
        _check_samples(self.inputs, self.targets)

    @property
    def samples(self) -> int:
        """Number of samples over which the loss is a mean."""
        return self.inputs.shape[0]

    def batch(self, indices: Int[Array, "b"]) -> "DiagonalNetwork":
        """Return the loss on these samples only, a minibatch; may be called in compiled code."""
        samples = (self.inputs[indices], self.targets[indices])
        return eqx.tree_at(lambda network: (network.inputs, network.targets), self, samples)

    @compiled
    def __call__(self, beta: Float[Array, "p"]) -> Float[Array, ""]:
        """Return L(beta)."""
        return self._mean_by_blocks(lambda loss: loss(beta), self._samples_at_once())

    @compiled
    def value_and_gradient(self, beta: Float[Array, "p"]) -> tuple[Float[Array, ""], Float[Array, "p"]]:
        """Return L(beta) and dL/dbeta = -g."""
        return self._mean_by_blocks(lambda loss: jax.value_and_grad(loss)(beta), self._samples_at_once())

    def hessian(self, beta: Float[Array, "p"]) -> Float[Array, "p p"]:
        """Return the second derivatives of L at beta."""
        return self.hessian_columns(beta, jnp.arange(beta.size))

    @compiled
    def hessian_columns(self, beta: Float[Array, "p"], columns: Int[Array, "m"]) -> Float[Array, "p m"]:
        """Return some columns of the Hessian of L at beta: m products with it, and memory for p m numbers, not p^2."""
        directions = jnp.zeros((columns.size, beta.size), beta.dtype).at[jnp.arange(columns.size), columns].set(1.0)

        def times_directions(loss: Callable[[Array], Array]) -> Array:
            return jax.vmap(jax.linearize(jax.grad(loss), beta)[1])(directions)

        return self._mean_by_blocks(times_directions, self._samples_in_cache(columns.size)).T

    def _samples_at_once(self) -> int:
        """Return of how many samples a loss and its gradient are computed at once."""
        return self.samples

    def _samples_in_cache(self, copies: int = 1) -> int:
        """Return of how many samples so many copies fit into the processor's cache, about."""
        return min(self.samples, max(1, BLOCK_ENTRIES // max(1, copies * (self.inputs.size // self.samples))))

    def _mean_by_blocks(self, of: Callable[[Callable[[Array], Array]], PyTree], size: int) -> PyTree:
        """Return the mean over the samples of a quantity linear in the loss, such as its gradient, block by block.

        Args:
            of: function of a loss (a function of beta) to arrays; called with each block's sum over its samples.
            size: samples in a block.
        """
        samples = self.samples

        def part(index: Any, counts: Array) -> PyTree:
            def loss(beta: Array) -> Array:
                predictions = jax.vmap(self.h, in_axes=(0, None))(self.inputs[index], beta)
                losses = jax.vmap(lambda y, f: jnp.mean(self.loss(y, f)))(self.targets[index], predictions)
                return counts.astype(beta.dtype) @ losses

            return of(loss)

        def add(total: PyTree, block: tuple[Array, Array]) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, part(*block)), None

        if size == samples:
            total = part(slice(None), jnp.ones(samples, bool))
        else:
            places = jnp.arange(-(-samples // size) * size).reshape(-1, size)
            # The last block is padded with the last sample, at weight 0.
            blocks = jnp.minimum(places, samples - 1), places < samples
            like = jax.eval_shape(part, *(block[0] for block in blocks))
            total, _ = jax.lax.scan(add, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like), blocks)
        return jax.tree.map(lambda leaf: leaf / samples, total)


def _check_samples(inputs: Any, targets: Any) -> None:
    for name, data in (("inputs", inputs), ("targets", targets)):
        if not isinstance(data, jax.Array | np.ndarray) or data.ndim == 0:
            raise InputError(f"{name} must be an array of shape (samples, ...); got {data!r}.")
        require(name, data, Shaped[Any, "..."])
        bad = np.count_nonzero(~np.isfinite(np.asarray(data)))
        if bad:
            raise InputError(f"{name} must be finite; got {bad!r} entries that are NaN or infinite.")
    if inputs.shape[0] != targets.shape[0] or inputs.shape[0] == 0:
        raise InputError(
            f"targets must have as many samples as inputs, at least one; got {targets.shape[0]!r} "
            f"for {inputs.shape[0]!r} inputs."
        )

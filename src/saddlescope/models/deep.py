"""Deep networks without biases, with ReLU or linear: the networks of the saddle at the origin.

    X       inputs (d_in, N); Zs_0 = X
    W_l     weights of layer l = 1..L, (n_l, n_{l-1}), with n_0 = d_in and n_L = d_out
    Z_l     preactivations W_l Zs_{l-1}, (n_l, N)
    Zs_l    activations sigma(Z_l); sigma(z) = max(z, 0), or z in a deep linear network
    Y       the output Z_L, without a nonlinearity: homogeneous of degree L in the weights
    C       a cost of the outputs, so that the loss is C(Y)
    G       its gradient at Y = 0, (d_out, N): near the origin the loss depends on the targets only through G

The formulas have a column per sample, as in the paper. Functions take and return samples as rows: `inputs` (N, d_in) is
X^T, and outputs (N, d_out) are Y^T.

Section 2 of Bantzis, Simon and Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks".
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from saddlescope._shared.arguments import require, require_samples_as_rows, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import AbstractLoss

Weights = tuple[Float[Any, "..."], ...]
"""W_1, ..., W_L, of JAX or NumPy."""


@validate_arguments
def preactivations(weights: Weights, inputs: Float[Any, "n d"], *, relu: bool = True) -> tuple[Array, ...]:
    """Return Z_1, ..., Z_L, each (N, n_l).

    Args:
        weights: W_1, ..., W_L.
        inputs: (N, d_in), a row per sample.
        relu: False for a deep linear network.

    Raises:
        InputError: the shapes of weights and inputs do not chain.
    """
    require_chain(weights)
    into = weights[0].shape[-1]
    if into != inputs.shape[1]:
        cure = " Pass `inputs.T`." if into == inputs.shape[0] else ""
        raise InputError(
            f"inputs must have a row per sample and a column for each of the {into} columns of W_1; got shapes "
            f"{tuple(inputs.shape)!r} and {tuple(weights[0].shape)!r}.{cure}"
        )
    found = [weights[0] @ inputs.T]
    for weight in weights[1:]:
        found.append(weight @ (jax.nn.relu(found[-1]) if relu else found[-1]))
    return tuple(jnp.swapaxes(layer, -1, -2) for layer in found)


def require_chain(weights: Weights, *, stacked: bool = True) -> None:
    """Raise unless the number of rows of each layer is the number of columns of the next.

    Args:
        weights: W_1, ..., W_L.
        stacked: whether they may have leading axes, over several networks.

    Raises:
        InputError: there is no layer, one is no matrix, or the shapes do not chain.
    """
    shapes = [tuple(weight.shape) for weight in weights]
    alike = len({len(shape) for shape in shapes}) == 1 and len(shapes[0]) >= 2
    alike = alike and (stacked or len(shapes[0]) == 2)
    if not alike or any(lower[-2] != upper[-1] for lower, upper in itertools.pairwise(shapes)):
        raise InputError(f"weights must be matrices (n_l, n_(l-1)), one layer's n_l the next one's; got {shapes!r}.")


@validate_arguments
def layered_output(weights: Weights, inputs: Float[Any, "n d"], *, relu: bool = True) -> Float[Array, "n out"]:
    """Return the output Z_L, (N, d_out), a row per sample."""
    return preactivations(weights, inputs, relu=relu)[-1]


@validate_arguments
def layered_weights(
    widths: Sequence[int], *, seed: int, deviation: float = 1.0, num_starts: int | None = None, dtype: Any = None
) -> Weights:
    """Draw independent normal weights of mean 0.

    Args:
        widths: n_0, ..., n_L: a depth of at least 2 has at least three.
        seed: of the draw.
        deviation: standard deviation of every weight, positive.
        num_starts: number of networks, along a leading axis of every W_l; None: one, without that axis.
        dtype: of the weights; by default JAX's own, float64 under `jax.enable_x64`.

    Raises:
        InputError: a depth below 2, a width below 1, or a deviation that is not positive and finite.
    """
    if len(widths) < 3:
        raise InputError(f"widths must be n_0, ..., n_L with a depth L of at least 2; got {tuple(widths)!r}.")
    if min(widths) < 1:
        raise InputError(f"widths must be at least 1; got {tuple(widths)!r}.")
    if not 0 < deviation < float("inf"):
        raise InputError(f"deviation must be positive and finite; got {deviation!r}.")
    if num_starts is not None and num_starts < 1:
        raise InputError(f"num_starts must be at least 1; got {num_starts!r}.")
    batch = () if num_starts is None else (num_starts,)
    keys = jax.random.split(jax.random.key(seed), len(widths) - 1)
    kind = jnp.result_type(float) if dtype is None else dtype
    return tuple(
        deviation * jax.random.normal(key, (*batch, out, into), kind)
        for key, into, out in zip(keys, widths[:-1], widths[1:], strict=True)
    )


@validate_arguments
def half_squared_error(outputs: Float[Array, "n out"], targets: Float[Any, "n out"]) -> Float[Array, ""]:
    """Return C(Y) = |Y - T|_F^2 / (2 N), so that G = -T / N."""
    return jnp.sum((outputs.T - targets.T) ** 2) / (2 * len(targets))  # transposed as the network computes them


@validate_arguments
def cross_entropy(outputs: Float[Array, "n out"], targets: Float[Any, "n out"]) -> Float[Array, ""]:
    """Return C(Y) = -sum(T log softmax(Y)) / N with targets of row sums 1, so that G = (1/d_out - T) / N."""
    return -jnp.sum(targets.T * jax.nn.log_softmax(outputs.T, axis=0)) / len(targets)


class LayeredLoss(AbstractLoss):
    """Loss of a deep network on a data set; a mean over samples, which can be restricted to minibatches.

    Attributes:
        inputs: (N, d_in), a row per sample.
        targets: (N, d_out).
        cost: function of outputs and targets, both (n, d_out), to the mean cost of n samples.
        relu: False for a deep linear network.

    Raises:
        InputError: inputs and targets are no matrices with equally many rows, at least one, or are not finite.
    """

    inputs: Float[Any, "..."]
    targets: Float[Any, "..."]
    cost: Callable[[Array, Array], Array] = eqx.field(static=True, default=half_squared_error)
    relu: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        for name, data in (("inputs", self.inputs), ("targets", self.targets)):
            require(name, data, Float[Any, "..."])
            if data.ndim != 2 or 0 in data.shape:
                raise InputError(f"{name} must have shape (samples, dimension); got {data.shape!r}.")
            bad = int(jnp.sum(~jnp.isfinite(data)))
            if bad:
                raise InputError(f"{name} must be finite; got {bad!r} entries that are NaN or infinite.")
        require_samples_as_rows("inputs", self.inputs, "targets", self.targets)

    @property
    def samples(self) -> int:
        """Number of samples of which the loss is a mean."""
        return self.inputs.shape[0]

    def batch(self, indices: Int[Array, "b"]) -> "LayeredLoss":
        """Return the mean over these samples only, a minibatch; may be called in compiled code."""
        samples = (self.inputs[indices], self.targets[indices])
        return eqx.tree_at(lambda loss: (loss.inputs, loss.targets), self, samples)

    def output(self, weights: Weights) -> Float[Array, "n out"]:
        """Return the outputs on all samples."""
        return layered_output(weights, self.inputs, relu=self.relu)

    def cost_of(self, outputs: Float[Array, "n out"]) -> Float[Array, ""]:
        """Return C(Y) for outputs on all samples."""
        return self.cost(outputs, jnp.asarray(self.targets))

    def __call__(self, weights: Weights) -> Float[Array, ""]:
        """Return the loss C(Y)."""
        return self.cost_of(self.output(weights))

    def gradient_at_origin(self) -> Float[Array, "n out"]:
        """Return the gradient of C at Y = 0; with the inputs, it determines the escape from the origin (equation 1)."""
        return jax.grad(self.cost_of)(jnp.zeros(self.targets.shape, self.targets.dtype))


@validate_arguments
def balancedness(weights: Weights) -> tuple[Array, ...]:
    """Return W_{l+1}^T W_{l+1} - W_l W_l^T for l = 1..L-1, each (n_l, n_l): 0 where layers l and l+1 are balanced.

    Gradient flow of a deep linear network conserves them; with ReLU only their diagonals (section 5, hypothesis 3).

    Raises:
        InputError: the shapes of the weights do not chain.
    """
    require_chain(weights, stacked=False)
    return tuple(upper.T @ upper - lower @ lower.T for lower, upper in itertools.pairwise(weights))

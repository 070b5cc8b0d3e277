"""Deep networks without biases, with ReLU or linear: the networks of the saddle at the origin.

    X       inputs (d_in, N), a column a sample; Zs_0 = X
    W_l     weights of layer l = 1..L, (n_l, n_{l-1}), with n_0 = d_in and n_L = d_out
    Z_l     preactivations W_l Zs_{l-1}, (n_l, N)
    Zs_l    activations sigma(Z_l); sigma(z) = max(z, 0), or z in a deep linear network
    Y       the output Z_L, without a nonlinearity: homogeneous of degree L in the weights
    C       a cost of the outputs, so that the loss is C(Y)
    G       its gradient at Y = 0, (d_out, N): all that the neighbourhood of the origin knows of the data's targets

Section 2 of Bantzis, Simon and Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks".
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from saddlescope._shared.arguments import require, validate_arguments
from saddlescope._shared.errors import InputError

Weights = tuple[Float[Any, "..."], ...]
"""W_1, ..., W_L, of JAX or NumPy."""


@validate_arguments
def preactivations(weights: Weights, inputs: Float[Any, "d n"], *, relu: bool = True) -> tuple[Array, ...]:
    """Z_1, ..., Z_L.

    Args:
        weights: W_1, ..., W_L.
        inputs: X.
        relu: False for a deep linear network.

    Raises:
        InputError: weights or inputs that do not follow one another.
    """
    require_chain(weights)
    if weights[0].shape[-1] != inputs.shape[0]:
        raise InputError(
            f"inputs must have a row for each of the {weights[0].shape[-1]} columns of the first weight; "
            f"got shape {inputs.shape!r}."
        )
    found = [weights[0] @ inputs]
    for weight in weights[1:]:
        found.append(weight @ (jax.nn.relu(found[-1]) if relu else found[-1]))
    return tuple(found)


def require_chain(weights: Weights, *, stacked: bool = True) -> None:
    """Refuses layers of which one does not take what the one before it gives.

    Args:
        weights: W_1, ..., W_L.
        stacked: whether they may have leading axes, as many networks have.

    Raises:
        InputError: there is none, one is no matrix, or they do not follow one another.
    """
    shapes = [tuple(weight.shape) for weight in weights]
    alike = len({len(shape) for shape in shapes}) == 1 and len(shapes[0]) >= 2
    alike = alike and (stacked or len(shapes[0]) == 2)
    if not alike or any(lower[-2] != upper[-1] for lower, upper in itertools.pairwise(shapes)):
        raise InputError(f"weights must be matrices (n_l, n_(l-1)), one layer's n_l the next one's; got {shapes!r}.")


@validate_arguments
def layered_output(weights: Weights, inputs: Float[Any, "d n"], *, relu: bool = True) -> Float[Array, "out n"]:
    """The output Y = Z_L, a column a sample."""
    return preactivations(weights, inputs, relu=relu)[-1]


@validate_arguments
def layered_weights(
    widths: Sequence[int], *, seed: int, deviation: float = 1.0, starts: int | None = None, dtype: Any = None
) -> Weights:
    """Independent normal weights of mean 0.

    Args:
        widths: n_0, ..., n_L: a depth of at least 2 has at least three.
        seed: of the draw.
        deviation: standard deviation of every weight, positive.
        starts: how many networks, along a leading axis of every W_l; None: one, without that axis.
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
    if starts is not None and starts < 1:
        raise InputError(f"starts must be at least 1; got {starts!r}.")
    batch = () if starts is None else (starts,)
    keys = jax.random.split(jax.random.key(seed), len(widths) - 1)
    kind = jnp.result_type(float) if dtype is None else dtype
    return tuple(
        deviation * jax.random.normal(key, (*batch, out, into), kind)
        for key, into, out in zip(keys, widths[:-1], widths[1:], strict=True)
    )


@validate_arguments
def half_squared_error(outputs: Float[Array, "out n"], targets: Float[Array, "out n"]) -> Float[Array, ""]:
    """C(Y) = |Y - T|_F^2 / (2 N), so that G = -T / N."""
    return jnp.sum((outputs - targets) ** 2) / (2 * targets.shape[1])


@validate_arguments
def cross_entropy(outputs: Float[Array, "out n"], targets: Float[Array, "out n"]) -> Float[Array, ""]:
    """C(Y) = -sum(T log softmax(Y)) / N with targets of one column a sample that sum to 1, so G = (1/d_out - T) / N."""
    return -jnp.sum(targets * jax.nn.log_softmax(outputs, axis=0)) / targets.shape[1]


class LayeredLoss(eqx.Module):
    """The loss of a deep network on a data set; a mean over samples, which can be restricted to minibatches.

    Attributes:
        inputs: (N, d_in), first axis the sample, as data sets are stored: X is its transpose.
        targets: (N, d_out).
        cost: outputs and targets, both (d_out, n), to the mean cost of n samples.
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
        if len(self.inputs) != len(self.targets):
            raise InputError(
                f"targets must have a row for each of the {len(self.inputs)} inputs; got {len(self.targets)!r}."
            )

    @property
    def samples(self) -> int:
        """How many samples the loss is a mean over."""
        return self.inputs.shape[0]

    def batch(self, indices: Int[Array, "b"]) -> "LayeredLoss":
        """The mean over these samples only, a minibatch; may be called in compiled code."""
        samples = (self.inputs[indices], self.targets[indices])
        return eqx.tree_at(lambda loss: (loss.inputs, loss.targets), self, samples)

    def output(self, weights: Weights) -> Float[Array, "out n"]:
        """Y on all samples."""
        return layered_output(weights, self.inputs.T, relu=self.relu)

    def cost_of(self, outputs: Float[Array, "out n"]) -> Float[Array, ""]:
        """C(Y)."""
        return self.cost(outputs, self.targets.T)

    def __call__(self, weights: Weights) -> Float[Array, ""]:
        """The loss C(Y)."""
        return self.cost_of(self.output(weights))

    def gradient_at_origin(self) -> Float[Array, "out n"]:
        """G = the gradient of C at Y = 0: with X, what the escape from the origin depends on (equation 1)."""
        return jax.grad(self.cost_of)(jnp.zeros(self.targets.T.shape, self.targets.dtype))


@validate_arguments
def balancedness(weights: Weights) -> tuple[Array, ...]:
    """W_{l+1}^T W_{l+1} - W_l W_l^T for l = 1..L-1, each (n_l, n_l): 0 where layers l and l+1 are balanced.

    Gradient flow of a deep linear network conserves them; with ReLU only their diagonals (section 5, hypothesis 3).

    Raises:
        InputError: weights that do not follow one another.
    """
    require_chain(weights, stacked=False)
    return tuple(upper.T @ upper - lower @ lower.T for lower, upper in itertools.pairwise(weights))


@validate_arguments
def weak_balancedness(weights: Weights) -> tuple[Array, ...]:
    """The diagonals of `balancedness`, each (n_l,), conserved by gradient flow with ReLU, too.

    Entry i is the squared norm of what goes out of neuron i less that of what comes in.

    Raises:
        InputError: weights that do not follow one another.
    """
    require_chain(weights, stacked=False)
    return tuple(jnp.sum(upper**2, axis=0) - jnp.sum(lower**2, axis=1) for lower, upper in itertools.pairwise(weights))

"""Multilayer perceptrons in PyTorch's conventions that learn the identity map, reduced to the span of their samples.

    f(x)    W_L h_{L-1} + b_L with h_l = act(W_l h_{l-1} + b_l), h_0 = x; act(z) = z or max(z, 0); any depth L >= 1
    R       directions (d, s), orthonormal columns, whose span holds all samples: x = R z, with coordinates z (s,)
    V       W_1 R, (n_1, s): the part of the first weight that acts on samples in the span
    M       second moment of (z, 1), (s + 1, s + 1), of a minibatch or of all samples

Two identities, both exact, make stochastic gradient descent cheap on such data. The gradient with respect to W_1 is
that with respect to V times R^T, so W_1 R moves as V would, with the same learning rate, and the remainder of W_1 is
constant: `weights_in_span` drops it, `weights_from_span` restores it. In a linear network a minibatch enters loss and
gradient through M alone: layer l is an affine map, whose s + 1 columns are propagated in place of the samples.

Two conventions of the loss are in use; see `saddlescope.models.concepts.networks`:

    sum over dimensions     sum_i |f(x_i) - x_i|^2 / (2 n), equation 2.1 of Yang, Park, Lubana, Okawa, Hu and Tanaka
                            (2024), "Dynamics of concept learning and compositional generalization"
    mean over dimensions    2/d times it, the mean squared error of deep-learning libraries
"""

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line
from saddlescope.loss.abstract_loss import AbstractLoss


class PerceptronWeights(NamedTuple):
    """Parameters of a perceptron, or of many along a leading axis.

    Attributes:
        weights: W_1, ..., W_L, (n_l, n_{l-1}); where the network is reduced to a span, W_1 is V.
        biases: b_1, ..., b_L, (n_l,); empty for a network without biases.
    """

    weights: tuple[Float[Any, "..."], ...]
    biases: tuple[Float[Any, "..."], ...] = ()

    def __repr__(self) -> str:
        return in_line("PerceptronWeights", self._asdict().items())


@validate_arguments
def perceptron_weights(
    widths: Sequence[int], *, seed: int, num_starts: int | None = None, bias: bool = True, dtype: Any = None
) -> PerceptronWeights:
    """Draw PyTorch's default initialisation: weights and biases of layer l uniform in +-1/sqrt(n_{l-1}).

    Args:
        widths: n_0, ..., n_L; two of them are a one-layer network.
        seed: of the draw.
        num_starts: number of networks, along a leading axis: network r has seed + r; None: one, without that axis.
        bias: False for a network without biases.
        dtype: by default JAX's own, float64 under `jax.enable_x64`.

    Raises:
        InputError: fewer than two widths, a width or number of starts below 1, or a negative seed.
    """
    if len(widths) < 2:
        raise InputError(f"widths must be n_0, ..., n_L with a depth L of at least 1; got {tuple(widths)!r}.")
    if min(widths) < 1:
        raise InputError(f"widths must be at least 1; got {tuple(widths)!r}.")
    for name, value, least in (("seed", seed, 0), ("num_starts", 1 if num_starts is None else num_starts, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    kind = jnp.result_type(float) if dtype is None else dtype
    weights, biases = [], []
    seeds = range(seed, seed + (1 if num_starts is None else num_starts))
    for n, (into, out) in enumerate(itertools.pairwise(widths)):
        # Separate streams, since the same seed may also draw samples, rotations and minibatches.
        streams = [np.random.default_rng(np.random.SeedSequence(one, spawn_key=(n,))) for one in seeds]
        drawn = np.stack([stream.uniform(-1, 1, (out, into + 1)) for stream in streams]) * into**-0.5
        drawn = drawn[0] if num_starts is None else drawn
        weights.append(on_device(drawn[..., :into], kind))
        biases.append(on_device(drawn[..., into], kind))
    return PerceptronWeights(tuple(weights), tuple(biases) if bias else ())


@validate_arguments
def weights_in_span(weights: PerceptronWeights, directions: Float[Any, "*runs d s"]) -> PerceptronWeights:
    """Restrict the network to samples in the span of the directions: its first weight becomes V = W_1 R, (n_1, s)."""
    first = weights.weights[0]
    return weights._replace(weights=(first @ directions.astype(first.dtype), *weights.weights[1:]))


@validate_arguments
def weights_from_span(
    reduced: PerceptronWeights, start: PerceptronWeights, directions: Float[Any, "*runs d s"]
) -> PerceptronWeights:
    """Return the network with its full first weight, after descent from `start` in the span.

    Args:
        reduced: result of descent from `weights_in_span(start, directions)`.
        start: the full network before descent.
        directions: R.
    """
    first = start.weights[0]
    R = directions.astype(first.dtype)
    moved = first + (reduced.weights[0] - first @ R) @ R.swapaxes(-1, -2)
    return reduced._replace(weights=(moved, *reduced.weights[1:]))


@validate_arguments
def perceptron_output(
    weights: PerceptronWeights, points: Float[Any, "n into"], *, relu: bool = False
) -> Float[Array, "n out"]:
    """Return the outputs at some points, one per row; a network reduced to a span takes their coordinates, (n, s)."""
    h = points
    for n, weight in enumerate(weights.weights):
        h = h @ weight.T
        h = h + weights.biases[n][None] if weights.biases else h
        h = jax.nn.relu(h) if relu and n + 1 < len(weights.weights) else h
    return h


class MomentLoss(AbstractLoss):
    """Loss of a linear perceptron on samples of which only the moments are stored.

    Attributes:
        moment: M, (s + 1, s + 1).
        directions: R, (d, s).
        mean_over_dimensions: False for equation 2.1; True for 2/d times it.
    """

    moment: Float[Array, "..."]
    directions: Float[Array, "..."]
    mean_over_dimensions: bool = eqx.field(static=True)

    def __call__(self, weights: PerceptronWeights) -> Float[Array, ""]:
        """Return the loss."""
        error, moment, unit = self._error(self._maps(weights)[-1], weights)
        return unit * jnp.sum((moment @ error) * error) / 2

    def value_and_gradient(self, weights: PerceptronWeights) -> tuple[Float[Array, ""], PerceptronWeights]:
        """Return the loss and its gradient; outer products are written as sums, which fuse with the descent step."""
        maps = self._maps(weights)
        error, moment, unit = self._error(maps[-1], weights)
        back = unit * (moment @ error)
        value = jnp.sum(back * error) / 2
        slopes, offsets = [], []
        for n in range(len(weights.weights) - 1, 0, -1):
            slopes.append(sum(back[k, :, None] * maps[n - 1][k, None, :] for k in range(len(back))))
            offsets.append(back[-1])
            back = back @ weights.weights[n]
        concepts = self.directions.shape[1]
        slopes.append(back[:concepts].T)
        offsets.append(back[-1])
        return value, PerceptronWeights(tuple(slopes[::-1]), tuple(offsets[::-1]) if weights.biases else ())

    def _maps(self, weights: PerceptronWeights) -> list[Array]:
        """Return the affine maps z -> h_l for l = 1..L: one row per coordinate of z, then the offset."""
        _require_shapes(weights, self.directions)
        first = weights.weights[0].T
        if not weights.biases:
            maps = [first]
            for weight in weights.weights[1:]:
                maps.append(maps[-1] @ weight.T)
            return maps
        maps = [jnp.concatenate([first, weights.biases[0][None]])]
        constant = jnp.zeros((len(maps[0]), 1), first.dtype).at[-1].set(1)
        for weight, bias in zip(weights.weights[1:], weights.biases[1:], strict=True):
            maps.append(maps[-1] @ weight.T + constant * bias[None])
        return maps

    def _error(self, found: Array, weights: PerceptronWeights) -> tuple[Array, Array, float]:
        """Return the error of the map, the moment that belongs to it, and the unit of the loss."""
        dim, concepts = self.directions.shape
        unit = 2 / dim if self.mean_over_dimensions else 1.0
        if not weights.biases:
            return found - self.directions.T, self.moment[:concepts, :concepts], unit
        return found - jnp.pad(self.directions.T, ((0, 1), (0, 0))), self.moment, unit


class LinearPerceptronLoss(AbstractLoss):
    """Loss of linear perceptrons, a mean over samples; a minibatch is a `MomentLoss`.

    Attributes:
        coordinates: z of the samples, (N, s).
        full_batch: the loss on all samples.
    """

    coordinates: Float[Array, "..."]
    full_batch: MomentLoss

    @property
    def samples(self) -> int:
        """Number of samples over which the loss is a mean."""
        return self.coordinates.shape[0]

    def batch(self, indices: Int[Array, "b"]) -> MomentLoss:
        """Return the loss on these samples only, a minibatch; may be called in compiled code."""
        return eqx.tree_at(lambda loss: loss.moment, self.full_batch, _moment(self.coordinates[indices]))

    def __call__(self, weights: PerceptronWeights) -> Float[Array, ""]:
        """Return the loss on all samples."""
        return self.full_batch(weights)

    def value_and_gradient(self, weights: PerceptronWeights) -> tuple[Float[Array, ""], PerceptronWeights]:
        """Return the loss on all samples and its gradient."""
        return self.full_batch.value_and_gradient(weights)

    def largest_learning_rate(self, weights: PerceptronWeights) -> float:
        """Return the learning rate above which no minimum is stable: 2 over a lower bound of the sharpness there.

        The sharpness is the largest eigenvalue of the Hessian. In the convention of equation 2.1 it is, at any minimum
        that fits all samples, at least

            L lambda_max(A)             in a network without biases, A = E[x x^T]
            max(1, L lambda_max(C))     with biases, C = E[x x^T] - E[x] E[x]^T
            lambda_max(M)               with one layer and biases, where it is the same everywhere

        and d/2 times smaller for the mean over dimensions. Proof. At such a minimum the Hessian is E[J^T J], J the
        Jacobian of f(x) in the parameters. Let u be the top unit eigenvector of A, lambda its eigenvalue,
        a_l = |W_{l+1}^T ... W_L^T u| and c_l = |W_{l-1} ... W_1 u|. Along the direction of unit length with

            dW_l ~ a_l c_l p_l q_l^T,   p_l = W_{l+1}^T ... W_L^T u / a_l,   q_l = W_{l-1} ... W_1 u / c_l,

        u.df is v.x with v.u = S, S^2 = sum_l a_l^2 c_l^2, and by Cauchy and Schwarz E[(v.x)^2] E[(u.x)^2] is at least
        (v.A u)^2 = (lambda S)^2, so the sharpness is at least lambda S^2. Now a_L = c_1 = 1 and
        a_l c_{l+1} >= u.W_L ... W_1 u = 1, since the network fits: the product of all a_l c_l is at least 1, and by
        the inequality of the means S^2 >= L. With biases the same with x - E[x] in place of x in the factor u.x gives
        C, and a change of b_L alone gives 1. Equality where all layers map u to itself, such as W_l = I.

        A network with a hidden layer narrower than s cannot fit the samples: then no bound is known; returns infinity.
        """
        dim, concepts = self.full_batch.directions.shape
        depth, moment = len(weights.weights), np.asarray(self.full_batch.moment, float)
        if any(weight.shape[-2] < concepts for weight in weights.weights[:-1]):
            return float("inf")
        second, mean = moment[:-1, :-1], moment[:-1, -1]
        if not weights.biases:
            sharpness = depth * np.linalg.eigvalsh(second)[-1]
        elif depth == 1:
            sharpness = np.linalg.eigvalsh(moment)[-1]
        else:
            sharpness = max(1.0, depth * np.linalg.eigvalsh(second - np.outer(mean, mean))[-1])
        return float(2 / sharpness * (dim / 2 if self.full_batch.mean_over_dimensions else 1))


class ReluPerceptronLoss(AbstractLoss):
    """Loss of perceptrons with ReLU between their layers, a mean over samples, with minibatches.

    Attributes:
        coordinates: z of the samples, (N, s).
        directions: R, (d, s).
        mean_over_dimensions: False for equation 2.1; True for 2/d times it.
    """

    coordinates: Float[Array, "..."]
    directions: Float[Array, "..."]
    mean_over_dimensions: bool = eqx.field(static=True)

    @property
    def samples(self) -> int:
        """Number of samples over which the loss is a mean."""
        return self.coordinates.shape[0]

    def batch(self, indices: Int[Array, "b"]) -> "ReluPerceptronLoss":
        """Return the loss on these samples only, a minibatch; may be called in compiled code."""
        return eqx.tree_at(lambda loss: loss.coordinates, self, self.coordinates[indices])

    def __call__(self, weights: PerceptronWeights) -> Float[Array, ""]:
        """Return the loss."""
        _require_shapes(weights, self.directions)
        error = perceptron_output(weights, self.coordinates, relu=True) - self.coordinates @ self.directions.T
        unit = 2 / self.directions.shape[0] if self.mean_over_dimensions else 1.0
        return unit * jnp.sum(error**2) / (2 * self.samples)


PerceptronLoss = LinearPerceptronLoss | ReluPerceptronLoss


@overload
def perceptron_loss(
    inputs: ArrayLike,
    directions: ArrayLike | None = None,
    *,
    relu: Literal[False] = False,
    mean_over_dimensions: bool = False,
    dtype: Any = None,
) -> LinearPerceptronLoss: ...


@overload
def perceptron_loss(
    inputs: ArrayLike,
    directions: ArrayLike | None = None,
    *,
    relu: bool,
    mean_over_dimensions: bool = False,
    dtype: Any = None,
) -> PerceptronLoss: ...


@validate_arguments
def perceptron_loss(
    inputs: ArrayLike,
    directions: ArrayLike | None = None,
    *,
    relu: bool = False,
    mean_over_dimensions: bool = False,
    dtype: Any = None,
) -> PerceptronLoss:
    """Return the loss of perceptrons that learn to map samples to themselves.

    Args:
        inputs: X, (N, d), one sample per row, as `StructuredIdentityTask.draw` returns them.
        directions: R, (d, s): the loss then takes weights of `weights_in_span`; None: full weights.
        relu: True for ReLU between the layers.
        mean_over_dimensions: False for equation 2.1; True for 2/d times it.
        dtype: of the data, which must be that of the weights; by default JAX's own.

    Raises:
        InputError: inputs that are not a finite matrix with at least one row, directions that are not orthonormal, or
            inputs outside their span.
    """
    X = np.asarray(inputs, float)
    if X.ndim != 2 or X.size == 0:
        raise InputError(f"inputs must have shape (N, d), not empty; got {X.shape!r}.")
    if not np.all(np.isfinite(X)):
        raise InputError(f"inputs must be finite; got {int(np.sum(~np.isfinite(X)))!r} entries that are not.")
    R = np.eye(X.shape[1]) if directions is None else np.array(directions, float)
    if R.ndim != 2 or R.shape[0] != X.shape[1] or R.shape[1] == 0:
        raise InputError(f"directions must have shape (d, s) with d = {X.shape[1]!r}; got {R.shape!r}.")
    if not np.all(np.abs(R.T @ R - np.eye(R.shape[1])) <= 1e-8):
        error = float(np.max(np.abs(R.T @ R - np.eye(R.shape[1]))))
        raise InputError(
            f"directions must have orthonormal columns; got R^T R off the identity by {error:.1e}. "
            "Take columns of an orthogonal matrix."
        )
    Z, along = X @ R, np.random.default_rng(0).standard_normal(len(R))
    off = float(np.max(np.abs(X @ along - Z @ (R.T @ along))))  # a part outside the span projects onto any line
    if off > 1e-8 * float(np.max(np.abs(X))):
        raise InputError(f"inputs must be in the span of directions; got some that are off by about {off:.3g}.")
    kind = jnp.result_type(float) if dtype is None else dtype
    coordinates, columns = on_device(Z, kind), on_device(R, kind)
    if relu:
        return ReluPerceptronLoss(coordinates, columns, mean_over_dimensions)
    extended = np.concatenate([Z, np.ones((len(Z), 1))], axis=1)
    moment = on_device(extended.T @ extended / len(Z), kind)
    return LinearPerceptronLoss(coordinates, MomentLoss(moment, columns, mean_over_dimensions))


def _require_shapes(weights: PerceptronWeights, directions: Float[Array, "d s"]) -> None:
    """Raise InputError unless the network matches the samples.

    Raises:
        InputError: the first weight is not reduced to their span, or the outputs have another dimension.
    """
    (into, out), (dim, concepts) = (weights.weights[0].shape[-1], weights.weights[-1].shape[-2]), directions.shape
    if into != concepts or out != dim:
        raise InputError(
            f"weights must map {concepts!r} coordinates to {dim!r} outputs; got some that map {into!r} to {out!r}. "
            "Reduce the first with weights_in_span(weights, directions), or call perceptron_loss without directions."
        )


def _moment(coordinates: Float[Array, "b s"]) -> Float[Array, "size size"]:
    """Return M of a minibatch."""
    extended = jnp.pad(coordinates, ((0, 0), (0, 1)), constant_values=1)
    return extended.T @ extended / coordinates.shape[0]

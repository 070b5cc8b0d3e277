"""Compiled heavy-ball descent of many networks at once on the localised loss and the sphere |theta|^2 = L.

One step, with g the gradient of L_0 at theta, s = -<g, theta> / L and n = |g| / sqrt(L):

    M      <- 0.9 M - (g + s theta) / n        the velocity, less its part along theta
    theta  <- theta + e M                      rescaled to the sphere

Divided by n, a step does not depend on the scale of X or G, nor on the depth, at which gradients at random weights
shrink geometrically. At the optimum some preactivations vanish (the localised loss has kinks there), and a constant e
would oscillate about it: e decays geometrically.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.progress import Report, silent

MOMENTUM = 0.9
DECAY = 1e-6  # of the step e from the first to the last
IN_CACHE = 8192  # weights of the widest layer in one batch: beyond it steps wait for memory

Stacked = tuple[Float[np.ndarray, "starts _ _"], ...]
LearningRate = float | Callable[[Array], Array]


def sphere_descent(
    weights: Stacked,
    inputs: Float[np.ndarray, "n into"],
    gradients: Float[np.ndarray, "n out"],
    *,
    steps: int,
    learning_rate: LearningRate,
    record: Int[np.ndarray, "records"],
    report: Report = silent,
) -> tuple[Stacked, Float[np.ndarray, "starts records"]]:
    """Follow each network for `steps` steps.

    Neurons without weights, in and out, stay so: the derivative of ReLU at 0 is taken to be 0. So networks of several
    widths can be stacked, padded with zeros.

    Args:
        weights: W_1, ..., W_L, each (starts, n_l, n_{l-1}), no network 0.
        inputs: X, not 0, a row per sample.
        gradients: G, not 0, a row per sample.
        steps: number of steps.
        learning_rate: e at the first step, which decays geometrically by a factor `DECAY` over the descent; or a
            schedule, from the step 0, 1, ... to e.
        record: numbers of steps after which speeds are recorded, increasing, from 1 to `steps`.
        report: called with the finished fraction after each batch of networks.

    Returns:
        The weights, on the sphere, and the recorded speeds.
    """
    scale = float(np.linalg.norm(inputs) * np.linalg.norm(gradients))
    X, G = inputs.T / np.linalg.norm(inputs), gradients.T / np.linalg.norm(gradients)
    starts, widest = len(weights[0]), max(weight[0].size for weight in weights)
    size = int(np.clip(IN_CACHE // widest, 1, min(32, starts)))
    count = -(-starts // size)  # all batches of one size, so that one compilation serves
    padded = tuple(np.concatenate([weight, weight[:1].repeat(count * size - starts, 0)]) for weight in weights)
    stops = np.union1d(record, [steps])
    descended, speeds = [], []
    with jax.enable_x64(True):
        rates = jnp.asarray(_rates(learning_rate, steps))
        for n in range(count):
            batch = tuple(jnp.asarray(weight[n * size : (n + 1) * size]) for weight in padded)
            found, curves = _descend(batch, jnp.asarray(X), jnp.asarray(G), rates, jnp.asarray(stops))
            descended.append([np.asarray(weight) for weight in found])
            speeds.append(np.asarray(curves))
            report((n + 1) / count, f"descent, {min((n + 1) * size, starts)} of {starts} starts")
    stacked = tuple(np.concatenate(layer)[:starts] for layer in zip(*descended, strict=True))
    return stacked, scale * np.concatenate(speeds)[:starts, np.isin(stops, record)]


def _rates(learning_rate: LearningRate, steps: int) -> Float[np.ndarray, "steps"]:
    if callable(learning_rate):
        return np.broadcast_to(np.asarray(jax.vmap(learning_rate)(jnp.arange(steps)), float), steps)
    return learning_rate * DECAY ** (np.arange(steps) / steps)


@jax.jit
def _descend(
    batch: tuple[Array, ...], X: Array, G: Array, rates: Array, stops: Array
) -> tuple[tuple[Array, ...], Array]:
    return jax.vmap(partial(_one, X=X, G=G, rates=rates, stops=stops))(batch)


def _one(
    weights: tuple[Array, ...], *, X: Array, G: Array, rates: Array, stops: Array
) -> tuple[tuple[Array, ...], Array]:
    """Descend with one network; the norm is restored exactly at each of the stops."""
    depth = len(weights)

    def step(k, state):
        theta, velocity, radial = state  # radial: <velocity, theta> / L, which the last step left
        rate = rates[k]
        loss, g = jax.value_and_grad(_localised_loss)(theta, X, G)
        norm = jnp.sqrt(_square(g) / depth)
        inverse = jnp.where(norm > 0, 1 / norm, 0.0)
        along = MOMENTUM * radial - loss * inverse
        velocity = tuple(
            MOMENTUM * m - inverse * slope - along * t for m, slope, t in zip(velocity, g, theta, strict=True)
        )
        square = _square(velocity) / depth
        shrink = jax.lax.rsqrt(1 + rate**2 * square)  # |theta + e M|^2 = L + e^2 |M|^2, since <M, theta> = 0
        theta = tuple(shrink * (t + rate * m) for t, m in zip(theta, velocity, strict=True))
        return theta, velocity, shrink * rate * square

    def until(state, bounds):
        theta, velocity, radial = jax.lax.fori_loop(bounds[0], bounds[1], step, state)
        theta = _on_sphere(theta)
        return (theta, velocity, radial), -_localised_loss(theta, X, G)

    start = (_on_sphere(weights), tuple(jnp.zeros_like(weight) for weight in weights), jnp.zeros((), X.dtype))
    (theta, _, _), speeds = jax.lax.scan(until, start, (jnp.append(0, stops[:-1]), stops))
    return theta, speeds


def _localised_loss(weights: tuple[Array, ...], X: Array, G: Array) -> Array:
    """Return L_0 = Tr[G^T Y_theta(X)]."""
    hidden = X
    for weight in weights[:-1]:
        hidden = jax.nn.relu(weight @ hidden)
    return jnp.sum(G * (weights[-1] @ hidden))


def _square(arrays: tuple[Array, ...]) -> Array:
    return sum((jnp.sum(array * array) for array in arrays), jnp.zeros((), arrays[0].dtype))


def _on_sphere(weights: tuple[Array, ...]) -> tuple[Array, ...]:
    factor = jnp.sqrt(len(weights) / _square(weights))
    return tuple(factor * weight for weight in weights)

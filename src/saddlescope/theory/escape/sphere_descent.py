"""Many networks at once down the localised loss on the sphere |theta|^2 = L: heavy ball, free of scale, compiled.

One step, with g the gradient of L_0 at theta, s = -<g, theta> / L and n = |g| / sqrt(L):

    M      <- 0.9 M - (g + s theta) / n        the velocity, less its part along theta
    theta  <- theta + e M                      brought back to the sphere

Divided by n, a step does not depend on the scale of X or G, nor on the depth, at which gradients at random weights
shrink geometrically. The optimum lies where preactivations vanish (the localised loss has kinks there), so that a
constant e would chatter about it: e decays geometrically.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MOMENTUM = 0.9
DECAY = 1e-6  # of the step e from the first to the last
IN_CACHE = 8192  # weights of the widest layer in one batch: beyond it steps wait for memory

Stacked = tuple[Float[np.ndarray, "starts _ _"], ...]


def sphere_descent(
    weights: Stacked,
    inputs: Float[np.ndarray, "into n"],
    gradients: Float[np.ndarray, "out n"],
    *,
    steps: int,
    rate: float,
    marks: int,
) -> tuple[Stacked, Float[np.ndarray, "starts marks"]]:
    """Follows each network for `steps` steps.

    Neurons without weights, in and out, stay so: the derivative of ReLU at 0 is taken to be 0. So networks of several
    widths can be stacked, padded with zeros.

    Args:
        weights: W_1, ..., W_L, each (starts, n_l, n_{l-1}), no network 0.
        inputs: X, not 0.
        gradients: G, not 0.
        steps: a multiple of `marks`.
        rate: e at the first step.
        marks: how many speeds to record of each network, evenly spaced; the last one after the last step.

    Returns:
        The weights, on the sphere, and the recorded speeds.
    """
    scale = float(np.linalg.norm(inputs) * np.linalg.norm(gradients))
    X, G = inputs / np.linalg.norm(inputs), gradients / np.linalg.norm(gradients)
    starts, widest = len(weights[0]), max(weight[0].size for weight in weights)
    batch = int(np.clip(IN_CACHE // widest, 1, min(32, starts)))
    whole = -(-starts // batch) * batch  # all batches alike, so that one compilation serves
    stacked = tuple(np.concatenate([weight, weight[:1].repeat(whole - starts, 0)]) for weight in weights)
    rates = (rate * DECAY ** (np.arange(steps) / steps)).reshape(marks, steps // marks)
    with jax.enable_x64(True):
        batches = tuple(jnp.asarray(weight.reshape(-1, batch, *weight.shape[1:])) for weight in stacked)
        found, speeds = _descend(batches, jnp.asarray(X), jnp.asarray(G), jnp.asarray(rates))
        flat = tuple(np.asarray(weight).reshape(whole, *weight.shape[2:])[:starts] for weight in found)
        return flat, scale * np.asarray(speeds).reshape(whole, marks)[:starts]


@jax.jit
def _descend(batches: tuple[Array, ...], X: Array, G: Array, rates: Array) -> tuple[tuple[Array, ...], Array]:
    one = jax.vmap(partial(_one, X=X, G=G, rates=rates))
    return jax.lax.map(one, batches)


def _one(weights: tuple[Array, ...], *, X: Array, G: Array, rates: Array) -> tuple[tuple[Array, ...], Array]:
    """One network: the outer loop is over marks, where the norm is restored exactly."""
    depth = len(weights)

    def step(state, rate):
        theta, velocity, radial = state  # radial: <velocity, theta> / L, which the last step left
        speed, g = _speed_and_gradient(theta, X, G)
        norm = jnp.sqrt(_square(g) / depth)
        inverse = jnp.where(norm > 0, 1 / norm, 0.0)
        along = speed * inverse + MOMENTUM * radial
        velocity = tuple(
            MOMENTUM * m - inverse * slope - along * t for m, slope, t in zip(velocity, g, theta, strict=True)
        )
        square = _square(velocity) / depth
        shrink = jax.lax.rsqrt(1 + rate**2 * square)  # |theta + e M|^2 = L + e^2 |M|^2, since <M, theta> = 0
        theta = tuple(shrink * (t + rate * m) for t, m in zip(theta, velocity, strict=True))
        return (theta, velocity, shrink * rate * square), None

    def stretch(state, some):
        (theta, velocity, radial), _ = jax.lax.scan(step, state, some)
        theta = _on_sphere(theta)
        return (theta, velocity, radial), _speed_and_gradient(theta, X, G)[0]

    still = tuple(jnp.zeros_like(weight) for weight in weights)
    (theta, _, _), speeds = jax.lax.scan(stretch, (_on_sphere(weights), still, jnp.zeros((), X.dtype)), rates)
    return theta, speeds


def _speed_and_gradient(weights: tuple[Array, ...], X: Array, G: Array) -> tuple[Array, tuple[Array, ...]]:
    """-L_0 and the gradient of L_0, by hand: no pass over the weights is needed for the speed."""
    active, hidden = [], [X]
    for weight in weights[:-1]:
        z = weight @ hidden[-1]
        active.append(z > 0)
        hidden.append(jnp.where(active[-1], z, 0.0))
    speed = -jnp.sum(G * (weights[-1] @ hidden[-1]))
    backward, slopes = G, []
    for layer in reversed(range(len(weights))):
        slopes.append(backward @ hidden[layer].T)
        if layer:
            backward = jnp.where(active[layer - 1], weights[layer].T @ backward, 0.0)
    return speed, tuple(reversed(slopes))


def _square(arrays: tuple[Array, ...]) -> Array:
    return sum((jnp.sum(array * array) for array in arrays), jnp.zeros((), arrays[0].dtype))


def _on_sphere(weights: tuple[Array, ...]) -> tuple[Array, ...]:
    factor = jnp.sqrt(len(weights) / _square(weights))
    return tuple(factor * weight for weight in weights)

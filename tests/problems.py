"""Problems shared by several tests."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

# flow, theory: a diagonal linear network whose coordinate 0 enters with sign +1, leaves when coordinate 1 enters, and
# returns with sign -1; the teacher is the only minimum. Found by search over small integers.
RETURNING_FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))
RETURNING_TEACHER = (-1.0, -2.0, -2.0)
RETURNING_LAST_SADDLE = (0.0, -7 / 12, -25 / 12)  # where coordinate 0 must return; a flow that lost it ends here


LOG10 = float(np.log(10))


# flow: independent coordinates, whose flows have closed forms
class Separate(eqx.Module):
    """Half the squared distance to b, coordinates weighted by a: independent flows with g = a (b - beta)."""

    a: jax.Array
    b: jax.Array

    def __call__(self, beta):
        return 0.5 * jnp.sum(self.a * (self.b - beta) ** 2)


# theory, flow: units; one function for each activation, thus compiled once
@cache
def neuron(activation):
    return lambda theta, x: theta["a"] * activation(theta["w"] @ x)


def product(theta, x):
    """A coordinate of a diagonal network, as deep as there are weights."""
    return jnp.prod(theta) * x


def product_of_kind(theta, x, kind):
    return jnp.prod(theta) * x[kind]


def tilting(theta, x):
    """The outputs p = a^3 and q = a^2 b."""
    return theta[0] ** 2 * theta * x


def two_sided(output, target):
    """A loss with a saddle at (1, 0), of loss 0, and minima at q = 2 and q = -1, of loss -8/3 and -5/12."""
    p, q = output
    return (p - target) ** 2 / 2 + q**4 / 4 - q**3 / 3 - q**2


def one_frequency(modulus=5):
    """Return a + b of all pairs in the encoding by one frequency, for quadratic neurons."""
    angle = 2 * np.pi * np.arange(modulus) / modulus
    code = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    a, b = np.divmod(np.arange(modulus**2), modulus)
    return np.stack([code[a], code[b]], axis=1), code[(a + b) % modulus]


def eight_units(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((8, 2)) for name in "uvw"}


# theory, flow: half the squared distance of the only product from a target, compiled once for all targets of a shape
def half_distance(target, products):
    return jnp.sum((products[0] - target) ** 2) / 2


def fit(target):
    return Partial(half_distance, jnp.asarray(target))


# theory: a loss with many minima, so that where a transition ends depends on the path
class Bumpy(eqx.Module):
    """Loss (beta - centre)^T A (beta - centre) / 2 + sum_m height_m cos(waves_m . beta + phase_m)."""

    A: jax.Array
    centre: jax.Array
    height: jax.Array
    waves: jax.Array
    phase: jax.Array

    def __call__(self, beta):
        away = beta - self.centre
        return 0.5 * away @ self.A @ away + jnp.sum(self.height * jnp.cos(self.waves @ beta + self.phase))


def bumpy(seed, size=3, bumps=4):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size))
    return Bumpy(
        A=jnp.asarray(root @ root.T / size + 0.1 * np.eye(size)),
        centre=jnp.asarray(3 * rng.standard_normal(size)),
        height=jnp.asarray(rng.uniform(0.2, 1.5, bumps)),
        waves=jnp.asarray(1.5 * rng.standard_normal((bumps, size))),
        phase=jnp.asarray(rng.uniform(0, 2 * np.pi, bumps)),
    )


# theory: the data of Example 1 of Bantzis, Simon and Jacot (2025), which has 8 samples
def alternating_circle(samples):
    angle = 2 * np.pi * np.arange(1, samples + 1) / samples
    return np.stack([np.sin(angle), np.cos(angle)]).T, np.where(np.arange(samples) % 2, 1.0, -1.0)[:, None]


CIRCLE_OPTIMUM = (  # of 8 samples
    np.array([[1, 0], [0, 1], [-1, 0], [0, -1.0]]) / 2,
    np.array([[1, -1, 1, -1.0]]) / 2,
    np.array([[-1.0]]),  # the paper prints 1, which has speed -1/2
)


# measure: factors of products, as of attention heads
def product_factors(relative, dtype="float64", *, seed=0, batch=(2,), d=40, d2=36, h=6, rank=None):
    """Return (L, R, L0, R0): random weights before and after a random update (of low rank if `rank` is given)."""
    draw = np.random.default_rng(seed).standard_normal
    after, before = [], []
    for rows in (d, d2):
        step = draw((*batch, rows, h)) if rank is None else draw((*batch, rows, rank)) @ draw((*batch, rank, h))
        before.append(draw((*batch, rows, h)).astype(dtype))
        after.append((before[-1] + relative * step).astype(dtype))
    return [*after, *before]

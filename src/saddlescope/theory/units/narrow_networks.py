"""Training of narrow networks from small weights until the first of them leaves a plateau.

Several networks of one width follow gradient flow side by side, each from its own weights:

    theta_i' = -dL/dtheta_i,   theta_i(0) = alpha w_i

Small units do not influence each other. A wide network that has all these units therefore leaves the plateau as the
narrow network does that leaves it first. An explicit solver is enough: it stops before the narrow network has learned.

Where the unit is a quadratic form of its weights, its flow is linear, theta' = H theta, with H the Hessian of the
unit's share of -L. Components that no H couples, such as u + v and u - v of a coordinate u v of a diagonal network, are
followed one by one: one that shrinks while another grows would be lost to rounding in the weights, and may be the next
to grow.
"""

import math
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.compiled_functions import inlined, quickly_compiled
from saddlescope.theory.units.unit_network import UnitNetwork
from saddlescope.theory.units.unit_system import UnitSystem

_TOLERANCE = 1e-6  # relative error of a step; absolute for weights of a thousandth of alpha
_EQUAL = 1e-4  # relative difference of falls of the loss that may be an error of the solver
_LONGEST = 20.0  # units that take this many times as long as the fastest possible one are not waited for
_MAX_STEPS = 1_000_000
_RESIDUALS = 3  # random residuals for which components are coupled or not
_ROUNDING = 1e-15  # sum of products, relative to their sizes, that is rounding
_UNCOUPLED = 1e-13  # entry of H, relative to the largest, that is rounding


@dataclass(frozen=True, eq=False)
class Departure:
    """The narrow networks that leave a plateau first.

    Attributes:
        networks: number of the first one, and of all that leave with it but for the error of the solver, shape (t,).
        time: when they do, in the time of the flow.
        thetas: their weights then, shape (t, m, p).
    """

    networks: Int[np.ndarray, "t"]
    time: float
    thetas: Float[np.ndarray, "t m p"]


def first_departure(
    network: UnitNetwork,
    starts: Float[np.ndarray, "s m p"],
    kinds: Int[np.ndarray, "s m"],
    *,
    log_scale: float,
    log_norm: float,
    level: float,
    plateau: float,
    before: float,
    rate: float,
    preferred: int | None,
) -> Departure | None:
    """Return the networks whose loss falls below a level first; None if none does.

    Args:
        network: unit, data and loss.
        starts: initial weights of each network before they are scaled by alpha; units with zero weights are absent.
        kinds: kinds of the units.
        log_scale: log(alpha).
        log_norm: of the norm at which units learn.
        level: the loss.
        plateau: loss of the plateau.
        before: time at which the plateau began.
        rate: of the fastest new unit at norm 1 that could leave it.
        preferred: network that is returned alone if it is among those that leave in one step.
    """
    thetas = jnp.asarray(starts * math.exp(log_scale))
    power = network.degree - 2
    growth = log_norm - log_scale if power == 0 else math.exp(-power * log_scale) / power
    until = before + _LONGEST * growth / rate
    scalars = (jnp.asarray(each, float) for each in (level, math.exp(log_scale), until))
    bases = _bases(network.system) if network.quadratic else None
    if bases is not None and (np.asarray(bases.vectors) == np.eye(network.size)).all():
        bases = None  # nothing is gained, and gradients are cheaper than H
    ends, losses, time = _followed(network.system, bases, thetas, jnp.asarray(kinds), *scalars)
    falls = plateau - np.where(np.isfinite(losses), losses, np.inf)
    first = int(np.argmax(falls))
    if not float(losses[first]) < level:
        return None
    if preferred is not None and float(losses[preferred]) < level:
        networks = np.array([preferred])
    else:
        order = np.argsort(-falls, kind="stable")
        networks = order[falls[order] >= (1 - _EQUAL) * falls[first]]
    return Departure(networks, float(time), np.array(ends)[networks])


class _Bases(eqx.Module):
    """Components in which the weights of a quadratic unit are followed.

    Attributes:
        vectors: orthonormal bases in columns, one per kind.
        coupled: 1 for components that some H couples, otherwise 0.
    """

    vectors: Float[Array, "kinds p p"]
    coupled: Float[Array, "kinds p p"]


@quickly_compiled
def _bases(system: UnitSystem) -> _Bases:
    """Return bases: eigenvectors of H for a random residual where they couple less than the weights do."""
    size = system.layout.size
    shape = jax.eval_shape(system.output, jnp.zeros(size), jnp.asarray(0)).shape
    residuals = jax.random.normal(jax.random.key(0), (_RESIDUALS, *shape))
    forms = jax.vmap(lambda residual: _forms(system, residual))(residuals)
    weights = jnp.broadcast_to(jnp.eye(size), forms.shape[1:])
    bases = [_Bases(vectors, _coupled(_within(vectors, forms))) for vectors in (weights, jnp.linalg.eigh(forms[0])[1])]
    pairs = [basis.coupled.sum(axis=(1, 2)) - jnp.trace(basis.coupled, axis1=1, axis2=2) for basis in bases]
    fewer = (pairs[1] < pairs[0])[:, None, None]
    return jax.tree.map(lambda first, second: jnp.where(fewer, second, first), *bases)


def _coupled(forms: Array) -> Array:
    """Return 1 for entries that are not rounding in one of several H of each kind."""
    sizes = jnp.abs(forms)
    return jnp.asarray(sizes > _UNCOUPLED * sizes.max(axis=(-2, -1), keepdims=True), float).max(axis=0)


def _forms(system: UnitSystem, residual: Array) -> Array:
    """Return H of each kind of unit, shape (kinds, p, p)."""
    share = lambda theta, kind: jnp.sum(system.output(theta, kind) * residual)  # noqa: E731
    return jax.vmap(lambda kind: jax.hessian(share)(jnp.zeros(system.layout.size), kind))(jnp.arange(system.kinds))


def _within(vectors: Array, forms: Array) -> Array:
    return jnp.swapaxes(vectors, -2, -1) @ forms @ vectors


@quickly_compiled
def _followed(
    system: UnitSystem, bases: _Bases | None, starts: Array, kinds: Array, level: Array, alpha: Array, last: Array
) -> tuple[Array, Array, Array]:
    """Return weights and losses of all networks, and the time, when the loss of the first falls below the level."""
    absent = jnp.all(starts == 0, axis=-1)
    losses_of = jax.vmap(system.loss_of)
    if bases is not None:
        vectors, sizes = bases.vectors[kinds], jnp.abs(starts)
        starts = jnp.einsum("smpc,smp->smc", vectors, starts)
        rounding = _ROUNDING * jnp.einsum("smpc,smp->smc", jnp.abs(vectors), sizes)
        starts = jnp.where(jnp.abs(starts) > rounding, starts, 0.0)

    def weights(state: Array) -> Array:
        return state if bases is None else jnp.einsum("smpc,smc->smp", bases.vectors[kinds], state)

    def of_forms(thetas: Array, kinds: Array, state: Array) -> Array:
        assert bases is not None
        residual = -jax.grad(system.loss_of_outputs)(system.network(thetas, kinds))
        forms = bases.coupled * _within(bases.vectors, _forms(system, residual))
        return jnp.einsum("mcd,md->mc", forms[kinds], state)

    def slope(t: Any, state: Array, args: Any) -> Array:
        if bases is None:
            found = -jax.vmap(jax.grad(system.loss_of))(state, kinds)
        else:
            found = jax.vmap(of_forms)(weights(state), kinds, state)
        return jnp.where(absent[..., None], 0.0, found)

    def ended(t: Any, state: Array, args: Any, **_: object) -> Array:
        losses = losses_of(weights(state), kinds)
        return jnp.any(losses < level) | jnp.any(jnp.isnan(losses))

    solution = inlined(diffrax.diffeqsolve)(
        diffrax.ODETerm(slope),
        diffrax.Tsit5(),
        t0=0.0,
        t1=last,
        dt0=None,
        y0=starts,
        stepsize_controller=diffrax.PIDController(rtol=_TOLERANCE, atol=1e-3 * _TOLERANCE * alpha),
        event=diffrax.Event(ended),
        adjoint=diffrax.ForwardMode(),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    assert solution.ts is not None
    thetas = weights(solution.ys[0])
    return thetas, losses_of(thetas, kinds), solution.ts[0]

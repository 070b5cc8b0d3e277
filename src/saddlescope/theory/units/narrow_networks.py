"""Training of narrow networks from small weights until the first of them leaves a plateau.

Several networks of one width follow gradient flow side by side, each from its own weights:

    theta_i' = -dL/dtheta_i,   theta_i(0) = alpha w_i

Small units do not influence each other. A wide network that has all these units therefore leaves the plateau as the
narrow network does that leaves it first. An explicit solver is enough: it stops before the narrow network has learned.
"""

import math
from dataclasses import dataclass
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.compiled_functions import compiled
from saddlescope.theory.units.unit_network import UnitNetwork, UnitSystem

_TOLERANCE = 1e-6  # relative error of a step; absolute for weights that are a thousandth of alpha
_SLOW = 1e-5  # rate, relative to the largest at the origin, below which a unit is stationary
_GONE = 1e-3  # norm, relative to alpha, below which a shrinking unit counts as stationary
_LONGEST = 20.0  # units that take this many times as long as the fastest possible one are not waited for
_MAX_STEPS = 1_000_000


@dataclass(frozen=True, eq=False)
class Departure:
    """The narrow network that leaves a plateau first.

    Attributes:
        network: its number.
        time: when it does, in the time of the flow.
        thetas: its weights then, shape (m, p).
    """

    network: int
    time: float
    thetas: Float[np.ndarray, "m p"]


def first_departure(
    network: UnitNetwork,
    starts: Float[np.ndarray, "s m p"],
    kinds: Int[np.ndarray, "s m"],
    *,
    log_scale: float,
    level: float,
    speed: float,
    before: float,
    rate: float,
) -> Departure | None:
    """Return the network whose loss falls below a level first; None if none does.

    Args:
        network: unit, data and loss.
        starts: initial weights of each network before they are scaled by alpha; units with zero weights are absent.
        kinds: kinds of the units.
        log_scale: log(alpha).
        level: the loss.
        speed: largest |grad U| at directions of norm 1, at the origin.
        before: time at which the plateau began.
        rate: of the fastest new unit at norm 1 that could leave it.
    """
    thetas = jnp.asarray(starts * math.exp(log_scale))
    power = network.degree - 2
    growth = -log_scale if power == 0 else math.exp(-power * log_scale) / power
    until = before + _LONGEST * growth / rate
    scalars = (jnp.asarray(each, float) for each in (level, speed, math.exp(log_scale), until))
    ends, losses, time = _followed(network.system, network.degree, thetas, jnp.asarray(kinds), *scalars)
    first = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    if not float(losses[first]) < level:
        return None
    return Departure(first, float(time), np.array(ends[first]))


@compiled
def _followed(
    system: UnitSystem,
    degree: float,
    starts: Array,
    kinds: Array,
    level: Array,
    speed: Array,
    alpha: Array,
    last: Array,
) -> tuple[Array, Array, Array]:
    """Return weights and losses of all networks, and the time, when the first falls below the level or all rest."""
    absent = jnp.all(starts == 0, axis=-1)
    value_and_grad = jax.vmap(jax.value_and_grad(system.loss_of))

    def slope(t: Any, thetas: Array, args: Any) -> Array:
        return jnp.where(absent[..., None], 0.0, -value_and_grad(thetas, kinds)[1])

    def ended(t: Any, thetas: Array, args: Any, **_: object) -> Array:
        losses, slopes = value_and_grad(thetas, kinds)
        norms = jnp.linalg.norm(thetas, axis=-1)
        slow = jnp.linalg.norm(slopes, axis=-1) <= _SLOW * speed * norms ** (degree - 1)
        gone = (norms < _GONE * alpha) & (jnp.sum(slopes * thetas, axis=-1) >= 0)
        return jnp.any(losses < level) | jnp.all(slow | gone | absent) | jnp.any(jnp.isnan(losses))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Tsit5(),
        t0=0.0,
        t1=last,
        dt0=None,
        y0=starts,
        stepsize_controller=diffrax.PIDController(rtol=_TOLERANCE, atol=_GONE * _TOLERANCE * alpha),
        event=diffrax.Event(ended),
        adjoint=diffrax.ForwardMode(),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    assert solution.ts is not None
    thetas = solution.ys[0]
    return thetas, value_and_grad(thetas, kinds)[0], solution.ts[0]

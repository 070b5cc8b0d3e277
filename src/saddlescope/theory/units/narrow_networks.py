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

from saddlescope._shared.compiled_functions import inlined, quickly_compiled
from saddlescope.theory.units.unit_network import UnitNetwork
from saddlescope.theory.units.unit_system import UnitSystem

_TOLERANCE = 1e-6  # relative error of a step; absolute for weights of a thousandth of alpha
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
    before: float,
    rate: float,
    preferred: int | None,
) -> Departure | None:
    """Return the network whose loss falls below a level first; None if none does.

    Args:
        network: unit, data and loss.
        starts: initial weights of each network before they are scaled by alpha; units with zero weights are absent.
        kinds: kinds of the units.
        log_scale: log(alpha).
        level: the loss.
        before: time at which the plateau began.
        rate: of the fastest new unit at norm 1 that could leave it.
        preferred: network that is returned if it is among those that leave in one step.
    """
    thetas = jnp.asarray(starts * math.exp(log_scale))
    power = network.degree - 2
    growth = -log_scale if power == 0 else math.exp(-power * log_scale) / power
    until = before + _LONGEST * growth / rate
    scalars = (jnp.asarray(each, float) for each in (level, math.exp(log_scale), until))
    ends, losses, time = _followed(network.system, thetas, jnp.asarray(kinds), *scalars)
    first = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    if not float(losses[first]) < level:
        return None
    if preferred is not None and float(losses[preferred]) < level:
        first = preferred
    return Departure(first, float(time), np.array(ends[first]))


@quickly_compiled
def _followed(
    system: UnitSystem, starts: Array, kinds: Array, level: Array, alpha: Array, last: Array
) -> tuple[Array, Array, Array]:
    """Return weights and losses of all networks, and the time, when the loss of the first falls below the level."""
    absent = jnp.all(starts == 0, axis=-1)
    losses_of = jax.vmap(system.loss_of)

    def slope(t: Any, thetas: Array, args: Any) -> Array:
        return jnp.where(absent[..., None], 0.0, -jax.vmap(jax.grad(system.loss_of))(thetas, kinds))

    def ended(t: Any, thetas: Array, args: Any, **_: object) -> Array:
        losses = losses_of(thetas, kinds)
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
    thetas = solution.ys[0]
    return thetas, losses_of(thetas, kinds), solution.ts[0]

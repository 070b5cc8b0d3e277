"""Checks of a unit and its loss: shapes and types, the degree at the origin, and whether it is a quadratic form.

    c theta    random weights of norm 1, scaled by c = 1, 2^-10 and 2^-11
    kappa      log2 of the ratio of two small outputs

All probes are one compiled call. What a wrong shape or type would break is checked while it is traced, thus once for
all calls with the same unit, loss and shapes.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope._shared.arguments import calling, shown
from saddlescope._shared.compiled_functions import quickly_compiled
from saddlescope._shared.errors import InputError
from saddlescope.loss.checks import require_float64_throughout
from saddlescope.theory.units.unit_system import UnitSystem

_EXACT = 1e-10  # relative difference of f(c theta) and c^kappa f(theta) that is rounding
_LEADING = 0.02  # largest difference of a measured degree from an integer, at a scale of 2^-10
LARGEST_DEGREE = 6
"""Degree up to which parts of units that are not homogeneous are computed."""
_PROBES = 16


class CheckedUnit(NamedTuple):
    """A unit that fits its data and its loss.

    Attributes:
        system: its functions; those of the leading part where the unit is not homogeneous.
        degree: kappa.
        homogeneous: True if the unit is homogeneous everywhere, not only at the origin.
        quadratic: True if the unit is a quadratic form of its weights.
        loss: L of the network without units.
        residual: r of it.
    """

    system: UnitSystem
    degree: float
    homogeneous: bool
    quadratic: bool
    loss: float
    residual: Array


def checked_unit(system: UnitSystem, seed: int) -> CheckedUnit:
    """Check a unit.

    Raises:
        InputError: unit, data and loss do not fit each other; the unit is not homogeneous of a degree of at least 2 at
            the origin; the loss is not smooth at output 0.
    """
    thetas, kinds = _probe_weights(system.layout.size, system.kinds, seed)
    found = _probed(system, jnp.asarray(thetas), jnp.asarray(kinds))
    require_float64_throughout("unit and loss", system.loss_of, thetas, kinds)
    probes = _Probes(*map(np.asarray, found[:-2]))
    degree, homogeneous = _degree(probes)
    if not homogeneous:
        system = dataclasses.replace(system, taylor=round(degree))
        _check_leading(system, thetas, kinds)
    quadratic = homogeneous and degree == 2.0 and bool(np.all(probes.not_quadratic <= 1e-9))
    value, residual = found[-2:]
    if not (np.isfinite(value) and np.isfinite(residual).all()):
        raise InputError(
            f"loss must be finite with a finite gradient at output 0; got {float(value)!r}, and a gradient "
            f"with{'out' if np.isfinite(residual).all() else ''} NaN or infinite entries. Use a loss that is "
            "smooth at 0."
        )
    return CheckedUnit(system, degree, homogeneous, quadratic, float(value) + 0.0, residual)  # not -0


class _Probes(NamedTuple):
    """Measurements at the probes, shape (P,) each.

    Attributes:
        origin: largest |output| at zero weights; NaN if one is NaN.
        finite: True where the outputs at c = 1 and 2^-10 are.
        sizes, small, smaller: norms of the outputs at the three scales.
        ratio: kappa there.
        difference: |f(theta) - c^-kappa f(c theta)| at c = 2^-10.
        not_quadratic: relative violation of the parallelogram law with the next probe.
    """

    origin: Float[np.ndarray, ""]
    finite: np.ndarray
    sizes: Float[np.ndarray, "P"]
    small: Float[np.ndarray, "P"]
    smaller: Float[np.ndarray, "P"]
    ratio: Float[np.ndarray, "P"]
    difference: Float[np.ndarray, "P"]
    not_quadratic: Float[np.ndarray, "P"]


@quickly_compiled
def _probed(system: UnitSystem, thetas: Array, kinds: Array) -> tuple[Array, ...]:
    """Return the entries of `_Probes`, and L and r of the network without units."""
    _check_call(system)
    size = lambda outputs: jnp.linalg.norm(outputs.ravel())  # noqa: E731

    def measured(probe: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        theta, other, kind = probe
        at = jnp.stack([theta, 2.0**-10 * theta, 2.0**-11 * theta, other, theta + other, theta - other])
        one, small, smaller, another, plus, minus = jax.vmap(system.output, (0, None))(at, kind)
        ratio = jnp.log2(size(small) / size(smaller))
        both, apart = plus + minus, 2 * (one + another)
        largest = jnp.maximum(size(both), size(apart))
        return (
            jnp.isfinite(one).all() & jnp.isfinite(small).all(),
            size(one),
            size(small),
            size(smaller),
            ratio,
            size(one - 2.0 ** (10 * ratio) * small),
            jnp.where(largest > 0, size(both - apart) / largest, 0.0),
        )

    outputs = system.output(jnp.zeros(system.layout.size), jnp.zeros((), int))
    value, slope = jax.value_and_grad(system.loss_of_outputs)(jnp.zeros_like(outputs))
    probes = jax.lax.map(measured, (thetas, jnp.roll(thetas, -1, axis=0), kinds))
    return jnp.max(jnp.abs(outputs)), *probes, value, -slope


@quickly_compiled
def _leading(system: UnitSystem, thetas: Array, kinds: Array, small: Array) -> tuple[Array, Array]:
    """Return the size of f(c theta) / c^kappa at each probe, and its distance from the Taylor polynomial."""
    assert system.taylor is not None
    degree = system.taylor

    def measured(probe: tuple[Array, Array]) -> tuple[Array, Array]:
        theta, kind = probe
        scaled = system.output(small * theta, kind) / small**degree
        return jnp.linalg.norm(scaled.ravel()), jnp.linalg.norm((scaled - system.leading(theta, kind)).ravel())

    return jax.lax.map(measured, (thetas, kinds))


def _check_call(system: UnitSystem) -> None:
    theta, kind = (
        jax.ShapeDtypeStruct((system.layout.size,), jnp.dtype(float)),
        jax.ShapeDtypeStruct((), jnp.dtype(int)),
    )
    called = "unit(theta, x)" if system.kinds == 1 else "unit(theta, x, kind)"
    with calling(f"{called} must accept one sample under jax.jit", "Check the shapes of parameters and data."):
        outputs = jax.eval_shape(system.output, theta, kind)
    if getattr(outputs, "dtype", None) != jnp.dtype(float):
        raise InputError(f"unit must return float64 numbers; got {getattr(outputs, 'dtype', outputs)!r}.")
    with calling(f"loss(output, target) must accept one output of shape {outputs.shape[1:]!r} and one target"):
        value = jax.eval_shape(jax.vmap(system.loss), outputs, system.targets)
    if getattr(value, "shape", None) != outputs.shape[:1] or value.dtype != jnp.dtype(float):
        raise InputError(f"loss(output, target) must return one float64 number; got {shown(value)} for all samples.")


def _probe_weights(size: int, kinds: int, seed: int) -> tuple[Float[np.ndarray, "P p"], Int[np.ndarray, "P"]]:
    drawn = np.random.default_rng(seed).standard_normal((max(_PROBES, min(kinds, 256)), size))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.arange(len(drawn)) % kinds


def _degree(probes: _Probes) -> tuple[float, bool]:
    """Return kappa, and whether the unit is homogeneous everywhere."""
    if not probes.origin == 0:
        raise InputError(
            "unit must be 0 at zero weights; got another output there. Leave biases of the output out of the unit."
        )
    if not probes.finite.all():
        raise InputError("unit must be finite at random weights of norm 1; got NaN or infinite outputs.")
    alive = (probes.small > 0) & (probes.smaller > 0)  # others are dead neurons
    if not alive.any():
        raise InputError("unit must not vanish at all random weights; got 0 at each of them. Check data and unit.")
    measured, sizes, difference = probes.ratio[alive], probes.sizes[alive], probes.difference[alive]
    allowed = _EXACT * sizes * np.maximum(1.0, np.round(10 * measured))
    exact = bool(np.all((sizes > 0) & (difference <= allowed)))
    spread, kappa = float(np.ptp(measured)), float(np.median(measured))
    nearest = float(round(kappa))
    if spread > _LEADING or (abs(kappa - nearest) > _LEADING and not exact):
        raise InputError(
            f"unit must be homogeneous of one degree at the origin; got degrees from {min(measured):.4g} to "
            f"{max(measured):.4g} at random weights. Split it into units, or freeze some of its weights."
        )
    kappa = nearest if abs(kappa - nearest) <= (1e-9 if exact else _LEADING) else kappa
    if kappa < 2:
        raise InputError(
            f"unit must have a degree of at least 2 at the origin, for which the origin is a saddle; got {kappa:.4g}."
        )
    if not exact and kappa > LARGEST_DEGREE:
        raise InputError(f"unit must have a degree of at most {LARGEST_DEGREE} at the origin; got {kappa:.4g}.")
    return kappa, exact


def _check_leading(system: UnitSystem, thetas: Float[np.ndarray, "P p"], kinds: Int[np.ndarray, "P"]) -> None:
    """Raise unless the Taylor polynomial of degree kappa is the leading part: it is not at a kink at the origin."""
    found = _leading(system, jnp.asarray(thetas), jnp.asarray(kinds), jnp.asarray(2.0**-10))
    sizes, differences = map(np.asarray, found)
    if not np.all(differences <= 0.05 * np.maximum(sizes, 1e-300)):
        raise InputError(
            "unit must be homogeneous everywhere, or smooth at the origin; got neither. Scale-dependent parts such "
            "as biases must be weights of the unit, and its activation homogeneous or smooth."
        )

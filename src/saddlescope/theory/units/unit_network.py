"""A network that is a sum of units, its loss, and the utility of one more unit near the origin.

f(x)    sum_i f_unit(x; theta_i), the network
F       its outputs on all samples, shape (N, ...)
L(F)    mean_n loss(F_n, y_n)
r       -dL/dF, the residual
kappa   the degree of the unit at the origin: f_unit(x; c theta) = c^kappa phi(x; theta) + o(c^kappa) as c -> 0
phi     the leading part of the unit; the unit itself where it is homogeneous
U       sum_n <phi(x_n; theta), r_n>, the utility: -dL to leading order, if one unit theta is added
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.arguments import calling, is_real, shown
from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import require_float64
from saddlescope._shared.sample_pair import sample_pair

_EXACT = 1e-10  # relative difference of f(c theta) and c^kappa f(theta) that is rounding
_LEADING = 0.02  # largest difference of a measured degree from an integer, at a scale of 2^-10
_LARGEST_DEGREE = 6
_PROBES = 16


class NonFiniteUnitsError(Exception):
    """Loss or gradient of the network that is NaN or infinite."""


class UnitSystem(eqx.Module):
    """Compiled functions of a sum of units; flat weights of shape (units, p), with the kind of each unit."""

    unit: Callable[..., Array]
    loss: Callable[[Array, Array], Array]
    inputs: PyTree
    targets: PyTree
    build: "UnitLayout" = eqx.field(static=True)
    kinds: int = eqx.field(static=True)
    taylor: int | None = eqx.field(static=True, default=None)

    def sample(self, theta: Array, kind: Array, x: PyTree) -> Array:
        """Return f_unit(x; theta)."""
        tree = self.build(theta)
        return self.unit(tree, x) if self.kinds == 1 else self.unit(tree, x, kind)

    def output(self, theta: Array, kind: Array) -> Array:
        """Return the outputs of one unit on all samples."""
        return jax.vmap(lambda x: self.sample(theta, kind, x))(self.inputs)

    def leading(self, theta: Array, kind: Array) -> Array:
        """Return phi on all samples."""
        if self.taylor is None:
            return self.output(theta, kind)
        along = lambda c: self.output(c * theta, kind)  # noqa: E731
        factorial = 1.0
        for order in range(self.taylor):
            along = partial(_derivative, along)
            factorial *= order + 1
        return along(jnp.zeros(())) / factorial

    def network(self, thetas: Array, kinds: Array) -> Array:
        """Return F."""
        return jnp.sum(jax.vmap(self.output)(thetas, kinds), axis=0)

    def loss_of_outputs(self, outputs: Array) -> Array:
        """Return L(F)."""
        return jnp.mean(jax.vmap(self.loss)(outputs, self.targets))

    def loss_of(self, thetas: Array, kinds: Array) -> Array:
        """Return L of the network of these units."""
        return self.loss_of_outputs(self.network(thetas, kinds))

    def utility(self, theta: Array, kind: Array, residual: Array) -> Array:
        """Return U."""
        return jnp.sum(self.leading(theta, kind) * residual)


def _derivative(function: Callable[[Array], Array], at: Array) -> Array:
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]


@compiled
def _outputs(system: UnitSystem, theta: Array, kind: Array) -> Array:
    return system.output(theta, kind)


@compiled
def _leading(system: UnitSystem, theta: Array, kind: Array) -> Array:
    return system.leading(theta, kind)


@compiled
def _each_output(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    return jax.vmap(system.output)(thetas, kinds)


@compiled
def _residual(system: UnitSystem, outputs: Array) -> tuple[Array, Array]:
    value, slope = jax.value_and_grad(system.loss_of_outputs)(outputs)
    return value, -slope


@compiled
def _network(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    return system.network(thetas, kinds)


@compiled
def _utilities(system: UnitSystem, thetas: Array, kinds: Array, residual: Array) -> tuple[Array, Array]:
    return jax.vmap(jax.value_and_grad(system.utility), (0, 0, None))(thetas, kinds, residual)


@compiled
def _utility_hessian(system: UnitSystem, theta: Array, kind: Array, residual: Array) -> Array:
    return jax.hessian(system.utility)(theta, kind, residual)


@compiled
def _force_hessian(system: UnitSystem, theta: Array, kind: Array, residual: Array) -> Array:
    return jax.hessian(lambda at: jnp.sum(system.output(at, kind) * residual))(theta)


@compiled
def _loss_gradient(system: UnitSystem, thetas: Array, kinds: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(system.loss_of)(thetas, kinds)


@compiled
def _loss_hessian(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    size = thetas.size
    flat = lambda vector: jax.grad(system.loss_of)(vector.reshape(thetas.shape), kinds).ravel()  # noqa: E731
    times = jax.linearize(flat, thetas.ravel())[1]
    return jax.lax.map(times, jnp.eye(size), batch_size=32)


@dataclass(frozen=True, eq=False)
class UnitNetwork:
    """A sum of units as NumPy float64 functions, with the measured degree.

    Attributes:
        system: its compiled functions.
        size: p, the number of weights of one unit.
        kinds: number of kinds of unit.
        degree: kappa.
        homogeneous: True if the unit is homogeneous everywhere, not only at the origin.
        quadratic: True if the unit is a quadratic form of its weights.
    """

    system: UnitSystem
    size: int
    kinds: int
    degree: float
    homogeneous: bool
    quadratic: bool

    @classmethod
    def of(
        cls,
        unit: Callable[..., Array],
        data: tuple[PyTree, PyTree],
        loss: Callable[[Array, Array], Array],
        parameters: PyTree,
        kinds: int,
        seed: int,
        *,
        caller: str,
    ) -> "UnitNetwork":
        """Check the arguments, measure the degree, and return the network.

        Raises:
            InputError: JAX is not in float64 mode; data, unit and loss do not fit each other; the unit is not
                homogeneous of a degree of at least 2 at the origin.
        """
        require_float64(caller)
        layout = _layout(parameters)
        flat = layout.size
        system = UnitSystem(unit, loss, *sample_pair(data), layout, kinds)
        _check_call(system, flat)
        degree, homogeneous = _degree(system, flat, seed)
        if not homogeneous:
            system = dataclasses.replace(system, taylor=round(degree))
            _check_leading(system, flat, degree, seed)
        quadratic = homogeneous and degree == 2.0 and _is_quadratic(system, flat, seed)
        network = cls(system, flat, kinds, degree, homogeneous, quadratic)
        network.at_origin()
        return network

    def flat_weights(self, weights: PyTree) -> Float[np.ndarray, "m p"]:
        """Return the weights of units, a pytree like that of one unit with a leading axis, as a matrix.

        Raises:
            InputError: another structure or shape, weights that are not finite, or a unit whose weights are all 0.
        """
        shapes, leaves = self.system.build.shapes, jax.tree.leaves(weights)
        counts = {np.shape(leaf)[:1] for leaf in leaves}
        fits = jax.tree.structure(weights) == self.system.build.structure and len(counts) == 1
        real = all(is_real(np.asarray(leaf)) for leaf in leaves)
        fits = fits and all(np.shape(leaf)[1:] == shape for leaf, shape in zip(leaves, shapes, strict=True))
        if not (fits and real):
            raise InputError(
                "weights must be real and like parameters, with a leading axis of units in every array; got shapes "
                f"{[np.shape(leaf) for leaf in leaves]!r} where parameters has {list(shapes)!r}."
            )
        flat = np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in leaves], axis=1).astype(float)
        if not np.isfinite(flat).all() or not np.all(np.any(flat != 0, axis=1)):
            raise InputError("weights must be finite and not all 0 in any unit; got NaN, infinite or zero units.")
        return flat

    def at_origin(self) -> tuple[float, Array]:
        """Return L and r of the network without units.

        Raises:
            InputError: one of them is not finite.
        """
        outputs = jnp.zeros_like(_outputs(self.system, jnp.zeros(self.size), jnp.zeros((), int)))
        value, residual = _residual(self.system, outputs)
        if not (np.isfinite(value) and np.isfinite(residual).all()):
            raise InputError(
                f"loss must be finite with a finite gradient at output 0; got {float(value)!r}, and a gradient "
                f"with{'out' if np.isfinite(residual).all() else ''} NaN or infinite entries. Use a loss that is "
                "smooth at 0."
            )
        return float(value), residual

    def residual_of(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]) -> tuple[float, Array]:
        """Return L and r of a network.

        Raises:
            NonFiniteUnitsError: one of them is not finite.
        """
        if not len(thetas):
            return self.at_origin()
        value, residual = _residual(self.system, _network(self.system, *_padded(thetas, kinds)))
        if not (np.isfinite(value) and np.isfinite(residual).all()):
            raise NonFiniteUnitsError
        return float(value), residual

    def utilities(
        self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "_"], residual: Array
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m p"]]:
        """Return U and its gradient at each of several weights."""
        values, slopes = _utilities(self.system, *_padded(thetas, kinds), residual)
        return np.array(values)[: len(thetas)], np.array(slopes)[: len(thetas)]

    def outputs(self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "_"]) -> Float[np.ndarray, "m o"]:
        """Return the outputs of each of several units on all samples, flat."""
        made = np.asarray(_each_output(self.system, *_padded(thetas, kinds)))[: len(thetas)]
        return made.reshape(len(thetas), -1)

    def utility_hessian(self, theta: Float[np.ndarray, "p"], kind: int, residual: Array) -> Float[np.ndarray, "p p"]:
        """Return the Hessian of U."""
        H = np.asarray(_utility_hessian(self.system, jnp.asarray(theta), jnp.asarray(kind), residual))
        return (H + H.T) / 2

    def force_hessian(self, theta: Float[np.ndarray, "p"], kind: int, residual: Array) -> Float[np.ndarray, "p p"]:
        """Return the Hessian of sum_n <f_unit(x_n; theta), r_n>, at which deviations between equal units grow."""
        H = np.asarray(_force_hessian(self.system, jnp.asarray(theta), jnp.asarray(kind), residual))
        return (H + H.T) / 2

    def loss_gradient(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]
    ) -> tuple[float, Float[np.ndarray, "a p"]]:
        """Return L and its gradient by the weights of all units.

        Raises:
            NonFiniteUnitsError: one of them is not finite.
        """
        found, slopes = _loss_gradient(self.system, *_padded(thetas, kinds))
        value, slope = float(found), np.array(slopes)[: len(thetas)]
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            raise NonFiniteUnitsError
        return value, slope

    def loss_hessian(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]) -> Float[np.ndarray, "q q"]:
        """Return the Hessian of L by the weights of all units, q = units * p.

        Raises:
            NonFiniteUnitsError: an entry is not finite.
        """
        H = np.asarray(_loss_hessian(self.system, *_padded(thetas, kinds)))[: thetas.size, : thetas.size]
        if not np.isfinite(H).all():
            raise NonFiniteUnitsError
        return (H + H.T) / 2


def _padded(thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]) -> tuple[Array, Array]:
    """Return the units followed by silent ones, up to a power of two: few numbers of units are compiled."""
    count = 1 << max(len(thetas) - 1, 0).bit_length()
    units, of_kind = np.zeros((count, thetas.shape[1])), np.zeros(count, kinds.dtype)
    units[: len(thetas)], of_kind[: len(kinds)] = thetas, kinds
    return jax.device_put(units), jax.device_put(of_kind)  # in a third of the time of `jnp.asarray`


def _layout(parameters: PyTree) -> "UnitLayout":
    leaves, structure = jax.tree.flatten(parameters)
    if not leaves or any(not is_real(leaf) for leaf in leaves):
        raise InputError(
            f"parameters must be an array of real numbers, or a pytree of such arrays, of the shapes of one unit's "
            f"weights; got {shown(parameters)}. Its values do not matter."
        )
    shapes = tuple(tuple(leaf.shape) for leaf in leaves)
    return UnitLayout(structure, shapes)


@dataclass(frozen=True)
class UnitLayout:
    """Function from flat weights to the pytree of a unit; equal layouts share compiled functions."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number p of weights."""
        return int(sum(np.prod(shape, dtype=int) for shape in self.shapes))

    def __call__(self, flat: Array) -> PyTree:
        """Return the pytree of flat weights."""
        leaves, start = [], 0
        for shape in self.shapes:
            stop = start + int(np.prod(shape, dtype=int))
            leaves.append(flat[..., start:stop].reshape(flat.shape[:-1] + shape))
            start = stop
        return jax.tree.unflatten(self.structure, leaves)


def _check_call(system: UnitSystem, size: int) -> None:
    theta, kind = jax.ShapeDtypeStruct((size,), jnp.dtype(float)), jax.ShapeDtypeStruct((), jnp.dtype(int))
    called = "unit(theta, x)" if system.kinds == 1 else "unit(theta, x, kind)"
    with calling(f"{called} must accept one sample under jax.jit", "Check the shapes of parameters and data."):
        outputs = jax.eval_shape(system.output, theta, kind)
    if getattr(outputs, "dtype", None) != jnp.dtype(float):
        raise InputError(f"unit must return float64 numbers; got {getattr(outputs, 'dtype', outputs)!r}.")
    with calling(f"loss(output, target) must accept one output of shape {outputs.shape[1:]!r} and one target"):
        value = jax.eval_shape(jax.vmap(system.loss), outputs, system.targets)
    if getattr(value, "shape", None) != outputs.shape[:1] or value.dtype != jnp.dtype(float):
        raise InputError(f"loss(output, target) must return one float64 number; got {shown(value)} for all samples.")


def _probe_weights(size: int, kinds: int, seed: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((max(_PROBES, min(kinds, 256)), size))
    return [(jnp.asarray(theta / np.linalg.norm(theta)), jnp.asarray(n % kinds)) for n, theta in enumerate(drawn)]


def _degree(system: UnitSystem, size: int, seed: int) -> tuple[float, bool]:
    """Return kappa, and whether the unit is homogeneous everywhere."""
    origin = np.asarray(_outputs(system, jnp.zeros(size), jnp.zeros((), int)))
    if not np.isfinite(origin).all() or origin.any():
        raise InputError(
            "unit must be 0 at zero weights; got another output there. Leave biases of the output out of the unit."
        )
    measured, exact = [], True
    for theta, kind in _probe_weights(size, system.kinds, seed):
        one = np.asarray(_outputs(system, theta, kind))
        small, smaller = (np.asarray(_outputs(system, c * theta, kind)) for c in (2.0**-10, 2.0**-11))
        if not (np.isfinite(one).all() and np.isfinite(small).all()):
            raise InputError("unit must be finite at random weights of norm 1; got NaN or infinite outputs.")
        if not (small.any() and smaller.any()):
            continue  # a dead neuron
        ratio = np.log2(np.linalg.norm(small) / np.linalg.norm(smaller))
        measured.append(ratio)
        power = 2.0 ** round(10 * ratio)
        difference = np.linalg.norm(one - 2.0 ** (10 * ratio) * small) if one.any() else np.inf
        exact = exact and bool(difference <= _EXACT * np.linalg.norm(one) * max(1.0, np.log2(power)))
    if not measured:
        raise InputError("unit must not vanish at all random weights; got 0 at each of them. Check data and unit.")
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
    if not exact and kappa > _LARGEST_DEGREE:
        raise InputError(f"unit must have a degree of at most {_LARGEST_DEGREE} at the origin; got {kappa:.4g}.")
    return kappa, exact


def _check_leading(system: UnitSystem, size: int, degree: float, seed: int) -> None:
    """Raise unless the Taylor polynomial of degree kappa is the leading part: it is not at a kink at the origin."""
    for theta, kind in _probe_weights(size, system.kinds, seed):
        leading = np.asarray(_leading(system, theta, kind))
        scaled = 2.0 ** (10 * degree) * np.asarray(_outputs(system, 2.0**-10 * theta, kind))
        if np.linalg.norm(scaled - leading) > 0.05 * max(np.linalg.norm(scaled), 1e-300):
            raise InputError(
                "unit must be homogeneous everywhere, or smooth at the origin; got neither. Scale-dependent parts such "
                "as biases must be weights of the unit, and its activation homogeneous or smooth."
            )


def _is_quadratic(system: UnitSystem, size: int, seed: int) -> bool:
    """Return True if the unit satisfies the parallelogram law at random weights."""
    leading = partial(_leading, system)
    probes = _probe_weights(size, system.kinds, seed)
    for (one, kind), (other, _) in zip(probes, [*probes[1:], probes[0]], strict=True):
        both = np.asarray(leading(one + other, kind)) + np.asarray(leading(one - other, kind))
        apart = 2 * (np.asarray(leading(one, kind)) + np.asarray(leading(other, kind)))
        if np.linalg.norm(both - apart) > 1e-9 * max(np.linalg.norm(both), np.linalg.norm(apart)):
            return False
    return True

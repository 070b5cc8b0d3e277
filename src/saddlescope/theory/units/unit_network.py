"""A network that is a sum of units, its loss and utilities, as functions of NumPy arrays.

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
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from saddlescope._shared.arguments import is_real, shown
from saddlescope._shared.compiled_functions import bound, quickly_compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.loss_scale import scale_exponent
from saddlescope._shared.sample_pair import sample_pair
from saddlescope._shared.symmetric_matrices import eigenvectors
from saddlescope.numerics.conserved_forms import random_moments, scaling_form
from saddlescope.numerics.tree_layout import TreeLayout
from saddlescope.theory.units.explicit_path import Limits, PathPoint, explicit_path
from saddlescope.theory.units.kinked_units import Kinks, PatternedUnit, output_with, switches_of
from saddlescope.theory.units.stationary_point import (
    NEWTON,
    Pieces,
    StationaryWeights,
    curvatures_on_kinks,
    minimum_on_kinks,
    stationary_pattern,
    stationary_point,
    step_to_switches,
)
from saddlescope.theory.units.unit_checks import checked_unit
from saddlescope.theory.units.unit_system import UnitSystem

_DIRECTION_STEPS = 6
_FEW_WEIGHTS = 32
_STILL = 1e-3  # distance from a stationary direction that is rounding, grown while the unit fell
WIDTH = 1e-6
"""Half the width over which kinks are rounded, relative to the typical argument of a kink."""

_LOOSE = 1e-4  # distance of the pattern from 0 or 1 at which a kink does not hold a unit
_NEXT = 3.0  # widths from a kink at which weights may be on it
_LARGEST_JACOBIAN = 5_000_000  # entries of the Jacobian of all outputs that are held at once
_PROBES = 8  # flat directions along which the third and fourth order of L are looked at
_GROWS = 1e-6  # of the largest curvature, for displacements as large as the weights: more than rounding
_CANCELLED = 1e-3  # share of two terms of the fourth order that cancel along symmetries
_MODERATE = 100  # exponent of the residual up to which nothing is scaled


class NonFiniteUnitsError(Exception):
    """Loss or gradient of the network that is NaN or infinite."""


@quickly_compiled
def _each_output(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    return jax.vmap(system.output)(thetas, kinds)


@quickly_compiled
def _residual(system: UnitSystem, thetas: Array, kinds: Array) -> tuple[Array, Array, Array]:
    """Return L, r and F."""
    outputs = system.network(thetas, kinds)
    value, slope = jax.value_and_grad(system.loss_of_outputs)(outputs)
    return value, -slope, outputs


@quickly_compiled
def _utilities(system: UnitSystem, thetas: Array, kinds: Array, residual: Array) -> tuple[Array, Array, Array]:
    """Return U, its gradient, and the sum of the sizes of its terms."""

    def utility(theta: Array, kind: Array) -> tuple[Array, Array]:
        terms = system.leading(theta, kind) * residual
        return jnp.sum(terms), jnp.sum(jnp.abs(terms))

    (values, sizes), slopes = jax.vmap(jax.value_and_grad(utility, has_aux=True))(thetas, kinds)
    return values, slopes, sizes


@quickly_compiled
def _utility_hessian(system: UnitSystem, theta: Array, kind: Array, residual: Array) -> Array:
    return jax.hessian(system.utility)(theta, kind, residual)


@quickly_compiled
def _force_hessian(system: UnitSystem, theta: Array, kind: Array, residual: Array) -> Array:
    return jax.hessian(lambda at: jnp.sum(system.output(at, kind) * residual))(theta)


@quickly_compiled
def _loss_gradient(system: UnitSystem, thetas: Array, kinds: Array) -> tuple[Array, Array]:
    return jax.value_and_grad(system.loss_of)(thetas, kinds)


@quickly_compiled
def _slopes_along(system: UnitSystem, thetas: Array, kinds: Array, along: Array) -> tuple[Array, Array]:
    """Return the second and third derivatives of grad L along a line."""
    slope = lambda at: jax.grad(system.loss_of)(thetas + at * along, kinds)  # noqa: E731
    rate = lambda function: lambda at: jax.jvp(function, (at,), (jnp.ones(()),))[1]  # noqa: E731
    second = rate(rate(slope))
    return second(jnp.zeros(())), rate(second)(jnp.zeros(()))


@quickly_compiled
def _loss_hessian(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    """Return the Hessian of L: through the outputs, and of each unit alone; column by column if that is too large."""
    outputs = system.network(thetas, kinds)
    if outputs.size * thetas.size > _LARGEST_JACOBIAN:
        return _hessian_by_columns(system, thetas, kinds)
    samples = outputs.reshape(len(outputs), -1)
    loss_of_one = lambda f, y: system.loss(f.reshape(outputs.shape[1:]), y)  # noqa: E731
    curvatures = jax.vmap(jax.hessian(loss_of_one))(samples, system.targets) / (len(samples) * system.unit_of_loss)
    flat = lambda theta, kind: system.output(theta, kind).reshape(samples.shape)  # noqa: E731
    J = jnp.moveaxis(jax.vmap(jax.jacfwd(flat))(thetas, kinds), 0, 2).reshape(*samples.shape, thetas.size)
    through = jnp.einsum("nia,nib->ab", J, curvatures @ J)
    slope = jax.grad(system.loss_of_outputs)(outputs)
    force = lambda theta, kind: jnp.sum(system.output(theta, kind) * slope)  # noqa: E731
    units = jnp.arange(len(thetas))
    whole = through.reshape(*thetas.shape, *thetas.shape)
    return whole.at[units, :, units, :].add(jax.vmap(jax.hessian(force))(thetas, kinds)).reshape(through.shape)


@quickly_compiled
def _hessian_product(system: UnitSystem, thetas: Array, kinds: Array, change: Array) -> Array:
    return jax.jvp(lambda at: jax.grad(system.loss_of)(at, kinds), (thetas,), (change,))[1]


def _hessian_by_columns(system: UnitSystem, thetas: Array, kinds: Array) -> Array:
    size = thetas.size
    flat = lambda vector: jax.grad(system.loss_of)(vector.reshape(thetas.shape), kinds).ravel()  # noqa: E731
    times = jax.linearize(flat, thetas.ravel())[1]
    return jax.lax.map(times, jnp.eye(size), batch_size=32)


@quickly_compiled
def _effect(system: UnitSystem, present: Array, direction: Array, kind: Array, utility: Array) -> tuple[Array, Array]:
    """Return the norm by `norm_of_effect` from the present outputs, and whether one was found."""

    def effect(norm: Array) -> tuple[Array, Array]:
        value, slope = jax.value_and_grad(system.loss_of_outputs)(present + system.output(norm * direction, kind))
        finite = jnp.isfinite(value) & jnp.isfinite(slope).all()
        return ~finite, system.utility(direction, kind, -slope) < utility / 2

    def look(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        norm, tries, _ = state
        outside, felt = effect(norm)
        following = jnp.where(outside, norm / 2, jnp.where(felt, norm, 2 * norm))
        return following, tries + 1, outside | felt

    def felt_or_outside(norm: Array) -> Array:
        outside, felt = effect(norm)
        return (norm > 1e-150) & (outside | felt)

    unfelt = jax.lax.while_loop(felt_or_outside, lambda norm: norm / 2**8, jnp.asarray(1e-4))
    norm, _, found = jax.lax.while_loop(
        lambda state: ~state[2] & (state[1] < 100), look, (unfelt, jnp.asarray(0), jnp.asarray(False))
    )
    return norm, found


@quickly_compiled
def _stationary(
    system: UnitSystem, direction: Array, kind: Array, residual: Array, still: Array
) -> tuple[Array, Array, Array]:
    """Return the direction after Newton's method, the gradient along the sphere before its last step, and the way."""
    gradient, hessian = jax.grad(system.utility), jax.hessian(system.utility)

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        u, steps, _, way = state
        slope = gradient(u, kind, residual)
        along, tangent = slope @ u, jnp.eye(len(u)) - jnp.outer(u, u)
        force = tangent @ slope
        left = jnp.linalg.norm(force) / jnp.maximum(jnp.linalg.norm(slope), 1e-300)
        H = tangent @ (hessian(u, kind, residual) - along * jnp.eye(len(u))) @ tangent
        values, vectors = jnp.linalg.eigh((H + H.T) / 2)
        curved = jnp.abs(values) > 1e-9 * jnp.max(jnp.abs(values))
        u = u - vectors @ (jnp.where(curved, vectors.T @ force, 0.0) / jnp.where(curved, values, 1.0))
        u = u / jnp.linalg.norm(u)
        return u, steps + 1, left, jnp.maximum(way, jnp.linalg.norm(u - direction))

    def going(state: tuple[Array, Array, Array, Array]) -> Array:
        _, steps, left, way = state
        return (steps < _DIRECTION_STEPS) & (left > 0) & (way <= still)

    zero = jnp.zeros(())
    u, _, left, way = jax.lax.while_loop(going, step, (direction, jnp.asarray(0), zero + jnp.inf, zero))
    return u, left, way


@quickly_compiled
def _moments(system: UnitSystem) -> tuple[Array, Array]:
    return random_moments(system.network, system.kinds, system.layout.size)


@quickly_compiled
def _switches(system: UnitSystem, unit: PatternedUnit, thetas: Array, kinds: Array) -> Array:
    return jax.vmap(lambda theta, kind: switches_of(system, unit, theta, kind)[0])(thetas, kinds)


def _pieces_of(
    objective: Callable[[Array, Array], Array], system: UnitSystem, unit: PatternedUnit,
    thetas: Array, kinds: Array, pattern: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """Return the entries of `Pieces` for an objective of the outputs and the flat weights."""

    def value(flat: Array, pattern: Array) -> Array:
        outputs = jax.vmap(lambda theta, kind, own: output_with(system, unit, theta, kind, own))(
            flat.reshape(thetas.shape), kinds, pattern
        )
        return objective(jnp.sum(outputs, axis=0), flat)

    flat, found = thetas.ravel(), lambda theta, kind: switches_of(system, unit, theta, kind)[0]
    slope, hessian = jax.grad(value)(flat, pattern), jax.hessian(value)(flat, pattern)
    jumps = jax.jacfwd(jax.grad(value, argnums=1))(flat, pattern)
    return slope, hessian, jax.vmap(found)(thetas, kinds), jax.vmap(jax.jacfwd(found))(thetas, kinds), jumps


@quickly_compiled
def _loss_pieces(
    system: UnitSystem, unit: PatternedUnit, thetas: Array, kinds: Array, pattern: Array
) -> tuple[Array, ...]:
    return _pieces_of(lambda outputs, _: system.loss_of_outputs(outputs), system, unit, thetas, kinds, pattern)


@quickly_compiled
def _utility_pieces(
    system: UnitSystem, unit: PatternedUnit, degree: Array, residual: Array, level: Array,
    thetas: Array, kinds: Array, pattern: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """Of an objective whose minima on the sphere are the maxima of U there; `level` is U next to them."""
    steepness = jnp.linalg.norm(jax.grad(system.utility)(thetas[0], kinds[0], residual))

    def objective(outputs: Array, flat: Array) -> Array:
        square = jnp.sum(flat**2)
        return degree * level * square / 2 + steepness * (square - 1) ** 2 / 4 - jnp.sum(outputs * residual)

    return _pieces_of(objective, system, unit, thetas, kinds, pattern)


@quickly_compiled
def _force_pieces(
    system: UnitSystem, unit: PatternedUnit, residual: Array, thetas: Array, kinds: Array, pattern: Array
) -> tuple[Array, ...]:
    return _pieces_of(lambda outputs, _: -jnp.sum(outputs * residual), system, unit, thetas, kinds, pattern)


@dataclass(frozen=True, eq=False)
class UnitNetwork:
    """A sum of units as NumPy float64 functions, with the measured degree.

    Attributes:
        system: its compiled functions.
        size: p, the number of weights of one unit.
        kinds: number of kinds of unit.
        degree: kappa; of the next part of the unit if the leading one has no utility at the origin but for rounding.
        first_degree: that of the leading part.
        homogeneous: True if the unit is homogeneous everywhere, not only at the origin.
        quadratic: True if the unit is a quadratic form of its weights.
        origin: L and r of the network without units.
        exponent: L and what follows from it are over 2^exponent, so that no square over- or underflows; 0 for a
            residual of moderate size at the origin.
        kinks: of the unit; None if it has none.
    """

    system: UnitSystem
    size: int
    kinds: int
    degree: float
    first_degree: float
    homogeneous: bool
    quadratic: bool
    origin: tuple[float, Array]
    exponent: int
    kinks: Kinks | None

    @classmethod
    def of(
        cls,
        unit: Callable[..., Array],
        data: tuple[PyTree, PyTree],
        loss: Callable[[Array, Array], Array],
        parameters: PyTree,
        kinds: int,
        seed: int,
    ) -> "UnitNetwork":
        """Check the arguments, measure the degree, and return the network.

        Raises:
            InputError: data, unit and loss do not fit each other; the unit is not
                homogeneous of a degree of at least 2 at the origin; the loss is not smooth at output 0.
        """
        layout = _layout_of(parameters)
        unit_found = checked_unit(UnitSystem(unit, loss, *sample_pair(data), layout, kinds, jnp.ones(())), seed)
        system, value, residual = unit_found.system, unit_found.loss, unit_found.residual
        exponent = scale_exponent([residual])
        if abs(exponent) <= _MODERATE:
            exponent = 0
        else:
            system = dataclasses.replace(system, unit_of_loss=jnp.array(2.0**exponent))
            value, residual = math.ldexp(value, -exponent), jnp.asarray(np.ldexp(residual, -exponent))
        return cls(
            system=system,
            size=layout.size,
            kinds=kinds,
            degree=unit_found.degree,
            first_degree=unit_found.degree,
            homogeneous=unit_found.homogeneous,
            quadratic=unit_found.quadratic,
            origin=(value, residual),
            exponent=exponent,
            kinks=Kinks.of(system, seed) if unit_found.homogeneous and not unit_found.quadratic else None,
        )

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a compiled function of this system."""
        if function not in self._bound:
            self._bound[function] = bound(function, self.system, count=len(arguments))
        return self._bound[function](*arguments)

    def _call_with_kinks(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a compiled function of this system and of its unit with the switches in sight."""
        if function not in self._bound:
            assert self.kinks is not None
            self._bound[function] = bound(function, self.system, self.kinks.unit, count=len(arguments))
        return self._bound[function](*arguments)

    def _pieces(self, function: Callable[..., Any], *arguments: Any) -> Pieces:
        return Pieces(*map(np.asarray, self._call_with_kinks(function, *arguments)))

    @cached_property
    def _bound(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        return {}

    @cached_property
    def moments(self) -> tuple[Float[np.ndarray, "n e"], Float[np.ndarray, "n"]]:
        """Moments at random weights, with the sums of outputs that they belong to; see `numerics.conserved_forms`."""
        moments, sums = self._call(_moments)
        return np.asarray(moments), np.asarray(sums)

    def parts(self, theta: Float[np.ndarray, "p"], count: int) -> Float[np.ndarray, "p"] | None:
        """Return the weights of each of several equal units that sum to one unit; None if it cannot be split."""
        if self._scaling is None:
            return None
        exponents, basis = self._scaling
        return basis @ (float(count) ** -exponents * (basis.T @ theta))

    @cached_property
    def _scaling(self) -> tuple[Float[np.ndarray, "p"], Float[np.ndarray, "p p"]] | None:
        """Eigenvalues and eigenvectors of D with f(c^D theta) = c f(theta), next to that of a homogeneous unit."""
        form = scaling_form(*self.moments, np.eye(self.size) / self.degree)
        if form is None:
            return None
        exponents, basis = np.linalg.eigh(form)
        return exponents, basis

    def in_units(self, number: float) -> float:
        """Return a loss, or what is proportional to it, in the units of the loss that was given."""
        return math.ldexp(number, self.exponent)

    def time_in_units(self, time: float) -> float:
        """Return a time in the units of the loss that was given."""
        return math.ldexp(time, -self.exponent)

    def flat_weights(self, weights: PyTree) -> Float[np.ndarray, "m p"]:
        """Return the weights of units, a pytree like that of one unit with a leading axis, as a matrix.

        Raises:
            InputError: another structure or shape, weights that are not finite, or a unit whose weights are all 0.
        """
        shapes, leaves = self.system.layout.shapes, jax.tree.leaves(weights)
        counts = {np.shape(leaf)[:1] for leaf in leaves}
        fits = jax.tree.structure(weights) == self.system.layout.structure and len(counts) == 1
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

    def residual_of(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]) -> tuple[float, Array]:
        """Return L and r of a network.

        Raises:
            NonFiniteUnitsError: one of them is not finite.
        """
        if not len(thetas):
            return self.origin
        value, residual, _ = self._call(_residual, *_padded(thetas, kinds))
        if not (np.isfinite(value) and np.isfinite(residual).all()):
            raise NonFiniteUnitsError
        return float(value), residual

    def utilities(
        self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "_"], residual: Array
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m p"]]:
        """Return U and its gradient at each of several weights."""
        values, slopes, _ = self._call(_utilities, *_padded(thetas, kinds), residual)
        return np.array(values)[: len(thetas)], np.array(slopes)[: len(thetas)]

    def terms(
        self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "m"], residual: Array
    ) -> Float[np.ndarray, "m"]:
        """Return the sum of the sizes of the terms of U, whose share of 1e-16 is rounding, at several weights."""
        return np.array(self._call(_utilities, *_padded(thetas, kinds), residual)[2])[: len(thetas)]

    def outputs(self, thetas: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "_"]) -> Float[np.ndarray, "m o"]:
        """Return the outputs of each of several units on all samples, flat."""
        made = np.asarray(self._call(_each_output, *_padded(thetas, kinds)))[: len(thetas)]
        return made.reshape(len(thetas), -1)

    def utility_hessian(self, theta: Float[np.ndarray, "p"], kind: int, residual: Array) -> Float[np.ndarray, "p p"]:
        """Return the Hessian of U."""
        H = np.asarray(self._call(_utility_hessian, theta, np.asarray(kind), residual))
        return (H + H.T) / 2

    def force_hessian(self, theta: Float[np.ndarray, "p"], kind: int, residual: Array) -> Float[np.ndarray, "p p"]:
        """Return the Hessian of sum_n <f_unit(x_n; theta), r_n>, at which deviations between equal units grow."""
        H = np.asarray(self._call(_force_hessian, theta, np.asarray(kind), residual))
        return (H + H.T) / 2

    def loss_gradient(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]
    ) -> tuple[float, Float[np.ndarray, "a p"]]:
        """Return L and its gradient by the weights of all units.

        Raises:
            NonFiniteUnitsError: one of them is not finite.
        """
        found, slopes = self._call(_loss_gradient, *_padded(thetas, kinds))
        value, slope = float(found), np.array(slopes)[: len(thetas)]
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            raise NonFiniteUnitsError
        return value, slope

    def loss_hessian(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "_"]) -> Float[np.ndarray, "q q"]:
        """Return the Hessian of L by the weights of all units, q = units * p.

        Raises:
            NonFiniteUnitsError: an entry is not finite.
        """
        H = np.asarray(self._call(_loss_hessian, *_padded(thetas, kinds)))[: thetas.size, : thetas.size]
        if not np.isfinite(H).all():
            raise NonFiniteUnitsError
        return (H + H.T) / 2

    def parts_grow(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]) -> bool:
        """Return True if L falls by its third or fourth order at a minimum of the second, by parts that are small.

        So does a product of blocks A + B of which A is learned: L changes by the utility of B, and by nothing along
        the symmetries of A, where the fourth order is what is left at the bottom of the curved valley.
        """
        values, vectors = eigenvectors(self.loss_hessian(thetas, kinds))
        size, largest = float(np.linalg.norm(thetas)), float(np.max(np.abs(values)))
        flat = np.abs(values) <= NEWTON.flat * largest
        for drawn in np.random.default_rng(0).standard_normal((_PROBES, int(flat.sum()))):
            along = size * vectors[:, flat] @ drawn / (np.linalg.norm(drawn) or 1.0)
            found = self._call(_slopes_along, *_padded(thetas, kinds), _padded(along.reshape(thetas.shape), kinds)[0])
            second, third = (np.asarray(one)[: len(thetas)].ravel() for one in found)
            cubic, quartic = float(second @ along), float(third @ along)
            bent = 3 * float(np.sum((second @ vectors[:, ~flat]) ** 2 / values[~flat]))
            left = quartic - bent if quartic - bent < -_CANCELLED * (abs(quartic) + bent) else 0.0
            if max(abs(cubic), -left) > _GROWS * largest * size**2:
                return True
        return False

    def curvatures(self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]) -> Float[np.ndarray, "c"]:
        """Return the eigenvalues of the Hessian of L, ascending, along the kinks that the weights are on.

        Raises:
            NonFiniteUnitsError: an entry is not finite.
        """
        near = self.near_kinks(thetas, kinds)
        if near is None:
            return np.linalg.eigvalsh(self.loss_hessian(thetas, kinds))
        return curvatures_on_kinks(lambda at, pattern: self._pieces(_loss_pieces, at, kinds, pattern), thetas, *near)

    def hessian_product(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"], change: Float[np.ndarray, "a p"]
    ) -> Float[np.ndarray, "a p"]:
        """Return the Hessian of L by the weights of all units times a change of them."""
        units, of_kind = _padded(thetas, kinds)
        return np.array(self._call(_hessian_product, units, of_kind, _padded(change, kinds)[0]))[: len(thetas)]

    def rounded(self, width: float) -> "UnitNetwork":
        """Return this network with kinks rounded over this share of the typical argument; itself without kinks."""
        if self.kinks is None:
            return self
        if width not in self._rounded:
            system = self.kinks.rounded(self.system, width)
            self._rounded[width] = dataclasses.replace(self, system=system, kinks=None)
        return self._rounded[width]

    @cached_property
    def _rounded(self) -> "dict[float, UnitNetwork]":
        return {}

    def near_kinks(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]
    ) -> tuple[Float[np.ndarray, "a N k"], Bool[np.ndarray, "a N k"]] | None:
        """Return the pattern, as guessed at rounded kinks, and the switches next to zero; None if there are none."""
        if self.kinks is None or not len(thetas):
            return None
        s = np.asarray(self._call_with_kinks(_switches, *_padded(thetas, kinds)))[: len(thetas)]
        e = np.maximum(WIDTH * self.kinks.sizes(thetas), 1e-300)[:, None]
        near = np.abs(s) <= _NEXT * e
        return (np.clip((s / e + 1) / 2, 0.0, 1.0), near) if near.any() else None

    def minimum_near(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"],
        pattern: Float[np.ndarray, "a N k"], near: Bool[np.ndarray, "a N k"],
    ) -> StationaryWeights | None:  # fmt: skip
        """Return the minimum of L on kinks next to these weights; None if there is none."""

        def pieces(thetas: Float[np.ndarray, "a p"], pattern: Float[np.ndarray, "a N k"]) -> Pieces:
            return self._pieces(_loss_pieces, thetas, kinds, pattern)

        return minimum_on_kinks(pieces, thetas, pattern, near)

    def stationary_near(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"], *, minimum: bool
    ) -> StationaryWeights | None:
        """Return the stationary point of L next to these weights, at no kink; None if there is none.

        Args:
            thetas: the weights.
            kinds: of the units.
            minimum: True if it has to be a minimum.
        """
        none = np.zeros((len(thetas), 0, 0))
        normals, jumps = np.zeros((*none.shape, thetas.shape[1])), np.zeros((*none.shape, thetas.size))

        def pieces(thetas: Float[np.ndarray, "a p"], pattern: Float[np.ndarray, "a 0 0"]) -> Pieces:
            slope, H = self.loss_gradient(thetas, kinds)[1].ravel(), self.loss_hessian(thetas, kinds)
            return Pieces(slope, H, none, normals, jumps)

        return stationary_point(pieces, thetas, none, none.astype(bool), minimum=minimum)

    def off_loose_kinks(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]
    ) -> Float[np.ndarray, "a p"]:
        """Return units at a minimum, a little off the kinks that do not hold them.

        Gradient flow may slide along a kink to a minimum at which the pattern is 0 or 1, as a neuron does that fits its
        other samples: the side without the sample is flat. Should the kink repel the unit later, the flow could take
        either side. Gradient descent is on the flat side by then, however small its steps are.
        """
        near = self.near_kinks(thetas, kinds)
        if near is None:
            return thetas
        assert self.kinks is not None
        pattern, active = near
        at = self._pieces(_loss_pieces, thetas, kinds, pattern)
        pattern = stationary_pattern(at, pattern, active)
        loose = active & ((pattern < _LOOSE) | (pattern > 1 - _LOOSE))
        if not loose.any():
            return thetas
        target = np.where(pattern > 0.5, 1.0, -1.0) * (10 * WIDTH * self.kinks.sizes(thetas))[:, None]
        return thetas + step_to_switches(at, loose, target[loose]).reshape(thetas.shape)

    def direction_on_kinks(
        self, direction: Float[np.ndarray, "p"], kind: int, residual: Array
    ) -> Float[np.ndarray, "p"] | None:
        """Return the maximum of U on the sphere next to a direction at kinks; None if there is none, or no kink."""
        thetas, kinds = direction[None], np.array([kind])
        near = self.near_kinks(thetas, kinds)
        if near is None:
            return None
        level = self.utilities(thetas, kinds, residual)[0][0]

        def pieces(thetas: Float[np.ndarray, "1 p"], pattern: Float[np.ndarray, "1 N k"]) -> Pieces:
            given = np.asarray(self.degree), residual, np.asarray(level)
            return self._pieces(_utility_pieces, *given, thetas, kinds, pattern)

        found = minimum_on_kinks(pieces, thetas, *near)
        return None if found is None else found.thetas[0] / np.linalg.norm(found.thetas[0])

    def fastest_deviation(self, theta: Float[np.ndarray, "p"], kind: int, residual: Array) -> float:
        """Return the largest rate at which deviations between equal units grow, along the kinks that they are on."""
        near = self.near_kinks(theta[None], np.array([kind]))
        if near is None:
            return float(np.linalg.eigvalsh(self.force_hessian(theta, kind, residual))[-1])

        def pieces(thetas: Float[np.ndarray, "1 p"], pattern: Float[np.ndarray, "1 N k"]) -> Pieces:
            return self._pieces(_force_pieces, residual, thetas, np.array([kind]), pattern)

        return -float(np.min(curvatures_on_kinks(pieces, theta[None], *near), initial=np.inf))

    def norm_of_effect(
        self, thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"], direction: Float[np.ndarray, "p"],
        kind: int, utility: float,
    ) -> float:  # fmt: skip
        """Return the norm at which a new unit halves its own utility or leaves the loss's domain, by doubling; else 1.

        Args:
            thetas: weights of the other units.
            kinds: their kinds.
            direction: of the new unit.
            kind: its kind.
            utility: U of the direction.
        """
        present = self._call(_residual, *_padded(thetas, kinds))[2] if len(thetas) else jnp.zeros_like(self.origin[1])
        norm, found = self._call(_effect, present, direction, np.asarray(kind), np.asarray(utility, float))
        return float(norm) if found else 1.0

    def explicit_path(self, thetas: Float[np.ndarray, "b p"], kinds: Int[np.ndarray, "b"], limits: Limits) -> PathPoint:
        """Follow the flow of units by explicit steps; see the module of that name."""
        units, of_kind = _padded(thetas, kinds)
        _, velocity = self._call(_loss_gradient, units, of_kind)
        found = self._call(
            explicit_path,
            units,
            of_kind,
            -np.asarray(velocity),
            np.asarray(len(thetas), float),
            np.array(limits, float),
        )
        time, ends, fastest, peak, slow, steps, times, points = map(np.asarray, found)
        count, last = len(thetas), int(steps)
        return PathPoint(
            time=float(time),
            thetas=np.array(ends)[:count],
            fastest=float(fastest),
            peak=np.array(peak)[:count],
            slow=bool(slow),
            times=times[:last],
            points=points[:last, :count],
        )

    def stationary_direction(
        self, direction: Float[np.ndarray, "p"], kind: int, residual: Array
    ) -> Float[np.ndarray, "p"] | None:
        """Return the stationary direction of U on the sphere next to a direction, by Newton's method; None if none is.

        Entries below rounding are zero: weights that have no force at zero may not grow from rounding on the path.
        """
        if self.near_kinks(direction[None], np.array([kind])) is not None:
            found = self.direction_on_kinks(direction, kind, residual)
            return found if found is not None and np.linalg.norm(found - direction) <= _STILL else None
        found, left, way = self._call(_stationary, direction, np.asarray(kind), residual, np.asarray(_STILL))
        if not (way <= _STILL and left <= NEWTON.exact):
            return None
        u = np.array(found)
        u[np.abs(u) < NEWTON.exact] = 0.0
        return u


def _layout_of(parameters: PyTree) -> TreeLayout:
    leaves = jax.tree.leaves(parameters)
    if not leaves or any(not is_real(leaf) for leaf in leaves):
        raise InputError(
            f"parameters must be an array of real numbers, or a pytree of such arrays, of the shapes of one unit's "
            f"weights; got {shown(parameters)}. Its values do not matter: np.zeros(()) does for a number."
        )
    return TreeLayout.of(parameters)


def _padded(thetas: Float[np.ndarray, "a p"], kinds: Int[np.ndarray, "a"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the units followed by silent ones, up to a power of two: few numbers of units are compiled.

    They are at least two or four if they have few weights, for which silent units cost less than compiled code.
    """
    least = 1 << min(_FEW_WEIGHTS // thetas.shape[1], 4).bit_length() >> 1
    count = max(1 << max(len(thetas) - 1, 0).bit_length(), least)
    units, of_kind = np.zeros((count, thetas.shape[1])), np.zeros(count, kinds.dtype)
    units[: len(thetas)], of_kind[: len(kinds)] = thetas, kinds
    return units, of_kind

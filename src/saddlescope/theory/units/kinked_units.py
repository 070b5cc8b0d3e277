"""Units with kinks, such as ReLU neurons: their switches, and the unit with a given pattern or with rounded kinks.

s        a switch, whose sign selects one of two smooth branches: the argument of a ReLU, or a - b in max(a, b)
lambda   the pattern: 1 where s > 0, 0 where s < 0. At s = 0 the subgradients of the unit are those for lambda in [0, 1]
e        half the width over which a kink is rounded, in proportion to the typical |s| at weights of this norm

The switches are the maxima, minima, absolute values and choices by a comparison in the unit's computation that depend
on its weights. A unit rounded on this scale is as homogeneous as the unit, and equal to it outside |s| < e.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float, Int, PyTree

from saddlescope.theory.units.unit_system import UnitSystem

_ABOVE, _BELOW = {"gt", "ge"}, {"lt", "le"}
_CALLS = {"jit", "pjit", "closed_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_PROBES, _SAMPLES = 4, 8
_TOGETHER = 1e-12  # difference of switches in units of the largest that are one
_CONTINUOUS = 1e-6  # difference of the branches at a switch, relative to that elsewhere, without a jump


class _Value(NamedTuple):
    """A value in the computation of a unit.

    Attributes:
        value: the value.
        moves: True if it depends on the weights.
        switch: for a comparison, the number that is positive where it holds; else None.
    """

    value: Any
    moves: bool
    switch: Any = None


class _Computation:
    """Evaluation of a unit with other functions in place of its kinks.

    Args:
        above: above(s, k) is the part of s above 0, with k the number of the first entry of s among the switches.
        share: share(s, k) is 1 where s > 0 and 0 where s < 0.
        chooses: False to leave choices by a comparison as they are.
    """

    def __init__(
        self, above: Callable[[Array, int], Array], share: Callable[[Array, int], Array], *, chooses: bool
    ) -> None:
        self._above, self._share, self._chooses = above, share, chooses
        self.switches: list[Array] = []
        self.steps: list[Array] = []  # difference of the two branches of each choice, 0 for other switches

    def run(self, closed: ClosedJaxpr, values: Sequence[_Value]) -> list[_Value]:
        """Return the values of the outputs."""
        known = dict(zip(closed.jaxpr.invars, values, strict=True))
        known |= {v: _Value(c, False) for v, c in zip(closed.jaxpr.constvars, closed.consts, strict=True)}
        read = lambda v: _Value(v.val, False) if isinstance(v, Literal) else known[v]  # noqa: E731
        for equation in closed.jaxpr.eqns:
            made = self._step(equation, [read(v) for v in equation.invars])
            known |= dict(zip(equation.outvars, made, strict=True))
        return [read(v) for v in closed.jaxpr.outvars]

    def _step(self, equation: Any, values: list[_Value]) -> list[_Value]:
        name, moves = equation.primitive.name, any(one.moves for one in values)
        if moves and name in _CALLS:
            body = next((equation.params[key] for key in _BODIES if key in equation.params), None)
            if isinstance(body, ClosedJaxpr) and len(body.jaxpr.invars) == len(values):
                return self.run(body, values)
        real = all(jnp.issubdtype(jnp.result_type(one.value), jnp.floating) for one in values)
        if moves and real and name in {"max", "min", "abs"}:
            a = values[0].value
            b = values[1].value if len(values) == 2 else jnp.zeros_like(a)
            a, b = jnp.broadcast_arrays(a, b)
            s = a - b
            part = self._above(s, self._number(s, jnp.zeros_like(s)))
            made = b + part if name == "max" else a - part if name == "min" else 2 * part - a
            return [_Value(made, True)]
        if self._chooses and name == "select_n" and len(values) == 3 and values[0].switch is not None:
            s, (no, yes) = values[0].switch, (jnp.asarray(one.value) for one in values[1:])
            if jnp.issubdtype(jnp.result_type(no), jnp.floating) and jnp.shape(s) == jnp.shape(no):
                return [_Value(no + self._share(s, self._number(s, yes - no)) * (yes - no), True)]
        params = equation.primitive.get_bind_params(equation.params)
        subfuns, params = params if isinstance(params, tuple) else ((), params)  # a tuple before JAX 0.10
        found = equation.primitive.bind(*subfuns, *(one.value for one in values), **params)
        made = [_Value(one, moves) for one in (found if equation.primitive.multiple_results else [found])]
        if moves and real and name in _ABOVE | _BELOW:
            a, b = (one.value for one in values)
            made = [made[0]._replace(switch=a - b if name in _ABOVE else b - a)]
        return made

    def _number(self, s: Array, step: Array) -> int:
        first = sum(one.size for one in self.switches)
        self.switches.append(s)
        self.steps.append(step)
        return first


def _computed(computation: _Computation, unit: Callable[..., Array], tree: PyTree, rest: tuple[Any, ...]) -> Array:
    closed, shape = jax.make_jaxpr(unit, return_shape=True)(tree, *rest)
    weights, others = jax.tree.leaves(tree), jax.tree.leaves(rest)
    values = [*(_Value(one, True) for one in weights), *(_Value(one, False) for one in others)]
    (found,) = computation.run(closed, values)
    assert jnp.shape(found.value) == shape.shape
    return found.value


def _joined(arrays: list[Array]) -> Float[Array, "k"]:
    return jnp.concatenate([jnp.ravel(one) for one in arrays]) if arrays else jnp.zeros(0)


class PatternedUnit(eqx.Module):
    """A unit with its switches in sight.

    Attributes:
        unit: the unit.
        chooses: True if choices by a comparison are switches.
        same: for each place that switches, the number of its switch, which several may share; None: its own.
        sides: 1, or -1 where the place switches with the opposite sign.
    """

    unit: Callable[..., Array]
    chooses: bool = eqx.field(static=True)
    same: tuple[int, ...] | None = eqx.field(static=True, default=None)
    sides: tuple[int, ...] = eqx.field(static=True, default=())

    def switches(self, tree: PyTree, *rest: Any) -> tuple[Float[Array, "k"], Float[Array, "k"]]:
        """Return s, and the difference of the branches of each choice."""
        s, steps = self.places(tree, *rest)
        if self.same is None:
            return s, steps
        firsts = np.unique(self.same, return_index=True)[1]
        return s[firsts], steps[firsts]

    def places(self, tree: PyTree, *rest: Any) -> tuple[Float[Array, "l"], Float[Array, "l"]]:
        """Return the same for each place that switches."""
        positive = lambda s, k: (s > 0).astype(s.dtype)  # noqa: E731
        computation = _Computation(lambda s, k: jnp.maximum(s, 0.0), positive, chooses=self.chooses)
        _computed(computation, self.unit, tree, rest)
        return _joined(computation.switches), _joined(computation.steps)

    def with_pattern(self, pattern: Float[Array, "k"], tree: PyTree, *rest: Any) -> Array:
        """Return the output of the unit for a pattern of its switches."""
        if self.same is not None:
            of_places = pattern[np.array(self.same)]
            pattern = jnp.where(np.array(self.sides) > 0, of_places, 1 - of_places)

        def share(s: Array, k: int) -> Array:
            return pattern[k : k + s.size].reshape(s.shape)

        return _computed(_Computation(lambda s, k: share(s, k) * s, share, chooses=self.chooses), self.unit, tree, rest)


class RoundedUnit(eqx.Module):
    """A unit with rounded kinks, with continuous derivatives.

    Attributes:
        unit: the unit.
        chooses: as for `PatternedUnit`.
        widths: e at weights of norm 1 for each place that switches, shape (l,).
        degrees: powers of the norm with which the switches grow, shape (l,).
    """

    unit: Callable[..., Array]
    chooses: bool = eqx.field(static=True)
    widths: Float[Array, "l"]
    degrees: Float[Array, "l"]

    def __call__(self, tree: PyTree, *rest: Any) -> Array:
        """Return the output."""
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))
        alive = squares > 0
        norm = jnp.where(alive, jnp.sqrt(jnp.where(alive, squares, 1.0)), 0.0)
        widths = jnp.maximum(self.widths * norm**self.degrees, 1e-100)  # derivatives divide by its cube

        def scaled(s: Array, k: int) -> tuple[Array, Array]:
            e = widths[k : k + s.size].reshape(s.shape)
            return e, jnp.clip((s / e + 1) / 2, 0.0, 1.0)

        def above(s: Array, k: int) -> Array:
            e, z = scaled(s, k)
            return jnp.where(z < 1, e * z**2, s)

        def share(s: Array, k: int) -> Array:
            z = scaled(s, k)[1]
            return z**2 * (3 - 2 * z)

        return _computed(_Computation(above, share, chooses=self.chooses), self.unit, tree, rest)


class Kinks(NamedTuple):
    """The kinks of a unit.

    Attributes:
        unit: the unit with its switches in sight.
        widths: typical |s| at weights of norm 1, shape (k,).
        degrees: powers of the norm with which the switches grow, shape (k,).
    """

    unit: PatternedUnit
    widths: Float[np.ndarray, "k"]
    degrees: Float[np.ndarray, "k"]

    @classmethod
    def of(cls, system: UnitSystem, seed: int) -> "Kinks | None":
        """Return the kinks of a homogeneous unit; None if it has none, or some that are not understood."""
        rng = np.random.default_rng(seed)
        thetas = rng.standard_normal((_PROBES, system.layout.size))
        thetas /= np.linalg.norm(thetas, axis=1, keepdims=True)
        for chooses in (True, False):
            unit = PatternedUnit(system.unit, chooses)
            s, steps = _places(system, unit, np.concatenate([thetas, 2 * thetas]))
            if not s.size:
                continue
            sizes, twice = np.split(s, 2)
            scale, larger = (np.sqrt(np.mean(one**2, axis=(0, 1))) for one in (sizes, twice))
            if not np.all((scale > 0) & np.isfinite(larger)):
                return None
            unit, firsts = _with_shared_switches(unit, np.concatenate(sizes) / scale)
            degrees = np.log2(larger / scale)[firsts]
            whole = np.all(np.abs(degrees - np.round(degrees)) < 1e-6)
            if whole and (not chooses or not steps.any() or _continuous(system, unit, thetas[0])):
                return cls(unit, scale[firsts], np.round(degrees))
        return None

    def rounded(self, system: UnitSystem, width: float) -> UnitSystem:
        """Return the system of the unit with kinks rounded over this share of the typical |s|."""
        places = slice(None) if self.unit.same is None else np.array(self.unit.same)
        widths, degrees = (jnp.asarray(one[places]) for one in (width * self.widths, self.degrees))
        unit = RoundedUnit(self.unit.unit, self.unit.chooses, widths, degrees)
        return eqx.tree_at(lambda of: of.unit, system, unit, is_leaf=lambda leaf: leaf is system.unit)

    def sizes(self, thetas: Float[np.ndarray, "b p"]) -> Float[np.ndarray, "b k"]:
        """Return the typical |s| at weights of the norms of these."""
        return self.widths * np.linalg.norm(thetas, axis=1)[:, None] ** self.degrees


def switches_of(system: UnitSystem, unit: PatternedUnit, theta: Array, kind: Array) -> tuple[Array, Array]:
    """Return the switches of one unit on all samples, shape (N, k), and the differences of the branches."""
    tree, rest = system.layout.build(theta), () if system.kinds == 1 else (kind,)
    return jax.vmap(lambda x: unit.switches(tree, x, *rest))(system.inputs)


def output_with(system: UnitSystem, unit: PatternedUnit, theta: Array, kind: Array, pattern: Array) -> Array:
    """Return the outputs of one unit on all samples for a pattern of shape (N, k)."""
    tree, rest = system.layout.build(theta), () if system.kinds == 1 else (kind,)
    return jax.vmap(lambda x, of_sample: unit.with_pattern(of_sample, tree, x, *rest))(system.inputs, pattern)


def _places(
    system: UnitSystem, unit: PatternedUnit, thetas: Float[np.ndarray, "m p"]
) -> tuple[Float[np.ndarray, "m n l"], Float[np.ndarray, "m n l"]]:
    """Return the switches of all places on some samples, and the differences of the branches."""
    few = jax.tree.map(lambda leaf: leaf[:_SAMPLES], system.inputs)
    rest = () if system.kinds == 1 else (jnp.zeros((), int),)
    found = jax.vmap(lambda theta: jax.vmap(lambda x: unit.places(system.layout.build(theta), x, *rest))(few))
    s, steps = map(np.asarray, found(jnp.asarray(thetas)))
    return s, steps


def _with_shared_switches(
    unit: PatternedUnit, shapes: Float[np.ndarray, "n l"]
) -> tuple[PatternedUnit, Int[np.ndarray, "k"]]:
    """Return the unit with one switch for all places that switch together, and the first place of each switch.

    So max(z, 0) and min(z, 0) have one kink. The shapes are the values of the switches on a common scale.
    """
    firsts = list[int]()
    same, sides = list[int](), list[int]()
    for k, shape in enumerate(shapes.T):
        alike = (
            (n, side) for n, first in enumerate(firsts) for side in (1, -1) if _equal(shape, side * shapes[:, first])
        )
        number, side = next(alike, (len(firsts), 1))
        firsts += [k] if number == len(firsts) else []
        same.append(number)
        sides.append(side)
    if len(firsts) < len(same):
        unit = PatternedUnit(unit.unit, unit.chooses, tuple(same), tuple(sides))
    return unit, np.array(firsts)


def _equal(one: Float[np.ndarray, "n"], other: Float[np.ndarray, "n"]) -> bool:
    return bool(np.max(np.abs(one - other)) < _TOGETHER)


def _continuous(system: UnitSystem, unit: PatternedUnit, theta: Float[np.ndarray, "p"]) -> bool:
    """Return True if the branches of each choice agree where its switch is 0."""
    found = lambda at: switches_of(system, unit, at, jnp.zeros((), int))  # noqa: E731
    s, steps = map(np.asarray, found(jnp.asarray(theta)))
    for n in range(min(len(s), _SAMPLES)):
        for k in range(s.shape[1]):
            at = jnp.asarray(theta)
            for _ in range(5):
                value, slope = jax.value_and_grad(lambda theta, n=n, k=k: found(theta)[0][n, k])(at)
                at = at - value * slope / jnp.maximum(slope @ slope, 1e-300)
            left = float(jnp.abs(found(at)[1][n, k]))
            if left > _CONTINUOUS * float(np.max(np.abs(steps[:, k]))):
                return False
    return True

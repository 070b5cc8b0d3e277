"""A user's loss, compiled: value, gradient and Hessian columns at a flat float64 point.

A loss is any function of the parameters that JAX can differentiate twice. One that has the methods
`value_and_gradient(point)` or `hessian_columns(point, columns)`, such as a network with diagonal weights, computes
these itself. The arrays of an Equinox module are arguments of the compiled functions, never constants.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from saddlescope._shared.compiled_functions import bound, compiled, quickly_compiled
from saddlescope.numerics.tree_layout import TreeLayout

Loss = Callable[[PyTree], Array]


@dataclass(frozen=True)
class Evaluations:
    """Numbers of evaluations of a loss in a run.

    Attributes:
        gradients: evaluations of the gradient.
        hessians: evaluations of columns of the Hessian, one or more at a time.
        columns: columns of the Hessian in total.
        values: evaluations of the loss alone, at recorded times.
    """

    gradients: int = 0
    hessians: int = 0
    columns: int = 0
    values: int = 0


@dataclass(eq=False)
class CompiledLoss:
    """A compiled loss that counts its evaluations. Points are flat NumPy vectors, laid out by `layout`.

    Attributes:
        loss: the loss.
        layout: of its argument.
        exponent: the values and derivatives that it returns are divided by 2^exponent, except those of `at`.
    """

    loss: Loss
    layout: TreeLayout
    exponent: int = field(default=0, init=False)
    gradients: int = field(default=0, init=False)
    hessians: int = field(default=0, init=False)
    columns: int = field(default=0, init=False)
    values: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._gradient = bound(_value_and_gradient, self.loss, self.layout, count=1)

    @property
    def evaluations(self) -> Evaluations:
        """Numbers of evaluations so far."""
        return Evaluations(self.gradients, self.hessians, self.columns, self.values)

    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its gradient."""
        self.gradients += 1
        value, gradient = self._gradient(point)
        return self._scaled(float(value)), self._scaled(np.asarray(gradient))

    def _scaled(self, values: Any) -> Any:
        return np.ldexp(values, -self.exponent) if self.exponent else values

    def hessian_columns(self, point: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return some columns of the Hessian, shape (n, m)."""
        self.hessians += 1
        self.columns += len(columns)
        vector = len(self.layout.shapes) == 1 and len(self.layout.shapes[0]) == 1
        function = _own_hessian_columns if vector and hasattr(self.loss, "hessian_columns") else _hessian_columns

        def evaluate(some: np.ndarray) -> np.ndarray:
            return np.asarray(function(self.loss, self.layout, jnp.asarray(point), jnp.asarray(some)))

        if len(columns) <= _ONE_BY_ONE:
            return self._scaled(np.hstack([evaluate(column) for column in columns[:, None]]))
        size = next(size for size in (128, 1024, len(columns)) if size >= len(columns))
        padded = np.resize(columns, min(size, len(point)))  # few sizes: each is compiled once
        return self._scaled(evaluate(padded)[:, : len(columns)])

    def at(self, points: np.ndarray) -> np.ndarray:
        """Return the loss at many points, shape (k, n)."""
        self.values += len(points)
        if len(points) == 0:
            return np.zeros(0)
        rows = -len(points) % _BATCH + len(points)  # one compiled shape for any number of points
        padded = np.resize(points, (rows, points.shape[1])).reshape(-1, _BATCH, points.shape[1])
        values = [np.asarray(_values(self.loss, self.layout, jnp.asarray(batch))) for batch in padded]
        return np.concatenate(values)[: len(points)]


_BATCH = 32
_ONE_BY_ONE = 4  # columns at most that are computed one after the other, by one compiled function


def loss_and_gradient(loss: Loss, argument: PyTree) -> tuple[Array, PyTree]:
    """Return the loss and its gradient, by its own method where it has one; for compiled code."""
    if hasattr(loss, "value_and_gradient"):
        return loss.value_and_gradient(argument)  # pyright: ignore[reportFunctionMemberAccess]
    return jax.value_and_grad(loss)(argument)


def _flat(tree: PyTree) -> Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@compiled
def _value_and_gradient(loss: Loss, layout: TreeLayout, point: Array) -> tuple[Array, Array]:
    value, gradient = loss_and_gradient(loss, layout.build(point))
    return value, _flat(gradient)


@compiled
def _values(loss: Loss, layout: TreeLayout, points: Array) -> Array:
    return jax.lax.map(lambda point: loss(layout.build(point)), points)


@quickly_compiled
def _own_hessian_columns(loss: Any, layout: TreeLayout, point: Array, columns: Array) -> Array:
    return loss.hessian_columns(layout.build(point), columns)


@quickly_compiled
def _hessian_columns(loss: Loss, layout: TreeLayout, point: Array, columns: Array) -> Array:
    def gradient(at: Array) -> Array:
        return _flat(jax.grad(loss)(layout.build(at)))

    def column(index: Array) -> Array:
        direction = jnp.zeros_like(point).at[index].set(1)
        return jax.jvp(gradient, (point,), (direction,))[1]

    return jax.lax.map(column, columns, batch_size=8).T

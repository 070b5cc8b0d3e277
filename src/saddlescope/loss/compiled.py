"""A user's loss, compiled: value, gradient and Hessian columns at a flat float64 point.

A loss is any function of the parameters that JAX can differentiate twice, or an `AbstractLoss` that computes its
derivatives itself. The arrays of a loss are arguments of the compiled functions, never constants.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from saddlescope._shared.compiled_functions import bound, compiled, quickly_compiled
from saddlescope.loss.abstract_loss import AbstractLoss, as_loss
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
        loss: the loss; a bare function is wrapped.
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
        self._loss = as_loss(self.loss)
        self._gradient = bound(_value_and_gradient, self._loss, self.layout, count=1)

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

        def evaluate(some: np.ndarray) -> np.ndarray:
            return np.asarray(_hessian_columns(self._loss, self.layout, jnp.asarray(point), jnp.asarray(some)))

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
        values = [np.asarray(_values(self._loss, self.layout, jnp.asarray(batch))) for batch in padded]
        return np.concatenate(values)[: len(points)]


_BATCH = 32
_ONE_BY_ONE = 4  # columns at most that are computed one after the other, by one compiled function


def loss_and_gradient(loss: Loss, argument: PyTree) -> tuple[Array, PyTree]:
    """Return the loss and its gradient, of an `AbstractLoss` by its own method; for compiled code."""
    return as_loss(loss).value_and_gradient(argument)


def _flat(tree: PyTree) -> Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@compiled
def _value_and_gradient(loss: AbstractLoss, layout: TreeLayout, point: Array) -> tuple[Array, Array]:
    value, gradient = loss.value_and_gradient(layout.build(point))
    return value, _flat(gradient)


@compiled
def _values(loss: AbstractLoss, layout: TreeLayout, points: Array) -> Array:
    return jax.lax.map(lambda point: loss(layout.build(point)), points)


@quickly_compiled
def _hessian_columns(loss: AbstractLoss, layout: TreeLayout, point: Array, columns: Array) -> Array:
    return loss.hessian_columns(layout.build(point), columns)

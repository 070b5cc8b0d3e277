"""A user's loss, checked and compiled: value, gradient and Hessian columns at a flat float64 point.

A loss is any function of the parameters that JAX can differentiate twice. One that has the methods
`value_and_gradient(point)` or `hessian_columns(point, columns)`, as networks with diagonal weights here do, is asked
for them.
Its arrays travel as arguments of the compiled functions, never as constants, when it is an Equinox module.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import require, shown
from saddlescope._shared.errors import InputError
from saddlescope.flow.diagonal.coordinates import TreeLayout

Loss = Callable[[PyTree], Array]

_FLOAT64 = "`with jax.enable_x64(True):` around the call, or set JAX_ENABLE_X64=1"


@dataclass(frozen=True)
class Evaluations:
    """What a run asked of its loss.

    Attributes:
        gradients: evaluations of the gradient.
        hessians: evaluations of columns of the Hessian, one or more at a time.
        columns: how many columns these were in all.
        values: evaluations of the loss alone, for the record.
    """

    gradients: int = 0
    hessians: int = 0
    columns: int = 0
    values: int = 0


@dataclass(eq=False)
class CompiledLoss:
    """Counts its own evaluations. Points are flat NumPy vectors, laid out by `layout`."""

    loss: Loss
    layout: TreeLayout
    gradients: int = field(default=0, init=False)
    hessians: int = field(default=0, init=False)
    columns: int = field(default=0, init=False)
    values: int = field(default=0, init=False)

    @property
    def evaluations(self) -> Evaluations:
        """The counts so far."""
        return Evaluations(self.gradients, self.hessians, self.columns, self.values)

    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        self.gradients += 1
        value, gradient = _value_and_gradient(self.loss, self.layout, jnp.asarray(point))
        return float(value), np.asarray(gradient)

    def hessian_columns(self, point: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Some columns of the Hessian, shape (n, m)."""
        self.hessians += 1
        self.columns += len(columns)
        size = next(size for size in (1, 4, 128, 1024, len(columns)) if size >= len(columns))
        size = min(size, len(point))  # few sizes: each is compiled once
        padded = jnp.asarray(np.resize(columns, size))
        vector = len(self.layout.shapes) == 1 and len(self.layout.shapes[0]) == 1
        function = _own_hessian_columns if vector and hasattr(self.loss, "hessian_columns") else _hessian_columns
        return np.asarray(function(self.loss, self.layout, jnp.asarray(point), padded))[:, : len(columns)]

    def at(self, points: np.ndarray) -> np.ndarray:
        """The loss at many points, shape (k, n)."""
        self.values += len(points)
        if len(points) == 0:
            return np.zeros(0)
        rows = -len(points) % _BATCH + len(points)  # one compiled shape for any number of points
        padded = np.resize(points, (rows, points.shape[1])).reshape(-1, _BATCH, points.shape[1])
        values = [np.asarray(_values(self.loss, self.layout, jnp.asarray(batch))) for batch in padded]
        return np.concatenate(values)[: len(points)]


_BATCH = 32


def loss_and_gradient(loss: Loss, argument: PyTree) -> tuple[Array, PyTree]:
    """The loss and its gradient, by its own method where it has one; to be called in compiled code."""
    if hasattr(loss, "value_and_gradient"):
        return loss.value_and_gradient(argument)  # pyright: ignore[reportFunctionMemberAccess]
    return jax.value_and_grad(loss)(argument)


def _flat(tree: PyTree) -> Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@eqx.filter_jit
def _value_and_gradient(loss: Loss, layout: TreeLayout, point: Array) -> tuple[Array, Array]:
    value, gradient = loss_and_gradient(loss, layout.build(point))
    return value, _flat(gradient)


@eqx.filter_jit
def _values(loss: Loss, layout: TreeLayout, points: Array) -> Array:
    return jax.lax.map(lambda point: loss(layout.build(point)), points)


@eqx.filter_jit
def _own_hessian_columns(loss: Any, layout: TreeLayout, point: Array, columns: Array) -> Array:
    return loss.hessian_columns(layout.build(point), columns)


@eqx.filter_jit
def _hessian_columns(loss: Loss, layout: TreeLayout, point: Array, columns: Array) -> Array:
    def gradient(at: Array) -> Array:
        return _flat(jax.grad(loss)(layout.build(at)))

    def column(index: Array) -> Array:
        direction = jnp.zeros_like(point).at[index].set(1)
        return jax.jvp(gradient, (point,), (direction,))[1]

    return jax.lax.map(column, columns, batch_size=8).T


def require_float64(loss: Loss, argument: PyTree) -> None:
    """Refuses what would silently be computed in single precision, and what is no loss.

    Raises:
        InputError: JAX is in float32 mode, the loss holds float32 arrays, it does not map the argument to a float64
            number, or JAX cannot differentiate it.
    """
    if jnp.result_type(float) != jnp.float64:
        raise InputError(
            f"JAX must be in float64 mode for a flow from small weights; got float32 mode. Use {_FLOAT64}."
        )
    for leaf in jax.tree.leaves(eqx.filter(loss, eqx.is_inexact_array)):
        if leaf.dtype != jnp.float64:
            raise InputError(
                f"loss must hold float64 arrays only; got one of {leaf.dtype!s}. Make its data in float64: "
                f"{_FLOAT64}, before the arrays are made."
            )
    try:
        out = eqx.filter_eval_shape(loss, jax.tree.map(jnp.asarray, argument))
    except (TypeError, ValueError, IndexError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"loss must be a JAX function of the parameters it starts from; got {reason!r}. Write it with "
            "jax.numpy, and check the shapes."
        ) from error
    if getattr(out, "shape", None) != () or out.dtype != jnp.float64:
        raise InputError(f"loss must return one float64 number; got {out!r}.")
    try:
        eqx.filter_eval_shape(loss_and_gradient, loss, jax.tree.map(jnp.asarray, argument))
    except (TypeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"loss must be a function that JAX can differentiate; got {reason!r}. Write it with jax.numpy, or give it "
            "the methods value_and_gradient and hessian."
        ) from error


def require_numbers(name: str, tree: PyTree) -> None:
    """Refuses a pytree that is not one of arrays of real numbers.

    Raises:
        InputError: it has no leaves, or one that is no such array.
    """
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise InputError(f"{name} must be a pytree with one array or more; got {shown(tree)}.")
    for leaf in leaves:
        require(name, leaf, ArrayLike)


def require_finite(value: float, gradient: np.ndarray) -> None:
    """Refuses a loss that is not finite where the run starts.

    Raises:
        InputError: the loss or an entry of its gradient is NaN or infinite.
    """
    bad = int(np.sum(~np.isfinite(gradient)))
    if not np.isfinite(value) or bad:
        raise InputError(
            f"loss must be finite with a finite gradient at the start; got {value!r} and {bad} entries of the "
            "gradient that are NaN or infinite. Look for NaN in its data, log(0), or 0/0 in its derivative."
        )


def require_smooth_at_zero(gradient: Callable[[np.ndarray], np.ndarray], size: int) -> None:
    """Refuses a loss with a kink at 0, such as |beta|, on which every flow from small weights would be wrong.

    The difference of the gradients on both sides of 0 at distance e is of order e for a twice continuously
    differentiable loss; it is measured along random directions at e = 1e-6 and 1e-8.

    Raises:
        InputError: the difference does not shrink with the distance.
    """
    rng = np.random.default_rng(0)
    for direction in rng.standard_normal((2, size)):
        sides = [[gradient(sign * distance * direction) for sign in (1, -1)] for distance in (1e-6, 1e-8)]
        wide, narrow = (float(np.max(np.abs(right - left))) for right, left in sides)
        magnitude = float(np.max(np.abs(sides)))
        if narrow > wide / 30 and narrow > 1e-9 * magnitude:
            raise InputError(
                "loss must be twice continuously differentiable at beta = 0; got gradients on both sides of 0 that "
                f"differ by {narrow:.3g} at a distance of 1e-8. Replace |beta|, relu and the like by smooth functions."
            )

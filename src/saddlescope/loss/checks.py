"""Checks of losses and parameters: float64, finite, differentiable, smooth at 0."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import calling, require, shown
from saddlescope._shared.compiled_functions import eval_shape, program
from saddlescope._shared.errors import InputError
from saddlescope.loss.abstract_loss import as_loss
from saddlescope.loss.compiled import Loss, loss_and_gradient

ROUGH = 1e-7  # rounding of a gradient, relative to its terms, with which no minimum is certain


def require_float64_throughout(name: str, function: Callable[..., Any], *arguments: PyTree) -> None:
    """Raise where a function computes with floating-point numbers of less than 64 bits.

    An array of JAX that was made in float32 mode has lost its digits; float64 mode does not bring them back.

    Args:
        name: of the function, for an error.
        function: of pytrees of arrays, such as a loss.
        *arguments: arrays of the shapes of its arguments.

    Raises:
        InputError: it holds such an array or has one in its closure, or computes one on the way.
    """
    programs, seen = [program(function, *arguments)], set()
    while programs:
        one = programs.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for equation in one.eqns:
            for value in (*equation.invars, *equation.outvars):
                _require_double(name, value.aval)
            inner = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
            programs += [getattr(part, "jaxpr", part) for part in inner if _is_program(part)]


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _require_double(name: str, value: Any) -> None:
    kind = getattr(value, "dtype", None)
    if kind is not None and jnp.issubdtype(kind, jnp.inexact) and jnp.finfo(kind).bits < 64:
        raise InputError(
            f"{name} must compute in float64; got {kind!s} values of {shapes_of(value)} on the way. Compute its arrays "
            "under jax.enable_x64(True) or copy them with np.array(..., np.float64), and leave out casts to lower "
            "precision."
        )


def require_float64_loss(
    loss: Loss,
    argument: PyTree,
    *,
    name: str = "the parameters it starts from",
    twice: bool = False,
) -> None:
    """Raise unless the loss is differentiable by JAX and computed in float64 throughout.

    Args:
        loss: the loss.
        argument: zeros of the shapes of its argument.
        name: of the loss's argument, for an error.
        twice: True to take columns of the Hessian, too; of a loss of a vector.

    Raises:
        InputError: the loss holds float32 arrays or computes with them, it does not map the argument to a float64
            number, or JAX cannot differentiate it.
    """
    if not callable(loss):
        raise InputError(f"loss must be a JAX function of {name}; got {loss!r}.")
    for leaf in jax.tree.leaves(eqx.filter(loss, eqx.is_inexact_array)):
        _require_double("loss", leaf)
    arrays = jax.tree.map(jnp.asarray, argument)
    with calling(
        f"loss must be a JAX function of {name}, of {shapes_of(arrays)}",
        "Write it with jax.numpy, and check the shapes.",
    ):
        out = eval_shape(loss, arrays)
    if getattr(out, "shape", None) != () or out.dtype != jnp.float64:
        raise InputError(
            f"loss must return one float64 number; got {shown(out)}. Average over the samples, in float64."
        )
    with calling(
        "loss must be a function that JAX can differentiate" + (" twice" if twice else ""),
        "Write it with jax.numpy, or subclass saddlescope.loss.AbstractLoss and write value_and_gradient and "
        "hessian_columns.",
    ):
        eval_shape(loss_and_gradient, loss, arrays)
        require_float64_throughout("loss", loss_and_gradient, loss, arrays)
        if twice:
            eval_shape(as_loss(loss).hessian_columns, arrays, jnp.zeros(1, int))


def shapes_of(tree: PyTree) -> str:
    """Return the shapes of a pytree's arrays, in words."""
    shapes = [str(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree)]
    return f"shape {shapes[0]}" if len(shapes) == 1 else f"shapes {', '.join(shapes)}"


def as_float64(name: str, array: Any) -> np.ndarray:
    """Return a finite float64 array as a NumPy array.

    Raises:
        InputError: it is no array of float64, or not finite.
    """
    if not isinstance(array, np.ndarray | jax.Array) or array.dtype != np.float64:
        got = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{name} must be float64 arrays; got {got!s}. Convert them with np.asarray(..., np.float64).")
    array = np.asarray(array)
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite; got {int(np.sum(~np.isfinite(array)))} NaN or infinite entries.")
    return array


def require_numbers(name: str, tree: PyTree) -> None:
    """Raise unless a pytree consists of arrays of real numbers.

    Raises:
        InputError: it has no leaves, or one that is no such array.
    """
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise InputError(f"{name} must be a pytree with one array or more; got {shown(tree)}.")
    for leaf in leaves:
        require(name, leaf, ArrayLike)


def require_float_type(name: str, tree: PyTree) -> Any:
    """Return the floating-point type that all arrays of a pytree have.

    Raises:
        InputError: they have several types, or no floating-point one.
    """
    types = {leaf.dtype for leaf in jax.tree.leaves(tree)}
    if len(types) != 1 or not all(jnp.issubdtype(kind, jnp.floating) for kind in types):
        raise InputError(f"{name} must be arrays of one floating-point type; got {sorted(map(str, types))!r}.")
    return types.pop()


def require_scalar(name: str, function: Callable[..., Any], arguments: tuple[Any, ...], kind: Any) -> None:
    """Raise unless a function returns one number of a type.

    Raises:
        InputError: it fails, or returns something else.
    """
    with calling(f"{name} must accept weights of {shapes_of(arguments[-1])}", "Check the shapes."):
        shape = eval_shape(function, *arguments)
    if getattr(shape, "shape", None) != () or shape.dtype != kind:
        raise InputError(
            f"{name} must give one {kind!s} number, the type of the weights; got {shown(shape)}. Create its "
            "arrays in that type."
        )


def require_finite(value: float, gradient: np.ndarray) -> None:
    """Raise unless the loss and its gradient are finite where the run starts.

    Raises:
        InputError: the loss or an entry of its gradient is NaN or infinite.
    """
    bad = int(np.sum(~np.isfinite(gradient)))
    if not np.isfinite(value) or bad:
        raise InputError(
            f"loss must be finite with a finite gradient at the start; got {value!r} and {bad} entries of the "
            "gradient that are NaN or infinite. Look for NaN in its data, log(0), or 0/0 in its derivative."
        )


def require_start_at_zero(
    value_and_gradient: Callable[[np.ndarray], tuple[Any, np.ndarray]], size: int, name: str
) -> None:
    """Raise unless a loss is finite and smooth at 0, where learning starts.

    Args:
        value_and_gradient: of the loss, a function of a flat vector.
        size: of the vector.
        name: of the loss's argument, for an error.

    Raises:
        InputError: the loss or its gradient is NaN or infinite at 0, or `require_smooth_at_zero` fails.
    """
    value, slope = value_and_gradient(np.zeros(size))
    bad = slope[~np.isfinite(slope)]
    if not np.isfinite(value) or bad.size:
        beside = [value_and_gradient(np.full(size, distance))[1] for distance in (-1e-7, 1e-7)]
        if np.isfinite(value) and np.isfinite(beside).all():
            raise InputError(
                f"loss must have a gradient at {name} = 0, where learning starts; got {float(bad[0])!r} there, and "
                "finite ones on both sides. Replace norms and roots, which have a kink at 0, by smooth functions or "
                "weight decay, and x log x by one that JAX can differentiate at 0."
            )
        raise InputError(
            f"loss must be finite with a finite gradient at {name} = 0, where learning starts; got "
            f"{float(bad[0]) if np.isfinite(value) else float(value)!r}. Look for a division, root or logarithm of "
            f"{name}, and for NaN in the data."
        )
    require_smooth_at_zero(lambda at: value_and_gradient(at)[1], size, name)


def require_smooth_at_zero(gradient: Callable[[np.ndarray], np.ndarray], size: int, name: str = "beta") -> None:
    """Raise if the loss has a kink at 0, such as |beta|: every flow from small weights would be wrong.

    The difference of the gradients on both sides of 0 at distance e is of order e for a twice continuously
    differentiable loss. It is measured along a random direction at pairs of distances, smaller and smaller, since the
    scale on which the loss is smooth is not known: a kink shows at all of them.

    Args:
        gradient: of the loss, a function of a flat vector.
        size: of the vector.
        name: of the loss's argument, for an error.

    Raises:
        InputError: the difference does not shrink with the distance.
    """
    rng = np.random.default_rng(0)
    direction = rng.choice([-1.0, 1.0], size) * rng.uniform(0.5, 1.0, size)

    def apart(distance: float) -> tuple[float, float]:
        """Return the difference of the gradients on both sides, and their rounding."""
        left, right = (gradient(sign * distance * direction) for sign in (-1, 1))
        with np.errstate(invalid="ignore"):  # a gradient that is NaN next to 0 jumps there
            return float(np.max(np.abs(right - left))), 1e-12 * float(np.max(np.abs([left, right])))

    def shrinks(distance: float) -> bool:
        (far, _), (near, rounding) = apart(100 * distance), apart(distance)
        # Twice differentiable: near / far = 1e-2, the ratio of the distances; a jump: 1; |beta|^(3/2): 0.1.
        return near <= 0.05 * far + rounding

    if not any(map(shrinks, (1e-7, 1e-9, 1e-11, 1e-13, 1e-15))):
        raise InputError(
            f"loss must be twice continuously differentiable at {name} = 0; got gradients on both sides of 0 that "
            f"differ by {apart(1e-7)[0]:.3g} at a distance of 1e-07. Replace |{name}|, norms, relu and the like by "
            "smooth functions, such as GeLU; for the l1 or nuclear norm, predictions take weight_decay."
        )


def rounding_share(
    gradient: Callable[[np.ndarray], np.ndarray], at: np.ndarray, along: np.ndarray, terms: float
) -> float:
    """Return the rounding of a gradient next to a point, relative to the terms that cancel in it, if above 1e-11.

    The gradient is compared with its linear part 1e-6 away, where the rest of a smooth loss is of order 1e-12.

    Args:
        gradient: of a loss, a function of a vector.
        at: the point.
        along: the derivative of the gradient there, times the point.
        terms: size of the terms.
    """
    here = gradient(at)
    errors = [float(np.max(np.abs(gradient(at * (1 + e)) - here - e * along))) for e in (-2e-6, 1e-6, 3e-6)]
    return max(errors) / terms if terms > 0 else 0.0

"""A loss as the theory sees it: L, its descent direction g and its curvature at any beta, compiled once.

L       the loss, a function of beta in R^p
g       -dL/dbeta (equation 4)
H       d^2 L / dbeta^2
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from saddlescope.errors import InputError

_PROBE_SIZES = (1e-5, 1e-7)  # far above rounding in g, far below the features of a loss in sensible units


class NotFinite(Exception):  # noqa: N818 - it reports where the path left the loss's domain; it may be recovered
    """The loss, its gradient or its Hessian is NaN or infinite at some beta.

    Attributes:
        size: the largest |beta_i| there.
    """

    def __init__(self, size: float) -> None:
        super().__init__(f"not finite where the largest |beta| is {size:.3g}")
        self.size = size


@eqx.filter_jit
def _loss(loss: Callable[[Array], Array], beta: Float[Array, "p"]) -> tuple[Array, Array]:
    return jax.value_and_grad(loss)(beta)


@eqx.filter_jit
def _method(loss: Any, name: str, beta: Float[Array, "p"]) -> Any:
    return getattr(loss, name)(beta)


@eqx.filter_jit
def _columns(
    loss: Callable[[Array], Array], beta: Float[Array, "p"], columns: Int[Array, "p"], count: Int[Array, ""]
) -> Float[Array, "p p"]:
    """H's first `count` named columns. Their number is an argument, not a shape: one compilation serves all."""
    times = jax.linearize(jax.grad(loss), beta)[1]

    def write(n: Int[Array, ""], H: Float[Array, "p p"]) -> Float[Array, "p p"]:
        column = times(jnp.zeros_like(beta).at[columns[n]].set(1.0))
        return H.at[:, columns[n]].set(column)

    return jax.lax.fori_loop(0, count, write, jnp.zeros((beta.size, beta.size), beta.dtype))


class Landscape:
    """L, g and H of a loss, as NumPy float64 arrays.

    A loss that is an Equinox module (every `DiagonalNetwork`) compiles once for all data of the same shape. Its own
    `value_and_gradient(beta)` and `hessian(beta)` are used where it has them; else both come by differentiating it.

    Args:
        loss: L(beta), a JAX function of an array of shape (size,).
        size: the number p of coordinates of beta.

    Raises:
        InputError: JAX is not in float64 mode, the loss cannot be called on such an array or does not return one
            float64 number, it or its gradient is not finite at 0, or its gradient jumps at 0.
    """

    def __init__(self, loss: Callable[[Array], Array], size: int) -> None:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise InputError(f"size must be an integer of at least 1, the length of beta; got {size!r}.")
        if not callable(loss):
            raise InputError(f"loss must be a JAX function of beta, such as a DiagonalNetwork; got {loss!r}.")
        if jnp.zeros(0).dtype != jnp.dtype("float64"):
            raise InputError(
                "incremental_learning must be called in JAX's float64 mode; got float32 mode. "
                "Use `with jax.enable_x64(True):` or set JAX_ENABLE_X64=1."
            )
        self.loss = loss
        self.size = int(size)
        self._last: tuple[Float[np.ndarray, "p"], Float[np.ndarray, "p p"]] | None = None
        self._check_signature()
        self._check_smooth_at_zero()

    def value_and_gradient(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        """L(beta) and g(beta) = -dL/dbeta.

        Raises:
            NotFinite: one of them is NaN or infinite.
        """
        value, slope = self._value_and_slope(beta)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            raise NotFinite(float(np.max(np.abs(beta))))
        return value, -slope

    def hessian(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        """The rows and columns `among` of H(beta).

        Raises:
            NotFinite: an entry is NaN or infinite.
        """
        H = self._own_hessian(beta) if hasattr(self.loss, "hessian") else self._by_columns(beta, among)
        restricted = H[np.ix_(among, among)]
        if not np.all(np.isfinite(restricted)):
            raise NotFinite(float(np.max(np.abs(beta))))
        return restricted

    def _value_and_slope(self, beta: Float[np.ndarray, "p"]) -> tuple[float, Float[np.ndarray, "p"]]:
        own = hasattr(self.loss, "value_and_gradient")
        at = jnp.asarray(beta)
        value, slope = _method(self.loss, "value_and_gradient", at) if own else _loss(self.loss, at)
        return float(value), np.asarray(slope)

    def _own_hessian(self, beta: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p p"]:
        # A stage's end is the next one's start: the full matrix is asked for twice at each stationary point.
        if self._last is None or not np.array_equal(self._last[0], beta):
            H = np.asarray(_method(self.loss, "hessian", jnp.asarray(beta)))
            self._last = (beta.copy(), H)
        return self._last[1]

    def _by_columns(self, beta: Float[np.ndarray, "p"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "p p"]:
        columns = np.zeros(self.size, dtype=np.int64)
        columns[: among.size] = among
        return np.asarray(_columns(self.loss, jnp.asarray(beta), jnp.asarray(columns), jnp.asarray(among.size)))

    def _check_signature(self) -> None:
        beta = jax.ShapeDtypeStruct((self.size,), jnp.dtype("float64"))
        try:
            value = eqx.filter_eval_shape(self.loss, beta)
        except (TypeError, ValueError, IndexError) as error:
            reason = str(error).strip().split("\n")[0]
            raise InputError(
                f"loss must accept a float64 array of shape ({self.size},) under jax.jit; got {reason!r}. "
                "Check that size is the length of beta and that the loss is written with jax.numpy."
            ) from error
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape != () or dtype != jnp.dtype("float64"):
            raise InputError(
                "loss must return one float64 number, an array of shape (); "
                f"got {f'{dtype} of shape {shape}' if dtype is not None else value!r}. "
                "Keep data and computation in float64 and average over the samples."
            )

    def _check_smooth_at_zero(self) -> None:
        """A kink at 0 (ReLU of x . beta, |beta|) makes g jump; a smooth loss makes it move in proportion."""
        zero = np.zeros(self.size)
        value, slope = self._value_and_slope(zero)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            what = value if not np.isfinite(value) else float(slope[~np.isfinite(slope)][0])
            raise InputError(
                f"loss must be finite with a finite gradient at beta = 0, where learning starts; got {what!r}. "
                "Look for a division, root or logarithm of beta, and for NaN in the data."
            )
        rng = np.random.default_rng(0)
        direction = rng.choice([-1.0, 1.0], self.size) * rng.uniform(0.5, 1.0, self.size)
        far, near = (
            np.max(np.abs(self._value_and_slope(h * direction)[1] - self._value_and_slope(-h * direction)[1]))
            for h in _PROBE_SIZES
        )
        noise = 1e-12 * float(np.max(np.abs(slope))) + 1e-13 * abs(value)  # what rounding alone may change
        # C^2: near / far = 1e-2, the ratio of the sizes; a jump: 1; |beta|^(3/2): 0.1.
        if not near <= 0.05 * far + noise:
            raise InputError(
                "loss must be twice continuously differentiable at beta = 0; got a gradient that changes by "
                f"{float(near):.3g} within {_PROBE_SIZES[1]:.0e} of it. Replace ReLU or |beta| by something smooth, "
                "such as GeLU."
            )

"""Where a run starts: at products of small weights, at any parameters, or where another run ended."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.diagonal.coordinates import (
    AbstractCoordinates,
    AbstractFlowCoordinates,
    MirrorCoordinates,
    ParameterCoordinates,
    TreeLayout,
    WeightPairCoordinates,
)


class AbstractInit(ABC):
    """Initial parameters, and the coordinates in which they are followed."""

    @abstractmethod
    def flow_coordinates(self) -> AbstractFlowCoordinates:
        """The coordinates for gradient flow."""

    @abstractmethod
    def origin(self) -> np.ndarray:
        """The initial state in `flow_coordinates`."""

    @abstractmethod
    def descent_coordinates(self) -> AbstractCoordinates:
        """The coordinates for gradient descent: the parameters, flattened."""

    @abstractmethod
    def parameters(self) -> PyTree:
        """The initial parameters in float64.

        Raises:
            InputError: they are too small for float64.
        """

    @property
    @abstractmethod
    def argument(self) -> Callable[[PyTree], PyTree]:
        """From parameters to the argument of the loss. Always the same function, so that it is compiled once."""

    @abstractmethod
    def at(self, parameters: PyTree) -> "AbstractInit":
        """A start of this kind at other parameters."""


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class DiagonalInit(AbstractInit, ReprMixin):
    """A network with diagonal weights, theta(0) = alpha (u, v): the loss is a function of beta = u * v.

    Time is told in units of log(1/alpha): the rescaled time t / log(1/alpha) of Theorem 4.1 of Boix-Adsera et al.
    (2023), in which stages stay where they are as alpha vanishes.

    Args:
        u: the initial weights u before they are scaled, shape (p,). A coordinate with |u| = |v| keeps the sign of
            its product for ever, the degenerate case that the paper excludes: see `degenerate`.
        v: the initial weights v before they are scaled, shape (p,).
        log_scale: log(alpha), negative. Only this logarithm is used, so alpha may be far below what float64 can
            hold: -9431.3 is alpha = 1e-4096.

    Raises:
        InputError: u and v are not finite float64 vectors of one length, or log_scale is not negative.
    """

    u: Float[Any, "..."]
    v: Float[Any, "..."]
    log_scale: float

    def __post_init__(self) -> None:
        for name in ("u", "v"):
            object.__setattr__(self, name, as_float64(name, getattr(self, name)))
        if self.u.shape != self.v.shape or self.u.ndim != 1 or self.u.size == 0:
            raise InputError(
                "u and v must be vectors of one length, at least 1; "
                f"got the shapes {self.u.shape!r} and {self.v.shape!r}."
            )
        if not -np.inf < self.log_scale < 0:
            raise InputError(
                f"log_scale must be finite and negative, as log(alpha) is for alpha < 1; got {self.log_scale!r}. "
                "Weights that are not small need no rescaled time: start a loss of (u, v) from ParameterInit((u, v))."
            )

    @property
    def degenerate(self) -> tuple[int, ...]:
        """The coordinates with |u| = |v|, which Theorem 4.1 excludes: their products keep their sign for ever.

        If such a coordinate's sign is not the one that it should be learned with, it is never learned; one with
        u = v = 0 stays 0. The flow follows them exactly; Algorithm 1 does not know of them.
        """
        return tuple(int(i) for i in np.flatnonzero(np.abs(self.u) == np.abs(self.v)))

    def flow_coordinates(self) -> MirrorCoordinates:
        """Coordinates into which only log(alpha) enters."""
        u, v = self.u, self.v
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(np.abs(u) > np.abs(v), v / u, u / v)
            return MirrorCoordinates(
                p=2 * (self.log_scale - np.log(2) + np.log(np.abs(u + v))),
                q=2 * (self.log_scale - np.log(2) + np.log(np.abs(u - v))),
                gap=np.where((u == 0) & (v == 0), 0.0, 2 * np.arctanh(ratio)),
                sum_sign=np.where(u + v < 0, -1.0, 1.0),
                difference_sign=np.where(u - v < 0, -1.0, 1.0),
                layout=TreeLayout.of(u),
                rate=-self.log_scale,
            )

    def origin(self) -> np.ndarray:
        """Zero."""
        return np.zeros_like(self.u)

    def descent_coordinates(self) -> WeightPairCoordinates:
        """The weights u and v, one after the other."""
        return WeightPairCoordinates(layout=TreeLayout.of(self.u), rate=-self.log_scale, time_unit="t / log(1/alpha)")

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights alpha u and alpha v."""
        alpha = np.exp(self.log_scale)
        product = (alpha * self.u) * (alpha * self.v)
        if np.any((self.u * self.v != 0) & (np.abs(product) < np.finfo(float).tiny)):
            raise InputError(
                f"log_scale must be at least about -350 for gradient descent in float64, where products of smaller "
                f"weights underflow; got {self.log_scale!r}. Use gradient_flow, which works at any scale."
            )
        return alpha * self.u, alpha * self.v

    @property
    def argument(self) -> Callable[[PyTree], PyTree]:
        """From (u, v) to the products beta."""
        return product

    def at(self, parameters: PyTree) -> "DiagonalInit":
        """The same initial scale with other weights (not divided by alpha)."""
        u, v = (np.asarray(w) / np.exp(self.log_scale) for w in parameters)
        return DiagonalInit(u, v, self.log_scale)


@dataclass(frozen=True, eq=False)
class ParameterInit(AbstractInit):
    """Any parameters of any loss, in their own coordinates and in plain time t.

    Args:
        params: a pytree of float64 arrays, the argument of the loss.

    Raises:
        InputError: params have no entries, or a leaf is not a finite float64 array.
    """

    params: PyTree

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", jax.tree.map(lambda leaf: as_float64("params", leaf), self.params))
        if self.origin().size == 0:
            raise InputError(f"params must have at least one entry; got {self.params!r}.")

    def flow_coordinates(self) -> ParameterCoordinates:
        """The parameters, flattened."""
        size = float(np.sqrt(np.mean(self.origin() ** 2)))
        return ParameterCoordinates(layout=TreeLayout.of(self.params), scale=size or 1.0)

    def origin(self) -> np.ndarray:
        """The parameters, flattened."""
        return TreeLayout.of(self.params).flatten(self.params)

    def descent_coordinates(self) -> ParameterCoordinates:
        """The parameters, flattened."""
        return self.flow_coordinates()

    def parameters(self) -> PyTree:
        """The params given."""
        return self.params

    @property
    def argument(self) -> Callable[[PyTree], PyTree]:
        """The identity."""
        return _identity

    def at(self, parameters: PyTree) -> "ParameterInit":
        """Other parameters."""
        return ParameterInit(parameters)


@dataclass(frozen=True, eq=False, repr=False)
class ResumeFrom(AbstractInit, ReprMixin):
    """Where a gradient flow ended (`Trajectory.end`), in that flow's own coordinates. Time begins again at 0.

    Args:
        start: where that flow started.
        state: where it ended, in the coordinates `start.flow_coordinates()`.
    """

    start: AbstractInit
    state: np.ndarray

    def flow_coordinates(self) -> AbstractFlowCoordinates:
        """The coordinates of the flow that ended here."""
        return self.start.flow_coordinates()

    def origin(self) -> np.ndarray:
        """The state given."""
        return self.state

    def descent_coordinates(self) -> AbstractCoordinates:
        """The parameters, flattened."""
        return self.start.descent_coordinates()

    def parameters(self) -> PyTree:
        """The parameters of that state."""
        return self.at(self.flow_coordinates().parameters(self.state)).parameters()

    @property
    def argument(self) -> Callable[[PyTree], PyTree]:
        """The first start's."""
        return self.start.argument

    def at(self, parameters: PyTree) -> AbstractInit:
        """A start of the first kind."""
        return self.start.at(parameters)


def checked_start(start: Any) -> AbstractInit:
    """The start as it is.

    Raises:
        InputError: it is none, such as a bare array.
    """
    if not isinstance(start, AbstractInit):
        raise InputError(
            f"start must be Products, Plain or the end of another trajectory; got {type(start).__name__!r}. "
            "For weights as they are write ParameterInit(weights)."
        )
    return start


def product(weights: tuple[Any, Any]) -> Any:
    """Beta = u * v: one function for all starts, since compiled code is found again by it."""
    u, v = weights
    return u * v


def _identity(parameters: PyTree) -> PyTree:
    return parameters


def as_float64(name: str, array: Any) -> np.ndarray:
    """The array in NumPy, or InputError if it is not a finite float64 array."""
    if not isinstance(array, np.ndarray | jax.Array) or array.dtype != np.float64:
        got = getattr(array, "dtype", type(array).__name__)
        raise InputError(
            f"{name} must be float64 arrays; got {got!s}. Convert them with np.asarray(..., np.float64), and "
            "use JAX in its float64 mode: `with jax.enable_x64(True):` or JAX_ENABLE_X64=1."
        )
    array = np.asarray(array)
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite; got {int(np.sum(~np.isfinite(array)))} NaN or infinite entries.")
    return array

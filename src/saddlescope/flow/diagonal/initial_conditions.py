"""Initial conditions of a run: products of small weights, any parameters, or the end of another run."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.diagonal.coordinates import AbstractFlowCoordinates, MirrorCoordinates, ParameterCoordinates
from saddlescope.loss.checks import as_float64
from saddlescope.numerics.tree_layout import TreeLayout


class AbstractInit(ABC):
    """Initial parameters, with the coordinates of their flow."""

    @abstractmethod
    def flow_coordinates(self) -> AbstractFlowCoordinates:
        """Return the coordinates for gradient flow."""

    @abstractmethod
    def origin(self) -> np.ndarray:
        """Return the initial state in `flow_coordinates`."""

    @abstractmethod
    def parameters(self) -> PyTree:
        """Return the initial parameters in float64.

        Raises:
            InputError: they are too small for float64.
        """

    @abstractmethod
    def at(self, parameters: PyTree) -> "AbstractInit":
        """Return an initial condition of this kind at other parameters."""


class AbstractProductInit(AbstractInit):
    """Weights (u, v) of a loss of beta = u * v, with time in units of log(1/alpha); its flow has mirror coordinates."""

    log_scale: float

    @abstractmethod
    def flow_coordinates(self) -> MirrorCoordinates:
        """Return coordinates into which only logarithms enter."""

    def origin(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros_like(self.flow_coordinates().p)


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class DiagonalInit(AbstractProductInit, ReprMixin):
    """A network with diagonal weights, theta(0) = alpha (u, v): the loss is a function of beta = u * v.

    Time is in units of log(1/alpha): the rescaled time t / log(1/alpha) of Theorem 4.1 of Boix-Adsera et al. (2023), in
    which the times of stages converge as alpha vanishes.

    Args:
        u: the initial weights u before they are scaled, shape (p,). A coordinate with |u| = |v| keeps the sign of
            its product for ever, the degenerate case that the paper excludes: see `degenerate`.
        v: the initial weights v before they are scaled, shape (p,).
        log_scale: log(alpha), negative, at least -1e9. Only this logarithm is used, so alpha may be far below what
            float64 can hold: -9431.3 is alpha = 1e-4096.

    Raises:
        InputError: u and v are not finite float64 vectors of one length, or log_scale is out of its range.
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
        if not _SMALLEST <= self.log_scale < 0:
            raise InputError(
                f"log_scale must be negative and at least {_SMALLEST:g}, as log(alpha) is for alpha < 1;"
                f" got {float(self.log_scale)!r}. "
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
        """Return coordinates into which only log(alpha) enters."""
        u, v = self.u, self.v
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
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

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights alpha u and alpha v."""
        alpha = np.exp(self.log_scale)
        product = (alpha * self.u) * (alpha * self.v)
        if np.any((self.u * self.v != 0) & (np.abs(product) < np.finfo(float).tiny)):
            raise InputError(
                f"log_scale must be at least about -350 for gradient descent in float64, where products of smaller "
                f"weights underflow; got {self.log_scale!r}. Use gradient_flow, which works at any scale."
            )
        return alpha * self.u, alpha * self.v

    def at(self, parameters: PyTree) -> "DiagonalInit":
        """Return other weights (not divided by alpha) with the same log_scale."""
        u, v = (np.asarray(w) / np.exp(self.log_scale) for w in parameters)
        return DiagonalInit(u, v, self.log_scale)


_SMALLEST = -1e9  # log(alpha), below which rounding of the exponents moves the stages


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
        """Return the parameters' own coordinates, flattened."""
        size = float(np.sqrt(np.mean(self.origin() ** 2)))
        return ParameterCoordinates(layout=TreeLayout.of(self.params), scale=size or 1.0)

    def origin(self) -> np.ndarray:
        """Return the parameters, flattened."""
        return TreeLayout.of(self.params).flatten(self.params)

    def parameters(self) -> PyTree:
        """Return the params given."""
        return self.params

    def at(self, parameters: PyTree) -> "ParameterInit":
        """Return an initial condition at other parameters."""
        return ParameterInit(parameters)


@dataclass(frozen=True, eq=False, repr=False)
class ResumeFrom(AbstractInit, ReprMixin):
    """End of a gradient flow (`Trajectory.end`) in that flow's own coordinates. Time starts again at 0.

    Args:
        start: initial condition of that flow.
        state: its last state, in the coordinates `start.flow_coordinates()`.
        samples: of that state's error, which the next flow carries on; None: the state is exact.
    """

    start: AbstractInit
    state: np.ndarray
    samples: np.ndarray | None = None

    def flow_coordinates(self) -> AbstractFlowCoordinates:
        """Return the coordinates of the flow that ended here."""
        return self.start.flow_coordinates()

    def origin(self) -> np.ndarray:
        """Return the state given.

        Raises:
            InputError: it is not of the shape of that flow's states.
        """
        expected = self.start.origin().shape
        if not isinstance(self.state, np.ndarray) or self.state.shape != expected:
            found = getattr(self.state, "shape", type(self.state).__name__)
            raise InputError(f"state must be an array of shape {expected!r}; got {found!r}. Pass Trajectory.end.")
        return self.state

    def parameters(self) -> PyTree:
        """Return the parameters of that state."""
        return self.at(self.flow_coordinates().parameters(self.state)).parameters()

    def at(self, parameters: PyTree) -> AbstractInit:
        """Return an initial condition of the first start's kind."""
        return self.start.at(parameters)


def require_start(start: Any) -> AbstractInit:
    """Return the start unchanged.

    Raises:
        InputError: it is no initial condition, such as a bare array.
    """
    if not isinstance(start, AbstractInit):
        raise InputError(
            f"start must be DiagonalInit, ParameterInit or another trajectory's end; got {type(start).__name__!r}. "
            "Pass ParameterInit(weights) for weights of any other kind."
        )
    return start

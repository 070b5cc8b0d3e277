"""Initial condition at products of weights of any size, given by logarithms: to continue a run with changed weights.

    u, v    weights; beta = u * v is the argument of the loss
    sum     u + v, which grows as exp(y) with the integral y of the gradient
    diff    u - v, which decays as exp(-y)

After small initial weights, one of the two is often so small beside the other that (u, v) in float64 no longer holds
it: at alpha = 1e-32 a learned coordinate has u - v = 1e-64. It determines how long the coordinate takes to return with
the other sign, so it is stored separately here.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, PyTree

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.diagonal.coordinates import MirrorCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, AbstractProductInit
from saddlescope.numerics.tree_layout import TreeLayout


@dataclass(frozen=True, eq=False, repr=False)
class LogDiagonalInit(AbstractProductInit, ReprMixin):
    """A network with diagonal weights, each coordinate given by the logarithms of |u + v| and |u - v|.

    Attributes:
        log_sum: log |u + v|, shape (p,); -inf where u = -v.
        log_difference: log |u - v|, shape (p,); -inf where u = v.
        sum_sign: of u + v, +1 or -1 (either where u = -v), shape (p,).
        difference_sign: of u - v, +1 or -1 (either where u = v), shape (p,).
        log_scale: log(alpha), negative: time is in units of log(1/alpha), as for `DiagonalInit`; -1 gives the time t of
            the flow itself.

    Raises:
        InputError: shapes differ, a logarithm is NaN or +inf, a sign is not +1 or -1, or log_scale is not negative.
    """

    log_sum: Float[np.ndarray, "..."]
    log_difference: Float[np.ndarray, "..."]
    sum_sign: Float[np.ndarray, "..."]
    difference_sign: Float[np.ndarray, "..."]
    log_scale: float

    def __post_init__(self) -> None:
        shape = self.log_sum.shape
        for name in ("log_sum", "log_difference", "sum_sign", "difference_sign"):
            array = getattr(self, name)
            if array.shape != shape or array.ndim != 1 or array.size == 0:
                raise InputError(
                    f"{name} must be a vector as long as log_sum, at least 1; got the shape {array.shape!r}."
                )
            allowed = np.abs(array) == 1 if name.endswith("sign") else array < np.inf
            if not allowed.all():
                wanted = "+1 or -1" if name.endswith("sign") else "finite or -inf"
                raise InputError(f"{name} must be {wanted} everywhere; got {array[~allowed][0]!r}.")
        if not -np.inf < self.log_scale < 0:
            raise InputError(
                f"log_scale must be finite and negative; got {self.log_scale!r}. Pass -1 for plain time t."
            )

    @classmethod
    def of(cls, start: AbstractInit) -> "LogDiagonalInit":
        """Return the weights of `DiagonalInit`, or of the end of a flow from there (`ResumeFrom`).

        Raises:
            InputError: the start is not at products of weights.
        """
        coordinates, state = start.flow_coordinates(), start.origin()
        if not isinstance(coordinates, MirrorCoordinates):
            raise InputError(
                f"start must be at products of weights, such as DiagonalInit(u, v, log_scale); got {start!r}."
            )
        return cls(
            log_sum=coordinates.p / 2 + state + np.log(2),
            log_difference=coordinates.q / 2 - state + np.log(2),
            sum_sign=coordinates.sum_sign,
            difference_sign=coordinates.difference_sign,
            log_scale=-coordinates.rate,
        )

    @classmethod
    def at_weights(cls, u: Float[np.ndarray, "p"], v: Float[np.ndarray, "p"], *, log_scale: float) -> "LogDiagonalInit":
        """Return the weights u and v, not scaled by alpha."""
        with np.errstate(divide="ignore"):
            return cls(
                log_sum=np.log(np.abs(u + v)),
                log_difference=np.log(np.abs(u - v)),
                sum_sign=np.where(u + v < 0, -1.0, 1.0),
                difference_sign=np.where(u - v < 0, -1.0, 1.0),
                log_scale=log_scale,
            )

    def shifted(self, du: Float[np.ndarray, "p"], dv: Float[np.ndarray, "p"]) -> "LogDiagonalInit":
        """Return the weights u + du and v + dv; the logarithms are exact in coordinates in which both are 0."""
        moved = (du != 0) | (dv != 0)
        near = self.at_weights(
            (self.sum_sign * np.exp(self.log_sum) + self.difference_sign * np.exp(self.log_difference)) / 2 + du,
            (self.sum_sign * np.exp(self.log_sum) - self.difference_sign * np.exp(self.log_difference)) / 2 + dv,
            log_scale=self.log_scale,
        )
        return self._where(moved, near)

    def only(self, kept: Bool[np.ndarray, "p"]) -> "LogDiagonalInit":
        """Return the same weights with u = v = 0, for ever, outside the coordinates kept."""
        gone = np.full(kept.shape, -np.inf)
        return self._where(~kept, replace(self, log_sum=gone, log_difference=gone))

    def _where(self, which: Bool[np.ndarray, "p"], other: "LogDiagonalInit") -> "LogDiagonalInit":
        names = ("log_sum", "log_difference", "sum_sign", "difference_sign")
        return replace(self, **{name: np.where(which, getattr(other, name), getattr(self, name)) for name in names})

    def flow_coordinates(self) -> MirrorCoordinates:
        """Return the coordinates of `DiagonalInit`."""
        with np.errstate(invalid="ignore"):
            gap = self.log_sum - self.log_difference
        return MirrorCoordinates(
            p=2 * (self.log_sum - np.log(2)),
            q=2 * (self.log_difference - np.log(2)),
            gap=np.where(np.isnan(gap), 0.0, gap),
            sum_sign=self.sum_sign,
            difference_sign=self.difference_sign,
            layout=TreeLayout.of(self.log_sum),
            rate=-self.log_scale,
        )

    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights u and v in float64.

        Raises:
            InputError: a product is too small for float64.
        """
        log_beta = self.flow_coordinates().log_abs(self.origin())
        if np.any(np.isfinite(log_beta) & (log_beta < np.log(np.finfo(float).tiny))):
            raise InputError(
                f"start must have products above 1e-307 for gradient descent in float64; got one of "
                f"e^{log_beta[np.isfinite(log_beta)].min():.4g}. Use gradient_flow, which works at any scale."
            )
        return self.flow_coordinates().parameters(self.origin())

    def at(self, parameters: PyTree) -> "LogDiagonalInit":
        """Return other weights u and v, not scaled by alpha."""
        u, v = (np.asarray(w, np.float64) for w in parameters)
        return self.at_weights(u, v, log_scale=self.log_scale)

"""Taylor series of the symmetric two-layer flow dU/dt = -(A E + E A) U, E = U U^T - 1, many starts at once.

The right-hand side is a polynomial, so that the coefficients of U(t + h) in h follow from sums of products of earlier
ones, to any order and exactly but for rounding; the series is the step and the dense output in one.

    a       the eigenvalues of A, in whose eigenbasis everything is given; time is in units of 1 / max(a)
    U_k     coefficient of h^k, (d, r, n); the starts are the last axis, so that the inner loops run over them
    E_k     of U U^T - 1, (d, d, n)

In U, not in W = U U^T: there the flow stays positive semidefinite whatever the rounding. U is multiplied from the left
only, so that columns of zeros stay zeros and the rank of the start is conserved exactly.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

# NumPy, not JAX: with arrays this small and long np.einsum runs at a multiply-add in half a nanosecond on one thread;
# the same sums took fifty times as long through XLA on the CPU, besides seconds to compile.

# Times order + 3: the longest step, in units of 1 / max(a). Near the end W relaxes at rates of up to 4, and the series
# of exp(-z) is below 1 up to z = 0.37 (order + 3.4): beyond, rounding grows until the terms show it; W never settles.
_STABLE = 0.08


def order_for(local: float) -> int:
    """Return the order at which a relative error `local` of a step costs least: -log(local) / 2, about.

    Jorba and Zou 2005, "A software package for the numerical integration of ODEs by means of high-order Taylor
    methods".
    """
    return max(6, math.ceil(-math.log(local) / 2) + 1)


def longest_step(order: int) -> float:
    """Return the longest step at which a series of this order is stable while W is of order 1."""
    return _STABLE * (order + 3)


@dataclass(frozen=True, eq=False)
class TaylorSeries:
    """Taylor series of the flows of n starts around their present times.

    Attributes:
        factors: U_0, ..., U_p.
        errors: E_0, ..., E_{p-1}.
    """

    factors: Float[np.ndarray, "p1 d r n"]
    errors: Float[np.ndarray, "p d d n"]

    def after(self, h: Float[np.ndarray, "n"]) -> Float[np.ndarray, "d r n"]:
        """Return the factors a time h later."""
        return _horner(self.factors, h)

    def loss_slope(self, x: Float[np.ndarray, "d"]) -> Float[np.ndarray, "q n"]:
        """Return the coefficients of dL/dt for L = |(W - 1) x|^2 / 2: r . dr/dt with r = E x, q = p - 1 of them."""
        r = np.einsum("kiln,l->kin", self.errors, x)
        slope = r[1:] * np.arange(1.0, len(r))[:, None, None]
        return np.stack([np.einsum("jin,jin->n", r[: k + 1], slope[k::-1]) for k in range(len(slope))])

    def growth(self, a: Float[np.ndarray, "d"], h: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Return the integral of 4 tr(A (1 - W)) over the time h."""
        traces = np.einsum("kiin,i->kn", self.errors, -4 * a)
        return h * _horner(traces / np.arange(1.0, len(traces) + 1)[:, None], h)

    def step(self, local: float) -> Float[np.ndarray, "n"]:
        """Return the time for which the series is accurate: its last two terms are below `local` of the largest weight.

        It is also stable, so that a flow that has learned becomes stationary.
        """
        last = len(self.factors) - 1
        size = np.abs(self.factors[[0, last - 1, last]]).max(axis=(1, 2))
        h = np.full(size.shape[1], longest_step(last))
        for k, term in ((last - 1, size[1]), (last, size[2])):
            ratio = np.divide(local * size[0], term, out=np.full_like(h, np.inf), where=term > 0)
            h = np.minimum(h, ratio ** (1 / k))
        return h


def series(factors: Float[np.ndarray, "d r n"], a: Float[np.ndarray, "d"], order: int) -> TaylorSeries:
    """Return the Taylor series of the flow from these factors, to this order."""
    d, r, n = factors.shape
    u, errors = np.empty((order + 1, d, r, n)), np.empty((order, d, d, n))
    rates = np.empty_like(errors)  # (a_i + a_l) (E_k)_il: what multiplies U
    pairs, one = (a[:, None] + a[None, :])[:, :, None], np.eye(d)[:, :, None]
    u[0] = factors
    for k in range(order):
        half = (k + 1) // 2  # U_j U_{k-j}^T and U_{k-j} U_j^T are transposes of each other: half of them suffice
        np.einsum("jimn,jlmn->iln", u[:half], u[k : k - half : -1], out=errors[k])
        errors[k] += errors[k].swapaxes(0, 1).copy()
        if k % 2 == 0:
            errors[k] += np.einsum("imn,lmn->iln", u[half], u[half])
        if k == 0:
            errors[0] -= one
        np.multiply(pairs, errors[k], out=rates[k])
        np.einsum("jiln,jlmn->imn", rates[: k + 1], u[k::-1], out=u[k + 1])
        u[k + 1] *= -1 / (k + 1)
    return TaylorSeries(u, errors)


def _horner(coefficients: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return the polynomials' values at h; the coefficients' first axis is the power, the last one the start."""
    value = coefficients[-1].copy()
    for coefficient in coefficients[-2::-1]:
        value *= h
        value += coefficient
    return value

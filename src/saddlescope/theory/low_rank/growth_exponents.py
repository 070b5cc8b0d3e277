"""Growth of the sizes of directions on a plateau, to leading order in log(1/alpha): the pairing with rates.

A pair of factors M = [L; R] moves as M' = S M, S = [[0, G], [G^T, 0]], so that M(t) = Phi(t) M(0) with Phi in SO(d, d)
(`docs/full_weights.md`). Its sizes are described in a frame: orthogonal U and V, of which (u_i, v_i) has grown as
alpha^(-xi_i), and with it (u_i, -v_i) as alpha^(+xi_i). On a plateau G is constant. Along its singular pairs (p_j, q_j)
sizes grow at the rates sigma_j, along (p_j, -q_j) at -sigma_j.

The volume spanned by the i leading directions grows, to leading order, as the largest term of its expansion. Where no
overlap vanishes that is the product of the i largest sizes and the i largest rates, so exponents and rates are paired
in sorted order, for any overlaps (the tropical QR decomposition, Oseledets' theorem). Where overlaps vanish, as
for commuting problems, the pairing splits into the connected components of "overlaps with", each sorted in itself.

The flow also preserves an orientation: SO(d, d) has two kinds of maximal isotropic subspaces, which it does not mix. A
component that contains both (u_i, v_i) and (u_i, -v_i) therefore gives its smallest exponent to its smallest rate with
a sign, that of det Y det Z, where Y and Z are the overlaps of the u and of the v with the singular vectors. For d = 1
this means that a product of two numbers grows or shrinks with the sign of its force.

Symmetric factors, L = R = U, move as U' = G U with a symmetric G: sizes grow at its eigenvalues, of either sign, and
the same volumes say how these pair with exponents. No (u_i, -u_i) is involved, and so no orientation.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

OVERLAP = 1e-7  # smaller overlaps count as zero: rounding for commuting problems, rare by chance for others


@dataclass(frozen=True, eq=False)
class Frame:
    """Directions outside the active ones, and their sizes.

    Attributes:
        U: shape (m, e), orthonormal columns u_i.
        V: shape (n, e), orthonormal columns v_i.
        xi: exponents, shape (e,): (u_i, v_i) is of size alpha^(1 - xi_i) and (u_i, -v_i) of size alpha^(1 + xi_i).
    """

    U: Float[np.ndarray, "m e"]
    V: Float[np.ndarray, "n e"]
    xi: Float[np.ndarray, "e"]


@dataclass(frozen=True, eq=False)
class Growth:
    """Singular pairs of a plateau, each with its exponent at the start.

    Attributes:
        U, V: the singular vectors p_j, q_j, shapes (m, e) and (n, e).
        rate: sigma_j, shape (e,), descending.
        start: the exponent paired with sigma_j, shape (e,).
        symmetric: True for symmetric factors, whose rates and exponents have signs.
    """

    U: Float[np.ndarray, "m e"]
    V: Float[np.ndarray, "n e"]
    rate: Float[np.ndarray, "e"]
    start: Float[np.ndarray, "e"]
    symmetric: bool = False

    def arrivals(self, noise: float, decay: float = 0.0, level: float = 1.0) -> Float[np.ndarray, "e"]:
        """Return the time until each direction becomes active; infinite where the rate is at most the noise.

        Args:
            noise: of a rate.
            decay: lambda, by which all sizes fall: a direction is active once xi = 1 + lambda T.
            level: that value now.
        """
        net = self.rate - decay
        moving = net > noise
        return np.where(moving, np.maximum(level - self.start, 0.0) / np.where(moving, net, 1.0), np.inf)

    def after(self, duration: float) -> Frame:
        """Return the frame after a time: the singular pairs, those with negative exponents reversed."""
        xi = self.start + self.rate * duration
        sign = np.where((xi < 0) & (not self.symmetric), -1.0, 1.0)
        order = np.argsort(-sign * xi, kind="stable")
        return Frame(self.U[:, order], (self.V * sign)[:, order], (sign * xi)[order])


def components(touching: Bool[np.ndarray, "d d"]) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
    """Yield the rows and columns of each connected component of rates (rows) that overlap with exponents (columns)."""
    none = np.zeros_like(touching)
    _, component = connected_components(csr_array(np.block([[none, touching], [none, none]])), directed=False)
    of_row, of_column = np.split(component, 2)
    for one in np.unique(of_row):
        yield np.flatnonzero(of_row == one), np.flatnonzero(of_column == one)


def growth(frame: Frame, force: Float[np.ndarray, "m n"]) -> Growth:
    """Pair exponents and rates on a plateau with constant G, restricted to the frame's spaces."""
    within = frame.U.T @ force @ frame.V
    Y, rate, Zt = np.linalg.svd(within)
    P, N = (Y + Zt.T).T / 2, (Y - Zt.T).T / 2  # overlaps of (p_j, q_j) with (u_i, v_i) and with (u_i, -v_i)
    overlap = np.block([[P, N], [N, P]])
    size = len(rate)
    rates, exponents = np.concatenate([rate, -rate]), np.concatenate([frame.xi, -frame.xi])
    start = np.zeros(2 * size)
    for fast, large in components(np.abs(overlap) > OVERLAP):
        fast = fast[np.argsort(-rates[fast], kind="stable")]
        start[fast] = np.sort(exponents[large])[::-1]
        forward, among = fast[fast < size], large[large < size]
        if 2 * len(forward) == len(fast) and np.array_equal(np.sort(fast[fast >= size] - size), np.sort(forward)):
            orientation = np.linalg.det(Y[np.ix_(among, forward)]) * np.linalg.det(Zt.T[np.ix_(among, forward)])
            start[forward] = np.sort(frame.xi[among])[::-1]
            start[forward[-1]] *= np.sign(orientation)
    return Growth(frame.U @ Y, frame.V @ Zt.T, rate, start[:size])


def symmetric_growth(frame: Frame, force: Float[np.ndarray, "m m"]) -> Growth:
    """Pair exponents and rates of symmetric factors on a plateau with a constant, symmetric G."""
    rate, Y = (each[..., ::-1] for each in np.linalg.eigh(frame.U.T @ force @ frame.U))
    start = np.zeros_like(rate)
    for fast, large in components(np.abs(Y.T) > OVERLAP):
        start[fast] = np.sort(frame.xi[large])[::-1]
    U = frame.U @ Y
    return Growth(U, U, rate, start, symmetric=True)

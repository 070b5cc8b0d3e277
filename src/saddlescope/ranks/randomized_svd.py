"""Randomized truncated singular value decomposition with a certificate of its error.

    D               the matrix, m x n
    K               Gaussian start, m x (r + 8); Q spans K, D D^T K, ..., (D D^T)^q K (Musco and Musco 2015)
    U, theta        leading r left singular vectors and squared singular values of Q Q^T D (Rayleigh-Ritz)
    U U^T D         the approximation: its squared error |D|_F^2 - sum(theta) is known exactly

**Certificate.** In a basis that starts with U, D D^T is [[theta, E^T], [E, C]] with E = D D^T U - U theta and C the
part on the complement. By Ky Fan's inequality the r largest squared singular values of D add up to at most
sum_i max(theta_i, |C|_2) + sum_i s_i(E), s_i(E) the singular values of E. So the least possible squared error is at
most sum_i max(0, |C|_2 - theta_i) + sum_i s_i(E) below that of U U^T D. This number, the slack, also bounds each
singular value: theta_i is at most its square (Cauchy's interlacing), and at most the slack below it.

**Norm of C.** Let g be a random start, x its share in the leading eigenvector of C, and d the degree of a Krylov space.
Its largest Ritz value is at least |C|_2 (1 - e) / (1 + |g|^2 / (x T)^2), T = T_d((1 + e) / (1 - e)), for every e in
(0, 1), with T_d the Chebyshev polynomial (apply T_d, scaled to be at most 1 below (1 - e) |C|_2). Of 16 Gaussian
starts, one has x^2 >= 0.3 but with probability 1e-6. The best e gives the bound.

Iterations run in float32: they choose subspaces. All numbers above are computed from these in float64.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_EXTRA = 8  # columns of the start beyond the rank
_POWERS = 5  # q
_STARTS = 16  # columns of the start for |C|_2
_LEAST = 0.3  # x^2 of the best of them; P(|N(0, 1)| < sqrt(0.3))^16 < 1e-6
_SMALL = 512  # shorter side up to which everything is computed
_RANKS = 16  # a rank above min(m, n) / 16 takes all singular values
_CHECKS = (4, 8, 12, 18, 26)  # degrees d at which the certificate is tried


@dataclass(frozen=True, eq=False)
class RandomizedSVD:
    """Approximation of a matrix at low rank.

    Attributes:
        left: U, orthonormal columns.
        values: singular values of U U^T D, descending.
        right: right singular vectors of U U^T D, in rows.
        energy: |D|_F^2.
        excess: bound on the error beyond that of the best approximation, over |D|_F; infinite if none was found.
        slack: bound on the sum of the squares of the true singular values minus those of `values`; infinite likewise.
    """

    left: Float[Tensor, "m rank"]
    values: Float[Tensor, " rank"]
    right: Float[Tensor, "rank n"]
    energy: float
    excess: float
    slack: float

    @property
    def value_errors(self) -> Float[Tensor, " rank"]:
        """Bounds on the errors of `values`: each true singular value is at least as large, and at most this larger."""
        return (self.values**2 + self.slack).sqrt() - self.values


def pays(shape: Sequence[int], rank: int) -> bool:
    """Return True for a matrix so large, and a rank so low, that the method is faster than all singular values."""
    return min(shape) > _SMALL and rank * _RANKS <= min(shape)


def scaled(update: Tensor) -> tuple[Tensor, float]:
    """Return a matrix in float64, over its largest entry if squares could overflow or vanish, and the divisor."""
    D = update.double()
    size = max(float(D.max()), -float(D.min()))
    return (D if 1e-30 < size < 1e30 else D / (size or 1.0)), (1.0 if 1e-30 < size < 1e30 else size)


def randomized_svd(D: Float[Tensor, "m n"], rank: int, *, tolerance: float) -> RandomizedSVD:
    """Approximate a matrix at low rank, and bound the error beyond the best approximation's.

    Args:
        D: the matrix, finite, in float64, of a size whose squares neither overflow nor vanish.
        rank: r, at least 1 and far below min(m, n).
        tolerance: the work for the certificate ends once its bound is at most this share of |D|_F.
    """
    generator = torch.Generator().manual_seed(0)
    fast = D.float()
    block = fast @ torch.randn(D.shape[1], rank + _EXTRA, generator=generator).to(D.device)
    Q = _orthonormal(_krylov(fast, block, _POWERS).double())
    Y = Q.T @ D
    squares, vectors = torch.linalg.eigh(Y @ Y.T)
    theta, P = squares.flip(0)[:rank].clamp(min=0), vectors.flip(1)[:, :rank]
    U, projected = Q @ P, P.T @ Y
    values = theta.sqrt()
    right = projected * torch.where(values > 0, 1 / values, 0.0)[:, None]
    energy = float((D * D).sum())
    E = D @ projected.T - U * theta
    coupling = float(torch.linalg.eigvalsh(E.T @ E).clamp(min=0).sqrt().sum())
    excess, slack = _excess(fast, U, theta, coupling, energy, tolerance, generator)
    return RandomizedSVD(U, values, right, energy, excess, slack)


def _excess(
    D: Tensor, U: Tensor, theta: Tensor, coupling: float, energy: float, tolerance: float, generator: torch.Generator
) -> tuple[float, float]:
    """Return the bound on the error beyond the best approximation's, over |D|_F, and the slack."""
    if energy == 0:
        return 0.0, 0.0
    error = max(energy - float(theta.sum()), 0.0)

    def slack(rest: float) -> float:
        return min(coupling + float((rest - theta).clamp(min=0).sum()), error)

    def bound(rest: float) -> float:
        return (math.sqrt(error) - math.sqrt(error - slack(rest))) / math.sqrt(energy)

    if bound(error) <= tolerance:  # |C|_2 is at most its trace, the squared error
        return bound(error), slack(error)
    if bound(0.0) > tolerance:
        return math.inf, math.inf
    rest = 0.0
    for degree, ritz, start in _largest_ritz(D, U.to(D.dtype), generator):
        rest = ritz * _chebyshev_factor(degree, start)
        if bound(rest) <= tolerance or bound(ritz) > tolerance:
            break
    return bound(rest), slack(rest)


def _largest_ritz(D: Tensor, U: Tensor, generator: torch.Generator) -> Iterator[tuple[int, float, float]]:
    """Yield degree, largest Ritz value of C = (1 - U U^T) D D^T (1 - U U^T) and the largest |g|^2 of the starts."""
    g = torch.randn(D.shape[0], _STARTS, generator=generator, dtype=D.dtype).to(D.device)
    start = float((g * g).sum(0).max())
    block = _orthonormal(g - U @ (U.T @ g))
    basis, images = block, D.T @ block
    for degree in range(1, _CHECKS[-1] + 1):
        block = D @ images[:, -_STARTS:]
        for _ in range(2):  # twice: rounding leaves parts of the earlier ones
            block = block - U @ (U.T @ block)
            block = block - basis @ (basis.T @ block)
        block = _orthonormal(block)
        basis, images = torch.cat([basis, block], 1), torch.cat([images, D.T @ block], 1)
        if degree in _CHECKS:
            ritz = images.T.double() @ images.double()
            yield degree, float(torch.linalg.eigvalsh(ritz)[-1]), start


def _chebyshev_factor(degree: int, start: float) -> float:
    """Return the least factor by which |C|_2 may exceed the largest Ritz value."""

    def factor(e: float) -> float:
        peak = math.cosh(degree * math.acosh((1 + e) / (1 - e)))
        return (1 + start / (_LEAST * peak**2)) / (1 - e)

    return min(factor(number / 50) for number in range(1, 50))


def _krylov(D: Tensor, block: Tensor, powers: int) -> Tensor:
    """Return K, D D^T K, ..., each orthonormalised so that the leading directions do not drown the others."""
    blocks = [_orthonormal(block)]
    for _ in range(powers):
        blocks.append(_orthonormal(D @ (D.T @ blocks[-1])))
    return torch.cat(blocks, dim=1)


def _orthonormal(X: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns."""
    return torch.linalg.qr(X).Q

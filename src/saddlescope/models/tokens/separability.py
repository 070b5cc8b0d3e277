"""Separability of token data: weights that select every optimal token, or a certificate that none exist.

    F_il     D_il z_i^T for W in full, B_il for W = diag(beta): margins are u_il = <W, F_il>
    Assumption 1   some W has u_il >= 1 for all i, l
    Farkas   otherwise some lambda >= 0 has sum lambda_il = 1 and sum lambda_il F_il = 0; never both

Full and diagonal weights are separate questions: a diagonal head has d numbers, a full one d^2. In float64 the
sum is some rho instead of 0, which still proves that every separating W has a norm of at least 1 / rho.

One linear program decides: max tau such that u_il >= tau |F_il| and |w_j| <= 1, whose multipliers are the
certificate. Full weights are first reduced, exactly, to the span of the differences and queries.

Sheen, Chen, Wang and Zhou (2024), Assumption 1; Tarzanagh et al. (2023a), Theorem 1, states when Gaussian data meet it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.row_scales import of_unit_size

_EPS = float(np.finfo(float).eps)
_SMALLEST = -900  # exponent of 2 of the size of a feature below which it counts as that
_SUPPORT = 1e-9  # share of the multipliers below which one counts as zero
_FREE = 1e-8  # smallest eigenvalue of the features' Gram matrix, of its largest, at which they count as independent


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Separability(ReprMixin):
    """Result of the separability test, with a proof of either answer.

    Attributes:
        diagonal: True for W = diag(beta), False for any W.
        weights: W (d, d), or beta (d,), with smallest margin 1; None if no weights separate.
        multipliers: lambda (n, m), of sum 1, with sum lambda_il F_il = 0 to rounding; None if the data are separable.
        least_norm: lower bound of the Euclidean (Frobenius) norm of separating weights: 1 / rho of the certificate,
            about 1e14, if none were found, so that only rounding could allow any; 0 where they are given.
        conflict: minimal set of samples that cannot be separated together: none can be left out; empty if the data
            are separable.
    """

    diagonal: bool
    weights: Float[np.ndarray, "..."] | None
    multipliers: Float[np.ndarray, "n m"] | None
    least_norm: float
    conflict: tuple[int, ...]

    @property
    def separable(self) -> bool:
        """True if separating weights exist."""
        return self.weights is not None

    def __repr__(self) -> str:
        kind = "diagonal" if self.diagonal else "full"
        if self.weights is not None:
            return f"Separability({kind} weights: separable, with norm {np.linalg.norm(self.weights):.6g})"
        return f"Separability({kind} weights: samples {list(self.conflict)!r} conflict)"


@validate_arguments
def separability(data: TokenData, *, diagonal: bool = False) -> Separability:
    """Find weights that separate all optimal tokens from the others, or a Farkas certificate that none exist.

    Args:
        data: the tokens.
        diagonal: True for W = diag(beta), False for any W.
    """
    (D, long_by), (z, wide_by) = of_unit_size(data.differences), of_unit_size(data.z)
    exponents = (long_by + wide_by[:, None]).ravel()  # weights that separate the data in these units do so in any
    if diagonal:
        features, own = of_unit_size((z[:, None] * D).reshape(-1, data.dim))
        return _decide(data, features, exponents + own, None)
    tokens, queries = _span(D.reshape(-1, data.dim)), _span(z)
    left, right = D @ tokens, z @ queries
    size = tokens.shape[1] * queries.shape[1]
    features = np.einsum("imp,iq->impq", left, right).reshape(data.samples * (data.tokens - 1), size)
    return _decide(data, features, exponents, (tokens, queries))


@validate_arguments
def require_separable(data: TokenData, *, diagonal: bool = False) -> Separability:
    """Return `separability(data)`, or raise for data that are not separable.

    Raises:
        InputError: the data are not separable; the message names the samples.
    """
    answer = separability(data, diagonal=diagonal)
    if answer.separable:
        return answer
    one = len(answer.conflict) == 1
    which = f"in sample {answer.conflict[0]}" if one else f"in samples {', '.join(map(str, answer.conflict))} together"
    subset = "" if one else ", although they do without any one of these"
    kind = "diagonal weights" if diagonal else "weights"
    raise InputError(
        f"data must be separable (Assumption 1): no {kind} prefer the optimal tokens to the others {which}{subset}."
        f" A Farkas certificate shows it: any such {kind} would have a norm of at least {answer.least_norm:.2g}."
        " Remove samples or tokens, or embed them in more dimensions."
    )


def _span(rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "d r"]:
    """Return an orthonormal basis of the span of the rows."""
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return right[sizes > max(rows.shape) * _EPS * max(sizes[0], np.finfo(float).tiny)].T


def _decide(
    data: TokenData,
    features: Float[np.ndarray, "k p"],
    exponents: Int[np.ndarray, "k"],
    bases: tuple[np.ndarray, np.ndarray] | None,
) -> Separability:
    """Decide separability for features over 2^exponents, in the coordinates of `bases` or in those of beta."""

    def weights_of(w: np.ndarray) -> np.ndarray:
        return w if bases is None else bases[0] @ w.reshape(bases[0].shape[1], -1) @ bases[1].T

    sizes = np.linalg.norm(features, axis=1)
    nonzero = sizes > 0
    unit = features / np.where(nonzero, sizes, 1.0)[:, None]
    if np.all(nonzero):
        w = _independent(unit)
        if w is None:
            w, multipliers = _programme(unit)
        else:
            multipliers = np.zeros(len(unit))
        weights = _normalised(data, weights_of(w))
        if weights is not None:
            return Separability(diagonal=bases is None, weights=weights, multipliers=None, least_norm=0.0, conflict=())
    else:  # a difference with the feature 0: its margin is 0 for all weights
        multipliers = np.where(np.arange(len(unit)) == np.argmin(nonzero), 1.0, 0.0)
    m = data.tokens - 1
    minimal = _minimal(unit, multipliers, m)
    multipliers = multipliers if minimal is None else minimal
    multipliers = _polished(unit, multipliers) / np.where(nonzero, sizes, 1.0)
    conflict = np.unique(np.flatnonzero(multipliers) // m)
    of_data = np.ldexp(multipliers, -np.maximum(exponents, _SMALLEST))
    total = float(of_data.sum())
    rho = float(np.linalg.norm(multipliers @ features)) / total
    rounding = 4 * _EPS * float(multipliers @ sizes) / total
    return Separability(
        diagonal=bases is None,
        weights=None,
        multipliers=(of_data / total).reshape(-1, m),
        least_norm=1 / max(rho + rounding, np.finfo(float).tiny),
        conflict=tuple(int(i) for i in conflict),
    )


def _independent(unit: Float[np.ndarray, "k p"]) -> Float[np.ndarray, "p"] | None:
    """Return the shortest w with all margins equal if the features are clearly independent, else None."""
    if unit.shape[0] > unit.shape[1]:
        return None
    gram = unit @ unit.T
    values, vectors = np.linalg.eigh(gram)
    if values[0] < _FREE * values[-1]:
        return None
    return unit.T @ (vectors @ ((vectors.T @ np.ones(len(unit))) / values))


def _programme(unit: Float[np.ndarray, "k p"]) -> tuple[Float[np.ndarray, "p"], Float[np.ndarray, "k"]]:
    """Return the w of largest smallest margin with |w_j| <= 1, and the multipliers of the margins, of sum 1."""
    from scipy.optimize import linprog

    basis = None
    if unit.shape[1] > unit.shape[0]:  # only the span of the features matters
        basis, upper = np.linalg.qr(unit.T)
        unit = upper.T
    k, p = unit.shape
    answer = linprog(
        np.append(np.zeros(p), -1.0),
        A_ub=np.hstack([-unit, np.ones((k, 1))]),
        b_ub=np.zeros(k),
        bounds=[(-1, 1)] * p + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0:
        raise RuntimeError(f"The linear program of separability was not solved: {answer.message}")
    w, multipliers = answer.x[:p], np.maximum(-answer.ineqlin.marginals, 0.0)
    return (w if basis is None else basis @ w), multipliers / multipliers.sum()


def _normalised(data: TokenData, weights: np.ndarray) -> np.ndarray | None:
    """Scale the weights to a smallest margin of 1, computed from the data; None if rounding may decide its sign."""
    margins = data.margins(weights)
    terms = np.abs(data.differences) @ np.abs(np.diag(weights) if weights.ndim == 1 else weights)
    errors = 4 * data.dim * _EPS * np.einsum("imd,id->im", terms, np.abs(data.z))
    return weights / margins.min() if np.all(margins > errors) else None


def _minimal(unit: np.ndarray, multipliers: np.ndarray, m: int) -> Float[np.ndarray, "k"] | None:
    """Return multipliers of a minimal set of conflicting samples; None if the given ones are of one sample."""
    support = multipliers > _SUPPORT
    candidates = [int(i) for i in np.unique(np.flatnonzero(support) // m)]
    best, owners = None, np.arange(len(unit)) // m
    for i in list(candidates):
        if len(candidates) == 1 or i not in candidates:
            continue
        rows = np.isin(owners, [j for j in candidates if j != i])
        w, found = _programme(unit[rows])
        if np.min(unit[rows] @ w) > len(w) * _EPS * np.abs(w).sum():
            continue
        candidates = sorted({int(j) for j in owners[rows][found > _SUPPORT]})
        best = np.zeros(len(unit))
        best[rows] = found
    return best


def _polished(unit: Float[np.ndarray, "k p"], multipliers: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Recompute the multipliers of a vertex as the null vector of its features, where that certifies no worse."""
    on = multipliers > _SUPPORT
    given = np.where(on, multipliers, 0.0) / multipliers[on].sum()
    null = np.linalg.svd(unit[on], full_matrices=on.sum() > unit.shape[1])[0][:, -1]
    null = null / null.sum()
    if np.any(null < 0) or np.linalg.norm(null @ unit[on]) >= np.linalg.norm(given @ unit):
        return given
    given[on] = null
    return given

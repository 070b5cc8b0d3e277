"""Can any weights make the softmax select every optimal token? A separating head, or a certificate that there is none.

    F_il     D_il z_i^T for W in full, B_il for W = diag(beta): margins are u_il = <W, F_il>
    Assumption 1   there is W with u_il >= 1 for all i, l
    Farkas   else there is lambda >= 0 with sum lambda_il = 1 and sum lambda_il F_il = 0; and never both

Weights in full and diagonal ones are different questions: a diagonal head has d numbers, the other d^2. In float64 the
sum is some rho instead of 0, which still proves that every separating W has a norm of at least 1 / rho.

One linear programme decides: max tau such that u_il >= tau |F_il| and |w_j| <= 1, whose multipliers are the
certificate. Weights in full are first reduced, exactly, to the span of the differences and queries.

Sheen, Chen, Wang and Zhou (2024), Assumption 1; Tarzanagh et al. (2023a), Theorem 1, has when Gaussian data meet it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.models.tokens.data import TokenData

_EPS = float(np.finfo(float).eps)
_SUPPORT = 1e-9  # share of the multipliers below which one is none
_FREE = 1e-8  # smallest eigenvalue of the features' Gram matrix, of its largest, at which they count as independent


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Separability(ReprMixin):
    """Whether token data are separable, with the proof of either answer.

    Attributes:
        diagonal: whether the question was about W = diag(beta).
        weights: W (d, d), or beta (d,), of smallest margin 1; None where there are none.
        multipliers: lambda (n, m), of sum 1, with sum lambda_il F_il = 0 to rounding; None where data are separable.
        least_norm: what Euclidean (Frobenius) norm separating weights have at least: 1 / rho of the certificate, some
            1e14, where they do not exist, so that rounding is all that speaks for them; 0 where they are given.
        conflict: samples that cannot be separated together, in a set from which none can be left out; empty where data
            are separable.
    """

    diagonal: bool
    weights: Float[np.ndarray, "..."] | None
    multipliers: Float[np.ndarray, "n m"] | None
    least_norm: float
    conflict: tuple[int, ...]

    @property
    def separable(self) -> bool:
        """Whether there are separating weights."""
        return self.weights is not None

    def __repr__(self) -> str:
        kind = "diagonal" if self.diagonal else "full"
        if self.weights is not None:
            return f"Separability({kind} weights: separable, with norm {np.linalg.norm(self.weights):.6g})"
        return f"Separability({kind} weights: samples {list(self.conflict)!r} conflict)"


@validate_arguments
def separability(data: TokenData, *, diagonal: bool = False) -> Separability:
    """Weights that separate all optimal tokens from the others, or a Farkas certificate that there are none.

    Args:
        data: the tokens.
        diagonal: whether W = diag(beta), or any W.
    """
    if diagonal:
        return _decide(data, data.features.reshape(-1, data.dim), None)
    tokens, queries = _span(data.differences.reshape(-1, data.dim)), _span(data.z)
    left, right = data.differences @ tokens, data.z @ queries
    size = tokens.shape[1] * queries.shape[1]
    features = np.einsum("imp,iq->impq", left, right).reshape(data.samples * (data.tokens - 1), size)
    return _decide(data, features, (tokens, queries))


@validate_arguments
def checked_separable(data: TokenData, *, diagonal: bool = False) -> Separability:
    """The same, for callers that need separable data.

    Raises:
        InputError: the data are not separable; the message names the samples.
    """
    answer = separability(data, diagonal=diagonal)
    if answer.separable:
        return answer
    one = len(answer.conflict) == 1
    which = f"in sample {answer.conflict[0]}" if one else f"in samples {', '.join(map(str, answer.conflict))} together"
    rest = "" if one else ", though without any one of these"
    kind = "diagonal weights" if diagonal else "weights"
    raise InputError(
        f"data must be separable (Assumption 1): no {kind} prefer the optimal tokens to the others {which}{rest}."
        f" A Farkas certificate shows it: any such {kind} would have a norm of at least {answer.least_norm:.2g}."
        " Remove samples or tokens, or embed them in more dimensions."
    )


def _span(rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "d r"]:
    """An orthonormal basis of the span of the rows."""
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    return right[sizes > max(rows.shape) * _EPS * max(sizes[0], np.finfo(float).tiny)].T


def _decide(
    data: TokenData, features: Float[np.ndarray, "k p"], bases: tuple[np.ndarray, np.ndarray] | None
) -> Separability:
    """The answer for features in the coordinates of a basis of their span, or in those of beta."""

    def weights_of(w: np.ndarray) -> np.ndarray:
        return w if bases is None else bases[0] @ w.reshape(bases[0].shape[1], -1) @ bases[1].T

    sizes = np.linalg.norm(features, axis=1)
    whole = sizes > 0
    unit = features / np.where(whole, sizes, 1.0)[:, None]
    if np.all(whole):
        w = _independent(unit)
        if w is None:
            w, multipliers = _programme(unit)
        else:
            multipliers = np.zeros(len(unit))
        weights = _normalised(data, weights_of(w))
        if weights is not None:
            return Separability(diagonal=bases is None, weights=weights, multipliers=None, least_norm=0.0, conflict=())
    else:  # a difference that no weights see
        multipliers = np.where(np.arange(len(unit)) == np.argmin(whole), 1.0, 0.0)
    m = data.tokens - 1
    kept = _minimal(unit, multipliers, m)
    multipliers = multipliers if kept is None else kept
    multipliers = _polished(unit, multipliers) / np.where(whole, sizes, 1.0)
    multipliers /= multipliers.sum()
    rho = float(np.linalg.norm(multipliers @ features))
    rounding = 4 * _EPS * float(multipliers @ sizes)
    conflict = np.unique(np.flatnonzero(multipliers) // m)
    return Separability(
        diagonal=bases is None,
        weights=None,
        multipliers=multipliers.reshape(-1, m),
        least_norm=1 / max(rho + rounding, np.finfo(float).tiny),
        conflict=tuple(int(i) for i in conflict),
    )


def _independent(unit: Float[np.ndarray, "k p"]) -> Float[np.ndarray, "p"] | None:
    """The shortest w with all margins equal, where the features are clearly independent; None where they are not."""
    if unit.shape[0] > unit.shape[1]:
        return None
    gram = unit @ unit.T
    values, vectors = np.linalg.eigh(gram)
    if values[0] < _FREE * values[-1]:
        return None
    return unit.T @ (vectors @ ((vectors.T @ np.ones(len(unit))) / values))


def _programme(unit: Float[np.ndarray, "k p"]) -> tuple[Float[np.ndarray, "p"], Float[np.ndarray, "k"]]:
    """The w of largest smallest margin with |w_j| <= 1, and the multipliers of the margins, of sum 1."""
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
        raise RuntimeError(f"The linear programme of separability was not solved: {answer.message}")
    w, multipliers = answer.x[:p], np.maximum(-answer.ineqlin.marginals, 0.0)
    return (w if basis is None else basis @ w), multipliers / multipliers.sum()


def _normalised(data: TokenData, weights: np.ndarray) -> np.ndarray | None:
    """The weights of smallest margin 1, computed from the data themselves; None where rounding may have its sign."""
    margins = data.margins(weights)
    terms = np.abs(data.differences) @ np.abs(np.diag(weights) if weights.ndim == 1 else weights)
    errors = 4 * data.dim * _EPS * np.einsum("imd,id->im", terms, np.abs(data.z))
    return weights / margins.min() if np.all(margins > errors) else None


def _minimal(unit: np.ndarray, multipliers: np.ndarray, m: int) -> Float[np.ndarray, "k"] | None:
    """Multipliers of a set of samples from which none can be left out; None where the given ones are of one sample."""
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
    """The multipliers of a vertex again, as the null vector of its features, where that is as good a certificate."""
    on = multipliers > _SUPPORT
    given = np.where(on, multipliers, 0.0) / multipliers[on].sum()
    null = np.linalg.svd(unit[on], full_matrices=on.sum() > unit.shape[1])[0][:, -1]
    null = null / null.sum()
    if np.any(null < 0) or np.linalg.norm(null @ unit[on]) >= np.linalg.norm(given @ unit):
        return given
    given[on] = null
    return given

"""Check of the paper's assumptions on token data, with the number behind each result.

1. Separability: some W prefers every optimal token to the others; diagonal weights are checked separately.
2. Equal scores: the optimal token is unique, and all others of a sample have the same score.
3. Small initial loss: L(weights) <= min_j [e^-gamma_j,nopt + sum_{i != j} e^-gamma_i,opt] / n, so that the flow, which
   only lowers the loss, cannot leave any sample at a wrong token. Sufficient for that, not necessary.
4. (i) optimal tokens of different samples are orthogonal, and queries are; (ii) a query is parallel to its optimal
   token, of either sign; (iii) other tokens come in pairs, mirror images about the line of the optimal token, which sum
   to 2 c x_i,opt with c in [-1, 1).

Alignment (Definition 5.1): K = U_K Lambda_K V^T, Q = U_Q Lambda_Q V^T where the columns of the orthogonal U_K and U_Q
have the directions of the optimal tokens and queries, in one order. `alignment_residual` tests it on K and Q alone,
without the bases: with a_i, b_i these directions, p_i = K^T a_i and q_i = Q^T b_i,

    K p_i ~ a_i,  Q q_i ~ b_i,  Q p_i ~ b_i,  K q_i ~ a_i,  p_i ~ q_i,  and K^T K and Q^T Q commute

(~ parallel, where 0 is parallel to all). Then V takes the common eigenvectors, the p_i and q_i among them.

Sheen, Chen, Wang and Zhou (2024), Assumptions 1 to 4 and Definition 5.1.
"""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin, Table, html_table
from saddlescope.models.tokens.data import HeadWeights, TokenData
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.models.tokens.separability import separability

ROUNDING = 1e-9  # largest relative deviation at which an assumption counts as met


@dataclass(frozen=True)
class AssumptionCheck:
    """Result of the check of one assumption.

    Attributes:
        holds: True if the assumption is met.
        number: the measured value, defined in `TokenAssumptions`.
        says: the number in words.
    """

    holds: bool
    number: float
    says: str


@dataclass(frozen=True, kw_only=True, repr=False)
class TokenAssumptions(ReprMixin):
    """Results of all checks for one set of token data.

    Attributes:
        separable: Assumption 1 for W in full; the number is the largest smallest margin found for |W|_F = 1, or 0.
        separable_diagonal: the same for W = diag(beta), |beta|_2 = 1.
        equal_scores: Assumption 2; the largest spread of the gaps of a sample, relative to their mean.
        small_initial_loss: Assumption 3 at the weights; ln of L - L* over its bound, at most 0 where it is met. Where
            the gaps of a sample differ, the smallest is taken.
        orthogonal: Assumption 4 (i); the largest |cosine| between optimal tokens, or queries, of two samples.
        parallel: Assumption 4 (ii); the largest 1 - |cosine| between a query and its optimal token.
        paired: Assumption 4 (iii); the largest distance of a token to the mirror image of its partner, relative to the
            length of the optimal token; infinite where L is even or some c is outside [-1, 1).
        aligned: Definition 5.1 at the weights (K, Q); the largest residual of the conditions above. None where no pair
            was given.
    """

    separable: AssumptionCheck
    separable_diagonal: AssumptionCheck
    equal_scores: AssumptionCheck
    small_initial_loss: AssumptionCheck
    orthogonal: AssumptionCheck
    parallel: AssumptionCheck
    paired: AssumptionCheck
    aligned: AssumptionCheck | None

    @property
    def fourth(self) -> bool:
        """True if all of Assumption 4 is met."""
        return self.orthogonal.holds and self.parallel.holds and self.paired.holds

    def __repr__(self) -> str:
        rows = [f"  {name:<19} {'yes' if holds else 'no':<4} {says}" for name, holds, says in self._table()[1]]
        return "\n".join(["TokenAssumptions:", *rows])

    def _table(self) -> Table:
        checks = ((field.name.replace("_", " "), getattr(self, field.name)) for field in fields(self))
        return ("assumption", "holds", ""), ((name, one.holds, one.says) for name, one in checks if one is not None)

    def _repr_html_(self) -> str:
        return html_table("TokenAssumptions", *self._table())


@validate_arguments
def check_token_assumptions(
    data: TokenData, weights: HeadWeights | None = None, *, loss: str = "exponential"
) -> TokenAssumptions:
    """Check Assumptions 1 to 4 for the data, Assumption 3 and the alignment property for the weights.

    Args:
        data: the tokens.
        weights: at the start of the flow: beta (d,), W (d, d), or (K, Q); by default zero, without a check of the
            alignment of K and Q.
        loss: "exponential", the paper's, or "logistic".

    Raises:
        InputError: weights of other shapes, numbers that are not finite, or another loss.
    """
    aligned = None
    if isinstance(weights, tuple):
        aligned = _deviation(alignment_residual(data, *weights), "residual {:.2g} of the alignment of K and Q")
    best = data.X[np.arange(data.samples), data.optimal]
    return TokenAssumptions(
        separable=_separable(data, False),
        separable_diagonal=_separable(data, True),
        equal_scores=_equal_scores(data),
        small_initial_loss=_small_loss(data, np.zeros(data.dim) if weights is None else weights, loss),
        orthogonal=_orthogonal(best, data.z),
        parallel=_parallel(best, data.z),
        paired=_paired(data, best),
        aligned=aligned,
    )


@validate_arguments
def alignment_residual(data: TokenData, K: ArrayLike, Q: ArrayLike) -> float:
    """Return the largest relative residual of the conditions for the alignment property of K and Q, (d, d_e).

    Raises:
        InputError: matrices of other shapes, or numbers that are not finite.
    """
    data.margins((K, Q))  # raises for arrays that cannot be weights
    k, q = (_unit_norm(np.asarray(each, float)) for each in (K, Q))
    a, b = _directions(data.X[np.arange(data.samples), data.optimal]), _directions(data.z)
    p, r = a @ k, b @ q
    residuals = [_off(p @ k.T, a), _off(r @ q.T, b), _off(p @ q.T, b), _off(r @ k.T, a)]
    residuals.append(np.linalg.norm(p, axis=1) * np.linalg.norm(_off_rows(r, p), axis=1))
    commutator = (k.T @ k) @ (q.T @ q)
    residuals.append(np.array([np.linalg.norm(commutator - commutator.T)]))
    return float(max(each.max() for each in residuals))


def _separable(data: TokenData, diagonal: bool) -> AssumptionCheck:
    answer = separability(data, diagonal=diagonal)
    if answer.weights is None:
        return AssumptionCheck(False, 0.0, f"samples {list(answer.conflict)!r} cannot be separated together")
    margin = 1 / float(np.linalg.norm(answer.weights))
    return AssumptionCheck(True, margin, f"smallest margin {margin:.3g} with weights of norm 1")


def _deviation(number: float, says: str) -> AssumptionCheck:
    """Return the check of an assumption that is met if a relative deviation is rounding."""
    return AssumptionCheck(number <= ROUNDING, number, says.format(number))


def _equal_scores(data: TokenData) -> AssumptionCheck:
    spread = float(np.max(np.ptp(data.gaps, axis=1) / data.gaps.mean(axis=1)))
    return _deviation(spread, "gaps of a sample spread by {:.2g} of their mean")


def _small_loss(data: TokenData, weights: HeadWeights, kind: str) -> AssumptionCheck:
    loss = SelectionLoss(data.optimal_scores, data.gaps, kind)
    number = loss.log_excess(data.margins(weights)) - float(loss.log_excess_missing().min())
    return AssumptionCheck(number <= 0, number, f"ln of L - L* at the start over its bound {number:.3g}")


def _orthogonal(best: Float[np.ndarray, "n d"], queries: Float[np.ndarray, "n d"]) -> AssumptionCheck:
    units = [_directions(rows) for rows in (best, queries)]
    largest = max(float(np.max(np.abs(rows @ rows.T - np.diag(np.sum(rows**2, axis=1))))) for rows in units)
    return _deviation(largest, "largest |cosine| of two optimal tokens or queries {:.2g}")


def _parallel(best: Float[np.ndarray, "n d"], queries: Float[np.ndarray, "n d"]) -> AssumptionCheck:
    cosines = np.abs(np.sum(_directions(best) * _directions(queries), axis=1))
    return _deviation(float(np.max(1 - cosines)), "largest 1 - |cosine| of a query and its optimal token {:.2g}")


def _paired(data: TokenData, best: Float[np.ndarray, "n d"]) -> AssumptionCheck:
    """Pair tokens by the nearest mirror image: exact where the assumption holds, else an upper bound."""
    lengths = np.linalg.norm(best, axis=1)
    if data.tokens % 2 == 0 or not np.all(lengths > 0):
        says = "tokens do not pair: L is even" if data.tokens % 2 == 0 else "an optimal token is 0"
        return AssumptionCheck(False, np.inf, says)
    largest = 0.0
    for i, others in enumerate(np.take_along_axis(data.X, data.others[:, :, None], axis=1)):
        c = others @ best[i] / lengths[i] ** 2
        if not np.all((c >= -1 - ROUNDING) & (c < 1)):
            worst = float(c[np.argmax(np.abs(c))])
            return AssumptionCheck(False, np.inf, f"sample {i} has c = {worst:.3g} outside [-1, 1)")
        apart = np.linalg.norm(others[:, None] - (2 * c[:, None] * best[i] - others)[None], axis=2) / lengths[i]
        left = list(range(len(others)))
        while left:
            first = left.pop(0)
            partner = left[int(np.argmin(apart[first, left]))]
            left.remove(partner)
            largest = max(largest, float(apart[first, partner]))
    return _deviation(largest, "largest distance of a token from its partner's image {:.2g}")


def _directions(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the rows scaled to length 1; 0 stays 0."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _unit_norm(matrix: Float[np.ndarray, "d e"]) -> Float[np.ndarray, "d e"]:
    size = np.linalg.norm(matrix, 2)
    return matrix / size if size > 0 else matrix


def _off_rows(rows: Float[np.ndarray, "n d"], units: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return the part of each row orthogonal to the other row."""
    along = _directions(units)
    return rows - np.sum(rows * along, axis=1, keepdims=True) * along


def _off(rows: Float[np.ndarray, "n d"], units: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n"]:
    return np.linalg.norm(_off_rows(rows, units), axis=1)

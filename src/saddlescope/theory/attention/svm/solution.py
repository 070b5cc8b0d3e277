"""Solutions of the attention SVMs, each with its multipliers and its certificate."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import AnyMark, Axis, Line, Mark, Panel, signed_matrix
from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm.certificate import SvmCertificate, certify_svm
from saddlescope.theory.attention.svm.constraints import not_solved

_LARGEST_GAP = 1e-6  # beyond it, a solver has failed; solutions are mostly within 1e-11


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalSvm(TableMixin, PlotMixin):
    """Solution of the (l1-SVM), W = diag(beta).

    Attributes:
        beta: (d,), with a smallest margin of 1.
        multipliers: lambda (n, m), scaled to max_j |sum_il lambda_il B_il|_j = 1, so that their sum is the dual bound.
        margins: u_il = B_il . beta (n, m).
        certificate: the bounds on the optimum.
    """

    beta: Float[np.ndarray, "d"]
    multipliers: Float[np.ndarray, "n m"]
    margins: Float[np.ndarray, "n m"]
    certificate: SvmCertificate

    def _table(self) -> Table:
        rows = zip(range(len(self.beta)), self.beta, self.support.tolist(), strict=True)
        return ("coordinate", "beta", "active"), rows

    def panel(self) -> Panel:
        """Return the entries of beta."""
        at = np.arange(len(self.beta))
        marks: list[AnyMark] = [Mark(at=0.0, axis="y")]
        marks += [Line(x=np.array([k, k]), y=np.array([0.0, b]), color=0, width=1.4) for k, b in enumerate(self.beta)]
        label = f"least ℓ1 norm {self.certificate.primal:.6g}"
        marks.append(Line(x=at, y=self.beta, label=label, style="points", color=0, width=2.6))
        return Panel(x=Axis("coordinate"), y=Axis("β"), marks=tuple(marks))

    @property
    def support(self) -> Bool[np.ndarray, "d"]:
        """Coordinates of beta that are not 0, by the certificate's threshold."""
        return np.abs(self.beta) > self.certificate.rank_threshold


@dataclass(frozen=True, eq=False, repr=False)
class LocalSolution(ReprMixin):
    """Search for a solution under a rank bound that the convex problem's solution does not meet.

    Attributes:
        rank_bound: d_e.
        multipliers: lambda (n, m) of the bounded problem; their sum is |W|.
        stationarity: |grad f - J^T lambda| / |grad f| in the factors, f = (|K|_F^2 + |Q|_F^2) / 2, J the
            Jacobian of the margins: 0 at a stationary point.
        num_starts: number of starts.
        num_feasible: number of starts that ended in weights that separate the data.
        num_best: number of starts that ended in the least value, to 1e-5.
    """

    rank_bound: int
    multipliers: Float[np.ndarray, "n m"]
    stationarity: float
    num_starts: int
    num_feasible: int
    num_best: int


@dataclass(frozen=True, eq=False, repr=False)
class MatrixSvm(TableMixin, PlotMixin):
    """Solution W = K Q^T of the (W_*-SVM) or the (W_F-SVM), as balanced factors, K^T K = Q^T Q diagonal.

    Attributes:
        K, Q: (d, r), with a smallest margin of 1; r is the rank.
        multipliers: lambda (n, m), scaled to |sum_il lambda_il D_il z_i^T| = 1 in the dual norm (spectral or
            Frobenius), so that their sum is the dual bound; for the Frobenius norm W = |W|_F sum lambda D z^T.
        margins: u_il = D_il^T W z_i (n, m).
        certificate: the bounds on the optimum.
        local: None for the global optimum; else K and Q are a local solution under a rank bound. The certificate's
            upper bound is then their value, its lower bound the optimum without a rank bound, by the multipliers of
            that problem; this gap implies little about rank and uniqueness.
    """

    K: Float[np.ndarray, "d r"]
    Q: Float[np.ndarray, "d r"]
    multipliers: Float[np.ndarray, "n m"]
    margins: Float[np.ndarray, "n m"]
    certificate: SvmCertificate
    local: LocalSolution | None = None

    def _table(self) -> Table:
        """Return the singular triplets, of which the balanced factors are the columns."""
        values = np.linalg.norm(self.K, axis=0) * np.linalg.norm(self.Q, axis=0)
        return ("index", "singular value"), enumerate(values.tolist())

    def panel(self) -> Panel:
        """Return the entries of the weights."""
        of, W = self.certificate, self.weights
        title = f"least {of.norm} norm {of.primal:.6g}, rank {of.rank}"
        return signed_matrix(W, "entry of W = K Qᵀ", "query coordinate", "key coordinate", title=title)

    @property
    def weights(self) -> Float[np.ndarray, "d d"]:
        """Product W = K Q^T (d, d), computed on demand."""
        return self.K @ self.Q.T


def diagonal_solution(
    data: TokenData, beta: Float[np.ndarray, "d"], multipliers: Float[np.ndarray, "n m"]
) -> DiagonalSvm:
    """Return the solution with weights and multipliers scaled as in its class."""
    lam = multipliers / np.abs(np.einsum("im,imd->d", multipliers, data.features)).max()
    margins = data.margins(beta)
    least = _positive(margins, data, diagonal=True)
    beta, margins = beta / least, margins / least
    return DiagonalSvm(beta, lam, margins, _checked(certify_svm(data, beta, lam, norm="l1")))


def matrix_solution(
    data: TokenData,
    factors: tuple[Float[np.ndarray, "d r"], Float[np.ndarray, "d r"]],
    multipliers: Float[np.ndarray, "n m"],
    norm: str,
) -> MatrixSvm:
    """Return the solution with weights scaled to a margin of 1 and the multipliers to a dual norm of 1."""
    margins = data.margins(factors)
    least = _positive(margins, data, diagonal=False)
    K, Q = (each / least**0.5 for each in factors)
    certificate = _checked(certify_svm(data, (K, Q), multipliers, norm=norm))
    lam = multipliers * (certificate.dual / multipliers.sum())
    return MatrixSvm(K, Q, lam, margins / least, certificate)


def _positive(margins: np.ndarray, data: TokenData, *, diagonal: bool) -> float:
    """Return the least margin; raise unless it is positive."""
    least = float(margins.min())
    if least <= 0:
        raise not_solved(data, diagonal=diagonal)
    return least


def _checked(certificate: SvmCertificate) -> SvmCertificate:
    if not certificate.gap <= _LARGEST_GAP:
        raise ArithmeticError(
            f"The {certificate.norm} SVM was solved to a relative duality gap of {certificate.gap:.1e} only:"
            f" its optimum is between {certificate.dual:.9g} and {certificate.primal:.9g}. Remove the samples or tokens"
            " that nearly conflict, or embed them in more dimensions: their margin is too small for float64."
        )
    return certificate

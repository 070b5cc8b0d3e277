"""Stage times of the symmetric two-layer network for small starts: each concept, and the peaks of minor entries.

    a_k     strengths of the concepts, (d,), distinct where positive
    U0      the start, (d, d'); W = U U^T
    s_k     Schur complement: the part of w_kk(0) orthogonal to the rows of all stronger concepts
    c_ik    the same of w_ik(0), for a concept i weaker than k
    t       time of gradient flow, dU/dt = -(A E + E A) U; the paper's time of equation 4.3 is 2 t

A concept that is learned removes its direction from the row space of U, so that a weaker one grows from the part of its
row in the remaining directions: with the rows in the order of decreasing strength, U0^T = Q R, s_k = R_kk^2 and
c_ik = R_kk R_ki. The noise terms N of equation 4.3 do this. From there on equation 4.3 without noise has the solution

    w_kk = s_k e^(4 a_k t) / (1 - s_k + s_k e^(4 a_k t)),     w_kk = 1/2 at T_k = log(1/s_k - 1) / (4 a_k),
    w_ik = c_ik e^(2 (a_i + a_k) t) ((1 - w_kk) / (1 - s_k))^((3 a_k + a_i) / (4 a_k)),

and |w_ik| peaks where w_kk = 2 (a_i + a_k) / (3 a_k + a_i). It is exact in the limit of small starts. At a finite scale
it holds for well separated stages: T_k in the order of decreasing strength.

A descent of the loss out of the distribution comes with a major entry w_kk that is learned; between two of them it may
rise with a minor entry that is suppressed (section 4.2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.measure.stages import Stage, Staircase
from saddlescope.theory.concepts.arguments import validate_strengths


@dataclass(frozen=True, eq=False, repr=False)
class ConceptStages(TableMixin, PlotMixin):
    """Predicted stages of a start.

    Attributes:
        strengths: a, (d,).
        schur: s_k in the order of the given strengths, (d,); exactly 0 where the rank does not suffice for the concept.
        couplings: c_ik, (d, d), symmetric, with s_k on the diagonal.
    """

    strengths: Float[np.ndarray, "d"]
    schur: Float[np.ndarray, "d"]
    couplings: Float[np.ndarray, "d d"]

    @property
    def times(self) -> Float[np.ndarray, "d"]:
        """Times T_k at which w_kk = 1/2, in the order of the given strengths; infinite for concepts never learned."""
        with np.errstate(divide="ignore", invalid="ignore"):
            times = (np.log1p(-self.schur) - np.log(self.schur)) / (4 * self.strengths)
        return np.where((self.strengths > 0) & (self.schur > 0), times, np.inf)

    def _table(self) -> Table:
        rows = zip(range(len(self.strengths)), self.strengths, self.schur, self.times, strict=True)
        return ("concept", "strength", "schur", "time"), rows

    def panel(self) -> Panel:
        """Return the picture of the staircase."""
        return self.staircase.panel()

    @property
    def separated(self) -> bool:
        """True if every stronger concept comes before every weaker one; otherwise the prediction does not hold."""
        times = self.times[np.argsort(-self.strengths, kind="stable")]
        times = times[np.isfinite(times)]
        return bool(np.all(np.diff(times) > 0))

    @property
    def peak_times(self) -> Float[np.ndarray, "d d"]:
        """Times t at which |w_ik| peaks, symmetric; NaN without a peak: on the diagonal, or with c_ik = 0.

        A start past the peak has a negative time. Where c_ik is much smaller than w_ik(0), |w_ik| also has an earlier
        peak, from before the stronger concepts are learned, which may be the higher one. Where c_ik is small by chance
        it may have a higher one later, from the noise of other minor entries as the next concepts are learned.
        """
        weak, strong, schur = self._pairs
        with np.errstate(divide="ignore", invalid="ignore"):
            # w_kk / (1 - w_kk) at the peak is 2 (a_i + a_k) / (a_k - a_i)
            odds = np.log(2 * (weak + strong) / (strong - weak))
            times = (odds + np.log1p(-schur) - np.log(schur)) / (4 * strong)
        return np.where((self.couplings != 0) & (weak < strong), times, np.nan)

    @property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weaker strength, stronger strength, and s_k of the stronger one, for every two concepts."""
        one, other = np.meshgrid(self.strengths, self.strengths, indexing="ij")
        return (
            np.minimum(one, other),
            np.maximum(one, other),
            np.where(one >= other, self.schur[:, None], self.schur[None, :]),
        )

    @property
    def staircase(self) -> Staircase:
        """Stages between the T_k, with the loss of equation 4.1 on each plateau and its concepts as support.

        Raises:
            InputError: the stages are not separated, so that they form no staircase.
        """
        if not self.separated:
            raise InputError(
                f"Stage times must increase from the strongest concept on; got {self.times!r}. Start from smaller "
                "weights."
            )
        order = [int(k) for k in np.argsort(self.times, kind="stable") if np.isfinite(self.times[k])]
        return concept_staircase(self.strengths, self.times, order)


def concept_staircase(
    strengths: Float[np.ndarray, "d"], times: Float[np.ndarray, "d"], order: Sequence[int]
) -> Staircase:
    """Return the stages between the times of concepts learned in this order, with the loss of equation 4.1."""
    learned = [float(times[k]) for k in order]
    starts = [min([0.0, *learned[:1]]), *learned]
    total = float(np.sum(strengths))
    return Staircase(
        tuple(
            Stage(
                start=start,
                end=end,
                loss=(total - float(np.sum(strengths[list(order[:rank])]))) / 2,
                rank=rank,
                support=tuple(sorted(order[:rank])),
            )
            for rank, (start, end) in enumerate(zip(starts, [*starts[1:], float("inf")], strict=True))
        ),
        time_unit="t",
    )


@validate_arguments
def concept_stages(strengths: ArrayLike, factor: ArrayLike) -> ConceptStages:
    """Predict the stages from a small start.

    >>> stages = concept_stages([1.0, 0.25], [[1e-3, 0.0], [1e-3, 1e-3]])
    >>> stages.times.round(2).tolist()  # log(1e6) / (4 a_k): of w_22(0) = 2e-6 half is along the stronger concept
    [3.45, 13.82]

    Args:
        strengths: a, (d,), at least 0, no two positive ones equal.
        factor: U0, (d, d'), any width; of a given W0 by `saddlescope.models.symmetric_factor`.

    Raises:
        InputError: inconsistent shapes, values that are not finite, two equal strengths, or a start that is not
            small: a Schur complement of 1 or above.
    """
    a = validate_strengths(strengths, distinct=True)
    U = real_array("factor", factor, (None, None))
    if len(U) != len(a):
        raise InputError(f"factor must have a row for each of the {len(a)} strengths; got shape {U.shape!r}.")
    order = np.argsort(-a, kind="stable")
    residual = U[order].copy()
    rounding = 4 * max(U.shape) * np.finfo(float).eps
    couplings = np.zeros((len(a), len(a)))
    for k in range(len(a)):
        # The remaining rows are orthogonal to all before: modified Gram-Schmidt, with a second pass for accuracy.
        row = residual[k]
        size = float(np.linalg.norm(row))
        if size <= rounding * np.linalg.norm(U[order[k]]):
            continue
        unit = row / size
        along = residual[k:] @ unit
        couplings[k, k:] = couplings[k:, k] = size * along
        residual[k + 1 :] -= np.outer(along[1:], unit)
        residual[k + 1 :] -= np.outer(residual[k + 1 :] @ unit, unit)
    back = np.argsort(order)
    couplings = couplings[np.ix_(back, back)]
    schur = np.diag(couplings).copy()
    if np.any(schur[a > 0] >= 1):
        raise InputError(f"factor must be small, with Schur complements below 1; got {float(np.max(schur))!r}.")
    return ConceptStages(a, schur, couplings)

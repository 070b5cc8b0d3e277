"""Gradient flow of the symmetric two-layer model x -> U U^T x on the identity task, for thousands of starts at once.

    loss    |(W - 1) A^{1/2}|^2 / 2 with W = U U^T, U (d, d'), A the second moment of the data; Yang et al. 2024, 4.2
    flow    dU/dt = -(A E + E A) U, E = W - 1: its true gradient flow; the paper's time in 4.3 and appendix D is 2 t
    test    the loss out of distribution, L(t) = |(W - 1) x|^2 / 2 at one point x

Each start takes its own steps, by Taylor series (`saddlescope.flow.two_layer.taylor_series`). The turns of L are all
roots of dL/dt, found from the series, not from samples. From a start of full rank W goes to 1, if A is definite, since
d/dt log det W = 4 tr(A (1 - W)); from another one it never does. `SymmetricFlows.endings` distinguishes that from flows
that ran too short a time, and from faults of the arithmetic, by the same law.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Panel, several_lines
from saddlescope.flow.status import Status, require_tolerance
from saddlescope.flow.two_layer.integrator import Run, follow, prepared

_CHUNK = 1024  # starts followed together: fewer cost more calls, more cost memory and no less time
LOCAL_SHARE = 0.1  # of the tolerance, for the relative error of one step; then errors of W are a tenth of it or less
_LARGEST = 1e3  # weight of a start; powers of its square up to the order of the series must not overflow
_LEARNED = 0.01  # an entry of W - 1 below which all is learned
_DRIFT = 0.01  # of log det W beyond which the run is an artefact: the last stage is off by a fourth of it over a


class Ending(IntEnum):
    """Outcome of a flow.

    Attributes:
        LEARNED: every entry of W is within 0.01 of the identity's.
        PLATEAU: not yet, but later if A is definite: the start has full rank and `until` is too early.
        RANK_DEFICIENT: never, since the rank of W is below d for ever.
        ARTEFACT: the run cannot be trusted: log det W violates its law.
    """

    LEARNED = 0
    PLATEAU = 1
    RANK_DEFICIENT = 2
    ARTEFACT = 3


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SymmetricFlows(TableMixin, PlotMixin):
    """Runs of many flows of the symmetric two-layer model, in the coordinates of the data.

    Attributes:
        strengths: eigenvalues of A, shape (d,); the diagonal, in its order, where A was given by it.
        basis: its eigenvectors as columns, shape (d, d).
        test_point: x, shape (d,).
        tolerance: as given.
        times: recorded times, ascending, the first 0 and the last `until`; true gradient flow, shape (k,).
        W: U U^T at these, shape (n, k, d, d).
        losses: out of distribution, |(W - 1) x|^2 / 2 at these, shape (n, k).
        turning_times: 0, the times of all extrema of that loss, and `until`, shape (n, q). Rows with fewer extrema
            than others repeat `until`. Rises and falls that errors can cause are left out: below `tolerance` times the
            larger of |x|^2 / 2 and |(W - 1) x| |x| max(W) there.
        turning_losses: the losses at these, shape (n, q).
        turns: the number of extrema, shape (n,).
        ends: factors U from which the runs can be continued, shape (n, d, r), r = min(d, d').
        ranks: numerical ranks of the starts, which the flow conserves, shape (n,).
        drifts: |log det W - its law| over the run, shape (n,), 0 where the rank is below d.
        endings: outcome of each, an `Ending`, shape (n,).
    """

    strengths: Float[np.ndarray, "d"]
    basis: Float[np.ndarray, "d d"]
    test_point: Float[np.ndarray, "d"]
    tolerance: float
    times: Float[np.ndarray, "k"]
    W: Float[np.ndarray, "n k d d"]
    losses: Float[np.ndarray, "n k"]
    turning_times: Float[np.ndarray, "n q"]
    turning_losses: Float[np.ndarray, "n q"]
    turns: Int[np.ndarray, "n"]
    ends: Float[np.ndarray, "n d r"]
    ranks: Int[np.ndarray, "n"]
    drifts: Float[np.ndarray, "n"]
    endings: Int[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.turns)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{int(np.sum(self.endings == kind))} {kind.name.lower()}" for kind in Ending)
        return f"SymmetricFlows({len(self)} starts to t = {self.times[-1]:.6g}: {kinds.replace('_', ' ')})"

    def _table(self) -> Table:
        rows = (
            (start, int(turns), float(losses[-1]), Ending(kind).name.lower().replace("_", " "))
            for start, (turns, losses, kind) in enumerate(zip(self.turns, self.losses, self.endings, strict=True))
        )
        return ("start", "turns", "loss", "ending"), rows

    def panel(self) -> Panel:
        """Return the loss out of distribution of every start, at the recorded times and at all extrema."""
        style = "solid" if len(self.times) >= 12 else "points"  # fewer records make no curve
        curves = []
        for start in range(len(self)):
            times, first = np.unique(np.append(self.times, self.turning_times[start]), return_index=True)
            curves.append((f"start {start}", times, np.append(self.losses[start], self.turning_losses[start])[first]))
        return Panel(x=Axis("time t"), y=Axis("loss out of distribution"), marks=several_lines(curves, style=style))

    def learned_at(self, start: int) -> float:
        """Return the time at which the last diagonal entry of W passes 1/2, predicted from the end; infinite if never.

        In the order of decreasing strengths a_k, with s_k the Schur complements of W in the eigenbasis, w_kk = 1/2 at
        log(1 / s_k - 1) / (4 a_k) from now. That is the leading order for small weights in the unlearned part.
        For a run that has learned, the time is the end of the run, an upper bound.
        """
        if self.ranks[start] < len(self.strengths):
            return math.inf
        order = np.argsort(-self.strengths, kind="stable")
        rows = (self.basis.T @ self.ends[start])[order]
        s = np.diag(np.linalg.qr(rows.T, mode="r")) ** 2
        small = s < 0.5
        with np.errstate(divide="ignore"):  # a strength of 0 never learns
            waits = np.log(1 / s[small] - 1) / (4 * self.strengths[order][small])
        return float(self.times[-1] + max(waits, default=0.0))

    def status(self, start: int) -> Status:
        """Return the termination status of one flow, with a cure where it has not learned."""
        until, distance = self.times[-1], np.abs(self.W[start, -1] - np.eye(len(self.strengths))).max()
        ending = Ending(int(self.endings[start]))
        sentence, cure = f"All is learned by t = {until:.6g}.", ""
        if ending == Ending.PLATEAU:
            end = self.learned_at(start)
            sentence = f"At t = {until:.6g} an entry of W is {distance:.2g} from the identity's: a plateau."
            cure = f"It ends at about t = {end:.4g}; set until beyond that."
            if end == math.inf:
                cure = "It never ends: A has an eigenvalue of 0, so that its direction is never learned."
        elif ending == Ending.RANK_DEFICIENT:
            sentence = (
                f"The start has rank {self.ranks[start]}, below {len(self.strengths)}: some of W is never learned."
            )
            cure = "Start from a matrix of full rank, at least as wide as the data."
        elif ending == Ending.ARTEFACT:
            sentence = f"log det W is off its law by {self.drifts[start]:.2g}: rounding has replaced part of the start."
            cure = "Lower tolerance; if that does not help, the start is too close to one of lower rank for float64."
        return Status(ending == Ending.LEARNED, ending.name.lower(), sentence, cure)


@validate_arguments
def symmetric_flows(
    moment: Any,
    starts: Any,
    *,
    test_point: Any,
    until: float,
    tolerance: float,
    record: Any = None,
    report: Report = silent,
) -> SymmetricFlows:
    """Follow gradient flow of |(U U^T - 1) A^{1/2}|^2 / 2 in U from many starts.

    Where d' > d, the flow of W is integrated in a square factor of U U^T; where U is rank-deficient, in one whose
    columns beyond the rank are exactly 0.

    Args:
        moment: the second moment A of the data, symmetric and positive semidefinite (d, d), or its diagonal (d,).
        starts: U at time 0, (n, d, d'), of entries up to 1e3 in absolute value. One start: `U[None]`.
        test_point: x, the point of the loss out of distribution, (d,).
        until: the last time, positive.
        tolerance: the error allowed in an entry of W(t), about, as a part of the largest entry of W, or of 1 if that is
            larger; 1e-12 to 1e-3. 1e-6 takes about 0.6 of the time of 1e-11.
        record: times at which W is recorded besides 0 and `until`, (k,); by default none.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or a start is too large in a direction of a small eigenvalue.
    """
    strengths, basis = _spectrum(moment)
    d = len(strengths)
    point = real_array("test_point", test_point, (d,))
    starts = require_starts(real_array("starts", starts, (None, d, None)), until, tolerance)
    if not point.any():
        raise InputError(f"test_point must not be all 0; got {test_point!r}.")
    times = np.zeros(0) if record is None else real_array("record", record)
    if not (times.ndim == 1 and np.all((times >= 0) & (times <= until))):
        raise InputError(f"record must be a vector of times between 0 and until={until!r}; got {record!r}.")
    times = np.unique(np.concatenate([times, [0.0, until]]))

    rate = float(np.max(strengths))
    local = tolerance * LOCAL_SHARE
    x = basis.T @ point
    chunks = [
        prepared(basis.T @ starts[first : first + _CHUNK], strengths / rate, until * rate, local, first)
        for first in range(0, len(starts), _CHUNK)
    ]
    runs = []
    for k, (factors, _) in enumerate(chunks):
        report(k / len(chunks), f"{k * _CHUNK} of {len(starts)} starts followed")
        runs.append(follow(factors, strengths / rate, x, times * rate, local))
    ranks = np.concatenate([ranks for _, ranks in chunks])
    return _assemble(strengths, basis, point, tolerance, times, runs, ranks)


def _spectrum(moment: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues and eigenvectors of A, checked."""
    a = real_array("moment", moment)
    if a.size == 0 or a.ndim not in (1, 2) or a.shape[0] != a.shape[-1]:
        raise InputError(f"moment must be a square matrix or its diagonal; got {moment!r}.")
    if a.ndim == 1:
        strengths, basis = a, np.eye(len(a))
    else:
        if np.abs(a - a.T).max() > 1e-12 * np.abs(a).max():
            raise InputError(f"moment must be symmetric; got {moment!r}. Pass X^T X / n for a second moment.")
        strengths, basis = np.linalg.eigh(a)
        strengths[np.abs(strengths) <= len(a) * np.finfo(float).eps * np.max(strengths)] = 0.0  # rounding of 0
    if not np.max(strengths) > 0 or np.min(strengths) < -1e-12 * np.max(strengths):
        raise InputError(f"moment must be positive semidefinite and not 0; got eigenvalues {strengths!r}.")
    return np.maximum(strengths, 0.0), basis


def require_starts(
    starts: Float[np.ndarray, "n d width"], until: float, tolerance: float
) -> Float[np.ndarray, "n d width"]:
    """Return the starts unchanged.

    Raises:
        InputError: the starts, the last time or the tolerance cannot be used.
    """
    if np.abs(starts).max() > _LARGEST:
        raise InputError(f"starts must be at most {_LARGEST:g} in absolute value; got {np.abs(starts).max()!r}.")
    if not 0 < until < np.inf:
        raise InputError(f"until must be a positive finite time; got {until!r}.")
    require_tolerance(tolerance, 1e-12, 1e-3)
    return starts


def _assemble(
    strengths: np.ndarray,
    basis: np.ndarray,
    test_point: np.ndarray,
    tolerance: float,
    times: np.ndarray,
    runs: list[Run],
    ranks: np.ndarray,
) -> SymmetricFlows:
    """Join the chunks, in the coordinates and the time of the data."""
    rate, d = float(np.max(strengths)), len(strengths)
    W = basis @ np.concatenate([run.W for run in runs]) @ basis.T
    residual = W @ test_point - test_point
    losses = np.sum(residual**2, axis=-1) / 2
    first = np.cumsum([0, *(len(run.W) for run in runs)])
    owners = np.concatenate([begin + run.owners for begin, run in zip(first, runs, strict=False)])
    turns = np.bincount(owners, minlength=len(W))
    shape = len(W), int(np.max(turns)) + 2
    turning_times, turning_losses = np.full(shape, times[-1]), np.tile(losses[:, -1:], shape[1])
    turning_times[:, 0], turning_losses[:, 0] = 0.0, losses[:, 0]
    place = owners, 1 + np.arange(len(owners)) - (np.cumsum(turns) - turns)[owners]
    turning_times[place] = np.concatenate([run.turning_times for run in runs]) / rate
    turning_losses[place] = np.concatenate([run.turning_losses for run in runs])
    drifts = np.where(ranks == d, np.concatenate([run.drifts for run in runs]), 0.0)
    endings = np.where(np.abs(W[:, -1] - np.eye(d)).max(axis=(1, 2)) <= _LEARNED, Ending.LEARNED, Ending.PLATEAU)
    endings = np.where(ranks < d, Ending.RANK_DEFICIENT, endings)
    endings = np.where(drifts > _DRIFT, Ending.ARTEFACT, endings)
    return SymmetricFlows(
        strengths=strengths,
        basis=basis,
        test_point=test_point,
        tolerance=tolerance,
        times=times,
        W=W,
        losses=losses,
        turning_times=turning_times,
        turning_losses=turning_losses,
        turns=turns,
        ends=basis @ np.concatenate([run.ends for run in runs]),
        ranks=ranks,
        drifts=drifts,
        endings=endings,
    )

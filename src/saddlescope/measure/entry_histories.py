"""Histories of the entries of a linear network's map W: times of growth, learning and suppression.

    concepts     the directions of positive strength; the eigenvectors of the data's second moment are the coordinates
    major        a diagonal entry w_kk of a concept: it grows to 1
    minor        an entry off the diagonal in the row or column of a concept: it rises, peaks and is suppressed
    irrelevant   an entry in neither, which does not affect the output at any point composed of concepts
    group p      the minor entries in row or column p: those that w_pp suppresses as it is learned

These kinds are those of section 4.2.1 of Yang, Park, Lubana, Okawa, Hu and Tanaka (2024), "Dynamics of concept learning
and compositional generalization".
"""

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import as_numpy
from saddlescope.measure.stages import Staircase, find_stages

_SAMPLES = 1000  # of the loss, besides the crossings, to find where a plateau is flattest
_HALF = 0.5


@runtime_checkable
class EntryPath(Protocol):
    """Path W(t) with the times at which entries pass a level or turn, such as `saddlescope.flow.SymmetricPath`."""

    @property
    def until(self) -> float:
        """Last time of the path."""
        ...

    def __call__(self, times: Any) -> Float[np.ndarray, "k d d"]:
        """Return W at these times."""
        ...

    def crossings(self, i: int, j: int, level: float) -> Float[np.ndarray, "n"]:
        """Return all times at which w_ij passes the level."""
        ...

    def turns(self, i: int, j: int) -> Float[np.ndarray, "n"]:
        """Return all times at which w_ij is largest or smallest locally."""
        ...


class EntryKind(StrEnum):
    """Kind of an entry of W, by the concepts in its row and column."""

    MAJOR = "major"
    MINOR = "minor"
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, repr=False, kw_only=True)
class EntryHistory(ReprMixin):
    """History of one entry w_ij of W.

    Attributes:
        row, column: i and j, i <= j.
        kind: see `EntryKind`.
        groups: the concepts whose groups contain a minor entry; the strongest, which suppresses it, first.
        grows: end of the initial phase: |w_ij| passes `level` of its height for the last time before `top`; 0 if it
            begins above, infinity if it never does.
        top: for a major entry, the time it passes 1/2 for the last time; for others, the time of the largest |w_ij|.
            0 if reached at the beginning; infinity if never, or only as the run ends.
        height: w_ij at the top, with its sign; the largest value so far if the top is not reached. For a major entry 1.
        settles: time from which w_ij stays within `level` of its height of its limit: 1 for a major entry, 0 for
            others, which are then suppressed. Infinity if this is not so by the end of the run.
    """

    row: int
    column: int
    kind: EntryKind
    groups: tuple[int, ...]
    grows: float
    top: float
    height: float
    settles: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EntryHistories(ReprMixin):
    """Histories of all entries of W.

    Attributes:
        entries: for all i <= j, row by row.
        staircase: the concepts learned, w_kk > 1/2, against time, in "t"; losses are those of equation 4.1,
            |(W - 1) A^{1/2}|^2 / 2, where they change slowest. Comparable with the predictions of `theory.concepts`.
    """

    entries: tuple[EntryHistory, ...]
    staircase: Staircase

    def __getitem__(self, entry: tuple[int, int]) -> EntryHistory:
        """Return the history of w_ij, by (i, j) or (j, i)."""
        return next(one for one in self.entries if (one.row, one.column) == (min(entry), max(entry)))

    def __repr__(self) -> str:
        return f"EntryHistories({len(self.entries)} entries; {self.staircase!r})"


@validate_arguments
def entry_histories(path: EntryPath, strengths: Any, *, level: float = 0.1, report: Report = silent) -> EntryHistories:
    """Return the histories of all entries along a path, from the path's own roots and as exact as those.

    Args:
        path: W(t) in the eigenvectors of A.
        strengths: a, the eigenvalues of A, (d,); positive ones belong to concepts.
        level: the part of its height below which an entry is in its initial phase, or suppressed, and the distance
            from 1 below which a major one is learned; between 0 and 1/2.
        report: called after each entry with the fraction done and a note.

    Raises:
        InputError: strengths or a level out of range, or no concept.
    """
    a = as_numpy("strengths", strengths)
    d = path(0.0).shape[-1]
    if a.shape != (d,) or not np.all((a >= 0) & (a < np.inf)) or not np.any(a > 0):
        raise InputError(f"strengths must be {d} finite numbers of at least 0, not all 0; got {strengths!r}.")
    if not 0 < level < _HALF:
        raise InputError(f"level must be between 0 and 1/2; got {level!r}.")
    entries = []
    pairs = list(itertools.combinations_with_replacement(range(d), 2))
    for i, j in pairs:
        entries.append(_history(path, a, i, j, level))
        report(len(entries) / len(pairs), f"entry {i}, {j}")
    return EntryHistories(entries=tuple(entries), staircase=_staircase(path, a))


def _history(path: EntryPath, a: np.ndarray, i: int, j: int, level: float) -> EntryHistory:
    concepts = tuple(p for p in sorted({i, j}, key=lambda p: -a[p]) if a[p] > 0)
    kind = EntryKind.IRRELEVANT if not concepts else EntryKind.MAJOR if i == j else EntryKind.MINOR
    groups = concepts if kind is EntryKind.MINOR else ()
    history = partial(EntryHistory, row=i, column=j, kind=kind, groups=groups)
    if kind is EntryKind.MAJOR:
        grows, top, settles = (_passed_for_good(path, i, part) for part in (level, _HALF, 1 - level))
        return history(grows=grows, top=top, height=1.0, settles=settles)
    times = np.concatenate([[0.0], path.turns(i, j), [path.until]])
    values = path(times)[:, i, j]
    highest = int(np.argmax(np.abs(values)))
    at, height = float(times[highest]), float(values[highest])
    if height == 0:
        return history(grows=math.inf, top=math.inf, height=0.0, settles=0.0)
    upwards = path.crossings(i, j, level * height)
    passed = np.sort(np.concatenate([upwards, path.crossings(i, j, -level * height)]))
    return history(
        grows=float(max(upwards[upwards < at], default=0.0)),
        top=at if highest < len(times) - 1 else math.inf,
        height=height,
        settles=float(passed[-1]) if abs(values[-1]) < level * abs(height) else math.inf,
    )


def _passed_for_good(path: EntryPath, k: int, level: float) -> float:
    """Return the time from which w_kk is above the level."""
    if path(path.until)[0, k, k] <= level:
        return math.inf
    return float(max(path.crossings(k, k, level), default=0.0))


def _staircase(path: EntryPath, a: np.ndarray) -> Staircase:
    """Find the stages in which |w_kk| of a concept is above 1/2."""
    concepts = np.flatnonzero(a > 0)
    crossings = [path.crossings(k, k, level) for k in concepts.tolist() for level in (_HALF, -_HALF)]
    # find_stages takes a sample on its level as the crossing itself, so that the path's own roots are preserved.
    times = np.unique(np.concatenate([np.linspace(0.0, path.until, _SAMPLES), *crossings]))
    W = path(times)
    losses = np.sum((W - np.eye(len(a))) ** 2 * a, axis=(1, 2)) / 2
    activity = np.where(a > 0, np.abs(np.einsum("tkk->tk", W)), 0.0)
    return find_stages(times, losses, activity, level=_HALF, time_unit="t")

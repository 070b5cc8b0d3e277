"""The life of every entry of a linear network's map W: when it begins to grow, when it is learned or suppressed.

    concepts     the directions of positive strength; the eigenvectors of the data's second moment are the coordinates
    major        a diagonal entry w_kk of a concept: it grows to 1
    minor        an entry off the diagonal in the row or column of a concept: it rises, peaks and is suppressed
    irrelevant   an entry in neither, which the output at no point made of concepts depends on
    group p      the minor entries in row or column p: those that w_pp suppresses as it is learned

These kinds are those of section 4.2.1 of Yang, Park, Lubana, Okawa, Hu and Tanaka (2024), "Dynamics of concept learning
and compositional generalization".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import as_numpy
from saddlescope.measure.stages import Staircase, find_stages

_SAMPLES = 1000  # of the loss, besides the crossings, to find out where a plateau is flattest
_HALF = 0.5


@runtime_checkable
class EntryPath(Protocol):
    """W(t) with the times at which entries pass a level or turn, such as `saddlescope.flow.SymmetricPath`."""

    @property
    def until(self) -> float:
        """The last time."""
        ...

    def __call__(self, times: Any) -> Float[np.ndarray, "k d d"]:
        """W at these times."""
        ...

    def crossings(self, i: int, j: int, level: float) -> Float[np.ndarray, "n"]:
        """All times at which w_ij passes the level."""
        ...

    def turns(self, i: int, j: int) -> Float[np.ndarray, "n"]:
        """All times at which w_ij is largest or smallest locally."""
        ...


class EntryKind(StrEnum):
    """What an entry of W is, by the concepts in its row and column."""

    MAJOR = "major"
    MINOR = "minor"
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, repr=False, kw_only=True)
class EntryHistory(ReprMixin):
    """What one entry w_ij of W does.

    Attributes:
        row, column: i and j, i <= j.
        kind: see `EntryKind`.
        groups: the concepts in whose groups a minor entry is, the strongest, which suppresses it, first.
        grows: when |w_ij| leaves the initial phase: it passes `level` of its height for the last time before `top`;
            0 where it begins above, infinity where it never does.
        top: for a major entry when it passes 1/2 for the last time; for others when |w_ij| is largest. 0 where it is
            there from the beginning; infinity where it never is, or only as the run ends.
        height: w_ij at the top, with its sign; the largest so far where the top is not reached. For a major entry 1.
        settles: when w_ij is within `level` of its height of where it goes, for good: 1 for a major entry, 0 for
            others, which are suppressed then. Infinity where it is not by the end of the run.
    """

    row: int
    column: int
    kind: EntryKind
    groups: tuple[int, ...]
    grows: float
    top: float
    height: float
    settles: float


@dataclass(frozen=True, eq=False, repr=False)
class EntryHistories(ReprMixin):
    """What all entries of W do.

    Attributes:
        entries: for all i <= j, row by row.
        staircase: the concepts learned, w_kk > 1/2, against time, in "t"; losses are those of equation 4.1,
            |(W - 1) A^{1/2}|^2 / 2, where they change slowest. Of the form that `theory.concepts` predicts.
        entry_staircase: the same of single entries: its components are places in `entries`. A major entry is active
            where w_kk > 1/2, a minor one where |w_ij| is above `level` of its height; irrelevant ones never are.
    """

    entries: tuple[EntryHistory, ...]
    staircase: Staircase
    entry_staircase: Staircase

    def __getitem__(self, entry: tuple[int, int]) -> EntryHistory:
        """The history of w_ij, by (i, j) or (j, i)."""
        return next(one for one in self.entries if (one.row, one.column) == (min(entry), max(entry)))

    def __repr__(self) -> str:
        return f"EntryHistories({len(self.entries)} entries; {self.staircase!r})"

    def of_kind(self, kind: EntryKind) -> tuple[EntryHistory, ...]:
        """The entries of one kind."""
        return tuple(one for one in self.entries if one.kind is kind)


@validate_arguments
def entry_kind(i: int, j: int, concepts: Any) -> EntryKind:
    """The kind of w_ij where `concepts` tells for each direction whether it is one, (d,)."""
    if not (concepts[i] or concepts[j]):
        return EntryKind.IRRELEVANT
    return EntryKind.MAJOR if i == j else EntryKind.MINOR


@validate_arguments
def entry_histories(path: EntryPath, strengths: Any, *, level: float = 0.1) -> EntryHistories:
    """The histories of all entries along a path, from its own roots: as exact as they are.

    Args:
        path: W(t) in the eigenvectors of A.
        strengths: a, the eigenvalues of A, (d,); those that are positive belong to concepts.
        level: the part of its height below which an entry is in its initial phase, or suppressed, and the distance
            from 1 below which a major one is learned; between 0 and 1/2.

    Raises:
        InputError: strengths or a level that cannot be used, or no concept.
    """
    a = as_numpy("strengths", strengths)
    d = path(0.0).shape[-1]
    if a.shape != (d,) or not np.all((a >= 0) & (a < np.inf)) or not np.any(a > 0):
        raise InputError(f"strengths must be {d} finite numbers of at least 0, not all 0; got {strengths!r}.")
    if not 0 < level < _HALF:
        raise InputError(f"level must be between 0 and 1/2; got {level!r}.")
    entries = tuple(_history(path, a, i, j, level) for i in range(d) for j in range(i, d))
    concepts = {k: (k, k, _HALF) for k in np.flatnonzero(a > 0).tolist()}
    active = {
        n: (one.row, one.column, _HALF if one.kind is EntryKind.MAJOR else level * abs(one.height))
        for n, one in enumerate(entries)
        if one.kind is not EntryKind.IRRELEVANT and one.height != 0
    }
    return EntryHistories(entries, _staircase(path, a, concepts), _staircase(path, a, active))


def _history(path: EntryPath, a: np.ndarray, i: int, j: int, level: float) -> EntryHistory:
    kind = entry_kind(i, j, a > 0)
    pair = sorted({i, j}, key=lambda p: -a[p])
    groups = tuple(p for p in pair if a[p] > 0) if kind is EntryKind.MINOR else ()
    if kind is EntryKind.MAJOR:
        grows, top, settles = (_passed_for_good(path, i, part) for part in (level, _HALF, 1 - level))
        return EntryHistory(
            row=i, column=j, kind=kind, groups=groups, grows=grows, top=top, height=1.0, settles=settles
        )
    times = np.concatenate([[0.0], path.turns(i, j), [path.until]])
    values = path(times)[:, i, j]
    highest = int(np.argmax(np.abs(values)))
    at, height = float(times[highest]), float(values[highest])
    if height == 0:
        return EntryHistory(
            row=i, column=j, kind=kind, groups=groups, grows=math.inf, top=math.inf, height=0.0, settles=0.0
        )
    upwards = path.crossings(i, j, level * height)
    passed = np.sort(np.concatenate([upwards, path.crossings(i, j, -level * height)]))
    return EntryHistory(
        row=i,
        column=j,
        kind=kind,
        groups=groups,
        grows=float(max(upwards[upwards < at], default=0.0)),
        top=at if highest < len(times) - 1 else math.inf,
        height=height,
        settles=float(passed[-1]) if abs(values[-1]) < level * abs(height) else math.inf,
    )


def _passed_for_good(path: EntryPath, k: int, level: float) -> float:
    """When w_kk is above the level from then on."""
    if path(path.until)[0, k, k] <= level:
        return math.inf
    return float(max(path.crossings(k, k, level), default=0.0))


def _staircase(path: EntryPath, a: np.ndarray, levels: Mapping[int, tuple[int, int, float]]) -> Staircase:
    """The stages in which |w_ij| is above a level, for the components that have one: i, j and the level."""
    crossings = [path.crossings(i, j, sign * level) for i, j, level in levels.values() for sign in (1, -1)]
    # find_stages takes a sample that lies on its level as the crossing itself, so that the path's own roots stay.
    times = np.unique(np.concatenate([np.linspace(0.0, path.until, _SAMPLES), *crossings]))
    W = path(times)
    losses = np.sum((W - np.eye(len(a))) ** 2 * a, axis=(1, 2)) / 2
    activity = np.zeros((len(times), 1 + max(levels)))
    for component, (i, j, level) in levels.items():
        activity[:, component] = np.abs(W[:, i, j]) / level
    return find_stages(times, losses, activity, level=1.0, time_unit="t")

"""Recorders: what a tracker records of each update beside its norm and its ranks.

    tracker = RankTracker(model, matrices="*.mlp.*", recorders=[Values(16, randomized=True), Vectors(4), Increments()])

A recorder holds its own arguments and nothing else: the same one can serve several trackers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.ranks.tracker.schedules import Schedule

_T = TypeVar("_T")


class Recorder(ReprMixin):
    """Base of the recorders."""


@validate_arguments
@dataclass(frozen=True)
class Values(Recorder):
    """Singular values: all, as without this recorder, or the largest. Norms and ranks are those of the whole update.

    Attributes:
        top: number of the largest values to record of each spectrum; None records all.
        randomized: find those of large single matrices by a randomised method, which takes a fraction of the time, with
            a bound on the error of each. Effective ranks are then NaN.

    Raises:
        InputError: `top` is below 1, or None with `randomized`.
    """

    top: int | None = None
    randomized: bool = False

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise InputError(f"top must be at least 1, or None for all singular values; got {self.top!r}.")
        if self.randomized and self.top is None:
            raise InputError("top must be the number of values to find by the randomised method; got None.")


@validate_arguments
@dataclass(frozen=True)
class Angles(Recorder):
    """Principal angles between the leading singular subspaces of a head's products, from record to record.

    Attributes:
        k: dimension of the subspaces.

    Raises:
        InputError: `k` is below 1.
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"k must be at least 1; got {self.k!r}.")


@validate_arguments
@dataclass(frozen=True, repr=False)
class Vectors(Recorder):
    """Leading singular vectors of each update; see `RankTracker.singular_vectors`.

    In memory and in the tracker's state, each record takes 4 k (rows + columns) bytes per matrix, or product of a head.

    Attributes:
        k: number of vectors.
        at: function from the number of steps to whether a record there has vectors; None records them always.

    Raises:
        InputError: `k` is below 1.
    """

    k: int
    at: Schedule | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"k must be at least 1; got {self.k!r}.")


@dataclass(frozen=True)
class Orders(Recorder):
    """Norms and stable ranks of the first and second order of each update of a product in those of its factors.

    See `saddlescope.measure.product_update_orders`.
    """


@dataclass(frozen=True)
class Increments(Recorder):
    """The same of the updates since the previous record.

    It keeps a second copy of the tracked weights in memory, and in the tracker's state.
    """


def recorder(recorders: Sequence[Recorder], kind: type[_T]) -> _T | None:
    """Return the recorder of a kind, or None."""
    return next((one for one in recorders if isinstance(one, kind)), None)


def require_recorders(recorders: Sequence[Recorder], *, attention: bool, matrices: object) -> None:
    """Raise InputError for recorders that do not fit each other, or what is measured.

    Raises:
        InputError: something else, or two of one kind; neither attention nor matrices are measured, or no matrices for
            randomised values; no attention for what is of products of heads.
    """
    if not isinstance(recorders, Sequence) or not all(isinstance(one, Recorder) for one in recorders):
        raise InputError(
            f"recorders must be several in a list, such as [Vectors(4), Increments()]; got {recorders!r}. They are in "
            "saddlescope.ranks."
        )
    if len({type(one) for one in recorders}) < len(recorders):
        raise InputError(f"recorders must be of different kinds; got {list(recorders)!r}.")
    if not attention and matrices is None:
        raise InputError("attention must be True if no matrices are selected; got False, which measures nothing.")
    if not attention and (one := next((one for one in recorders if isinstance(one, Angles | Orders)), None)):
        raise InputError(f"{one!r} is of the products of heads; got attention=False. Leave one of them out.")
    values = recorder(recorders, Values)
    if values is not None and values.randomized and matrices is None:
        raise InputError(f"{values!r} must come with matrices; got none. Pass such as matrices='*.mlp.*'.")

"""Recorders: what a tracker records of each update beside its norm and its ranks.

    tracker = RankTracker(model, matrices="*.mlp.*", recorders=[RandomizedValues(16), Vectors(4), Increments()])

A recorder holds its own arguments and nothing else: the same one can serve several trackers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection
from saddlescope.ranks.tracker.schedules import Schedule

_T = TypeVar("_T")


@validate_arguments
@dataclass(frozen=True)
class Values:
    """Singular values: all, as without a recorder of values, or the largest. Norms and ranks are of all.

    Attributes:
        top: number of the largest values to record of each spectrum; None records all.

    Raises:
        InputError: `top` is below 1.
    """

    top: int | None = None

    def __post_init__(self) -> None:
        if self.top is not None:
            _require_positive("top", self.top, ", or None for all singular values")


@validate_arguments
@dataclass(frozen=True)
class RandomizedValues:
    """The largest singular values, of large single matrices by a randomised method with a bound on the error of each.

    It takes a fraction of the time. Norms and stable ranks stay those of the whole update; effective ranks are NaN.

    Attributes:
        top: number of values to record of each spectrum.

    Raises:
        InputError: `top` is below 1.
    """

    top: int

    def __post_init__(self) -> None:
        _require_positive("top", self.top)


@validate_arguments
@dataclass(frozen=True)
class Vectors:
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
        _require_positive("k", self.k)


@validate_arguments
@dataclass(frozen=True)
class Angles:
    """Principal angles between the leading singular subspaces of a head's products, from record to record.

    Attributes:
        k: dimension of the subspaces.

    Raises:
        InputError: `k` is below 1.
    """

    k: int

    def __post_init__(self) -> None:
        _require_positive("k", self.k)


@dataclass(frozen=True)
class Orders:
    """Norms and stable ranks of the first and second order of each update of a product in those of its factors.

    See `saddlescope.measure.product_update_orders`.
    """


@dataclass(frozen=True)
class Increments:
    """The same of the updates since the previous record.

    It keeps a second copy of the tracked weights in memory, and in the tracker's state.
    """


Recorder: TypeAlias = Values | RandomizedValues | Vectors | Angles | Orders | Increments


@dataclass(frozen=True)
class Recorders:
    """Recorders of one tracker, by kind.

    Attributes:
        top: number of singular values to record; None records all.
        randomized: find them by a randomised method where it pays.
        vectors: recorder of vectors, or None.
        subspace: dimension of the subspaces with angles; 0 for none.
        orders: record the orders of products.
        increments: record increments.
    """

    top: int | None = None
    randomized: bool = False
    vectors: Vectors | None = None
    subspace: int = 0
    orders: bool = False
    increments: bool = False

    @classmethod
    def of(cls, given: Sequence[Recorder]) -> "Recorders":
        """Sort recorders by their kinds.

        Raises:
            InputError: something else, or two of one kind.
        """
        if not isinstance(given, Sequence) or not all(isinstance(one, Recorder) for one in given):
            raise InputError(
                f"recorders must be several in a list, such as [Vectors(4), Increments()]; got {given!r}. They are in "
                "saddlescope.ranks."
            )
        if len({type(one) for one in given}) < len(given) or {Values, RandomizedValues} <= {type(one) for one in given}:
            raise InputError(f"recorders must be of different kinds; got {list(given)!r}.")
        randomized, angles = _of_kind(given, RandomizedValues), _of_kind(given, Angles)
        return cls(
            top=(randomized or _of_kind(given, Values) or Values()).top,
            randomized=randomized is not None,
            vectors=_of_kind(given, Vectors),
            subspace=0 if angles is None else angles.k,
            orders=_of_kind(given, Orders) is not None,
            increments=_of_kind(given, Increments) is not None,
        )

    def require_measured(self, *, attention: bool, matrices: MatrixSelection | None) -> None:
        """Raise InputError for a selection that leaves nothing to measure.

        Raises:
            InputError: neither attention nor matrices are measured; or no matrices for randomised values.
        """
        if not attention and matrices is None:
            raise InputError("attention must be True if no matrices are selected; got False, which measures nothing.")
        if self.randomized and matrices is None:
            raise InputError(
                f"RandomizedValues({self.top}) must come with matrices, which it measures; got none. Pass such as "
                "matrices='*.mlp.*'."
            )


def _of_kind(given: Sequence[Recorder], kind: type[_T]) -> _T | None:
    return next((one for one in given if isinstance(one, kind)), None)


def _require_positive(name: str, number: int, otherwise: str = "") -> None:
    if number < 1:
        raise InputError(f"{name} must be at least 1{otherwise}; got {number!r}.")

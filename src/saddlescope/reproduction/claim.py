"""Claims and the verdicts on them.

A claim is a statement that is true or false, a measured quantity, and bounds fixed, with their source, before the run.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partialmethod
from typing import SupportsFloat, TypedDict, TypeVar, Unpack

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope._shared.reprs import ReprMixin, brief


class Kind(StrEnum):
    """Kind of a claim: what its verdict is about."""

    PRINTED = "printed"
    """The paper's own sentence with the paper's own bound, in the setting that it assumes."""
    READING = "reading"
    """The paper's words with a number that this project put to them; it refutes nothing."""
    STAND_IN = "stand-in"
    """The paper's statement, judged on smaller data or networks; it refutes nothing."""
    EXTENSION = "extension"
    """A question beyond the paper that a reader of it would ask."""


class Evidence(StrEnum):
    """What a verdict rests on."""

    IDENTITY = "identity"
    """An equation or an inequality, or an output of a deterministic computation, to a numerical tolerance."""
    CASES = "cases"
    """A count over all cases of the run, or their extreme: one case outside the bounds decides."""
    SAMPLE = "sample"
    """A random sample, with an interval for the distribution it is drawn from; none without an uncertainty."""


class Outcome(StrEnum):
    """Outcome of comparing an estimate with the bounds of a claim; each kind of claim has its own two words."""

    HOLDS = "holds"
    FAILS = "fails"
    """Outside the bounds: the paper's own sentence is false as printed. Of printed claims alone."""
    AGREES = "agrees"
    DIFFERS = "differs"
    """Outside the bounds of a reading: the number is this project's, so nothing about the paper is refuted."""
    SEEN = "seen"
    NOT_SEEN = "not seen"
    """Outside the bounds of a stand-in or an extension: nothing about the paper is refuted."""
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"
    """The run does not meet what the claim requires, so there is no verdict."""

    def counted(self, n: int) -> str:
        """Return a number of claims with this outcome in words, such as "2 hold"."""
        return f"{n} {self if n == 1 else self.removesuffix('s')}"

    @property
    def inside(self) -> bool | None:
        """Whether the value is inside its bounds; None if the claim is undecided or not tested."""
        if self in (Outcome.UNDECIDED, Outcome.NOT_TESTED):
            return None
        return self in (Outcome.HOLDS, Outcome.AGREES, Outcome.SEEN)


_WORDS = {
    Kind.PRINTED: (Outcome.HOLDS, Outcome.FAILS),
    Kind.READING: (Outcome.AGREES, Outcome.DIFFERS),
    Kind.STAND_IN: (Outcome.SEEN, Outcome.NOT_SEEN),
    Kind.EXTENSION: (Outcome.SEEN, Outcome.NOT_SEEN),
}


@dataclass(frozen=True)
class Estimate:
    """Value of a statistic with its uncertainty, both in the claim's unit.

    What the value rests on follows from how it is made: `largest`, `smallest` and `number` look at all cases, `mean`,
    `median` and `share` at a sample, and an estimate made directly is an identity.

    Attributes:
        value: the measured value; NaN when the run did not resolve it.
        uncertainty: half-width of the interval that contains the value (Student's 95 % interval over seeds, or an
            estimate of the numerical error); at least 0. Counts and exact comparisons have uncertainty 0.
        remark: one sentence for the reader, such as why the value is NaN.
        n: number of independent cases, such as seeds, that the value rests on.
        tested: False if what the statistic needs failed, so that there is nothing to judge; the remark says why.
        evidence: what the value rests on.
        over: what the independent cases are, in the plural, such as "seeds" or "draws of data".
    """

    value: float
    uncertainty: float = 0.0
    remark: str = ""
    n: int = 1
    tested: bool = True
    evidence: Evidence = Evidence.IDENTITY
    over: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.uncertainty):
            object.__setattr__(self, "uncertainty", math.inf)
        if self.uncertainty < 0:
            raise ValueError(f"uncertainty must be at least 0; got {self.uncertainty!r}.")
        for name, kind in (("value", float), ("uncertainty", float), ("n", int)):  # NumPy's numbers cannot be stored
            object.__setattr__(self, name, kind(getattr(self, name)))

    @classmethod
    def unresolved(cls, why: str) -> "Estimate":
        """Return an estimate that leaves the claim undecided: the run failed, or did not resolve the statistic."""
        return cls(math.nan, math.inf, why)

    @classmethod
    def not_tested(cls, why: str) -> "Estimate":
        """Return an estimate of nothing: what the claim needs failed, such as a network that did not train."""
        return cls(math.nan, math.inf, why, tested=False)

    @classmethod
    def largest(
        cls, values: ArrayLike, remark: str = "", *, over: str = "cases", uncertainty: float = 0.0
    ) -> "Estimate":
        """Return the largest of all cases; NaN if one is NaN."""
        return cls._of_cases(np.max, values, uncertainty, remark, over)

    @classmethod
    def smallest(
        cls, values: ArrayLike, remark: str = "", *, over: str = "cases", uncertainty: float = 0.0
    ) -> "Estimate":
        """Return the smallest of all cases; NaN if one is NaN."""
        return cls._of_cases(np.min, values, uncertainty, remark, over)

    @classmethod
    def number(cls, which: ArrayLike, remark: str = "", *, over: str = "cases") -> "Estimate":
        """Return the number of cases for which `which` holds, of all cases."""
        found = np.asarray(which, bool)
        return cls._of_cases(np.sum, found, 0.0, remark or f"of {found.size}", over)

    @classmethod
    def _of_cases(
        cls, summary: Callable[[np.ndarray], float], values: ArrayLike, uncertainty: float, remark: str, over: str
    ) -> "Estimate":
        found = np.asarray(values, float)
        if not found.size:
            return cls.unresolved("There are no cases.")
        return cls(float(summary(found)), uncertainty, remark, found.size, evidence=Evidence.CASES, over=over)

    @classmethod
    def median(cls, values: ArrayLike, remark: str = "", *, over: str = "draws") -> "Estimate":
        """Return the median of independent values with a 95 % interval from their order, for any distribution.

        Below six values no interval of the order has that confidence, and the claim is left undecided.
        """
        from scipy.stats import binom

        found = np.sort(np.asarray(values, float).ravel())
        if found.size < 6:
            return cls.unresolved(f"The median of {found.size} values has no 95 % interval; give six or more.")
        k = int(binom.ppf(0.025, found.size, 0.5))  # P(fewer than k values below the median) < 2.5 %
        middle = float(np.median(found))
        half = max(middle - float(found[k - 1]), float(found[-k]) - middle)
        return cls(middle, half, remark, found.size, evidence=Evidence.SAMPLE, over=over)

    @classmethod
    def mean(cls, values: ArrayLike, remark: str = "", *, over: str = "draws") -> "Estimate":
        """Return the mean of independent values with Student's 95 % interval; one value leaves the claim undecided."""
        from scipy.stats import t

        found = np.asarray(values, float)
        if found.size < 2:
            return cls.unresolved("One value has no spread; give two or more, such as seeds.")
        half = float(t.ppf(0.975, found.size - 1)) * float(found.std(ddof=1)) / found.size**0.5
        return cls(float(found.mean()), half, remark, found.size, evidence=Evidence.SAMPLE, over=over)

    @classmethod
    def share(cls, count: SupportsFloat, of: SupportsFloat, remark: str = "", *, over: str = "draws") -> "Estimate":
        """Return the share of a count in independent trials, with Wilson's 95 % interval made symmetric about it.

        For a population of which the trials are a sample. A share of the trials themselves is exact; use `Estimate`.
        """
        hits, n = float(count), float(of)
        if n < 1:
            return cls.unresolved("There were no trials to count.")
        share, (low, high) = hits / n, wilson_interval(hits, n)
        half = max(share - low, high - share)
        return cls(share, half, remark or f"{hits:.0f} of {n:.0f}", int(n), evidence=Evidence.SAMPLE, over=over)


def wilson_interval(count: SupportsFloat, of: SupportsFloat) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of a count in independent trials, at least one.

    Unlike in `scipy.stats.binomtest`, z is 1.96, and a count may be a share times its trials, or NaN.
    """
    n, z = float(of), 1.96
    share = float(count) / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5 / (1 + z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


Statistic = Callable[[xr.Dataset], Estimate]
"""Function from a stored run to an estimate; the first line of its docstring names the measured quantity."""

Requirement = Callable[[xr.Dataset], bool]
"""Function from a stored run to whether a precondition is met; the first line of its docstring says which one."""

S = TypeVar("S", bound=Statistic)


def first_line(function: Callable[..., object]) -> str:
    """Return the first paragraph of a function's docstring without its full stop; its name where Python strips them."""
    function = getattr(function, "func", function)
    if sys.flags.optimize > 1:
        return function.__name__.strip("_").replace("_", " ")
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


@dataclass(frozen=True, repr=False, kw_only=True)
class Verdict(ReprMixin):
    """A claim, its estimate, and the outcome. Attributes as in `Claim` and `Estimate`; `claim` is its name."""

    claim: str
    statement: str
    quantity: str
    kind: Kind
    source: str
    unit: str
    low: float
    high: float
    value: float
    uncertainty: float
    n: int = 1
    evidence: Evidence = Evidence.IDENTITY
    over: str = ""
    outcome: Outcome
    remark: str = ""

    def __repr__(self) -> str:
        value = f"{self.value:.6g} ± {self.uncertainty:.2g}{f' {self.unit}' if self.unit else ''}"
        return f"Verdict({brief(self.claim)} {self.outcome}: {value}, bounds {self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Claim(ReprMixin):
    """A statement that is true or false, with the quantity that decides it.

    Attributes:
        name: short and stable, unique in its entry; used in tables and on the command line.
        statement: a full sentence without a full stop.
        kind: printed, reading, stand-in or extension.
        source: place of the statement in the paper, and origin of the bounds.
        statistic: function from the stored run to its estimate. A sample without an uncertainty, or one case alone,
            decides nothing.
        low, high: the bounds, written before the run; the claim holds when the value is between them.
        unit: unit of value, uncertainty and bounds; empty for pure numbers.
        requires: preconditions, such as that the networks have learned; where one is not met the claim is not tested.
    """

    name: str
    statement: str
    kind: Kind
    source: str
    statistic: Statistic
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    requires: tuple[Requirement, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.high or (math.isinf(self.low) and math.isinf(self.high)):
            raise ValueError(f"Claim {self.name!r} must have low <= high, one of them finite.")
        for function in (self.statistic, *self.requires):
            if not first_line(function):
                raise ValueError(f"Claim {self.name!r} needs a docstring on {function!r}: its first line is shown.")

    @property
    def quantity(self) -> str:
        """What is measured: the first line of the statistic's docstring."""
        return first_line(self.statistic)

    def judge(self, run: xr.Dataset) -> Verdict:
        """Compare the statistic of a stored run with the bounds, where what it requires is met."""
        unmet = [first_line(required) for required in self.requires if not required(run)]
        measured = Estimate.not_tested("Required, but not met: " + "; ".join(unmet)) if unmet else self.statistic(run)
        if not isinstance(measured, Estimate):
            raise TypeError(f"the claim {self.name} must return an Estimate; got {measured!r:.80}")
        return self.verdict(measured)

    def verdict(self, measured: Estimate) -> Verdict:
        """Return the verdict on an estimate."""
        stated = {
            name: getattr(self, name) for name in ("statement", "quantity", "kind", "source", "unit", "low", "high")
        }
        found = {name: getattr(measured, name) for name in ("value", "uncertainty", "remark", "n", "evidence", "over")}
        return Verdict(claim=self.name, outcome=self.outcome(measured), **stated, **found)

    def outcome(self, measured: Estimate) -> Outcome:
        """Return the outcome that an estimate gives this kind of claim."""
        if not measured.tested:
            return Outcome.NOT_TESTED
        if measured.evidence == Evidence.SAMPLE and measured.uncertainty == 0:
            return Outcome.UNDECIDED
        if measured.evidence == Evidence.CASES and measured.n < 2:
            return Outcome.UNDECIDED
        holds = inside(measured, self.low, self.high)
        return Outcome.UNDECIDED if holds is None else _WORDS[self.kind][not holds]


class _Bounds(TypedDict, total=False):
    """Keywords of the decorators, as in `Claim`."""

    low: float
    high: float
    unit: str


class Claims(list[Claim]):
    """The claims of an entry, in the order in which they are added by one decorator for each kind.

    Attributes:
        limits: one paragraph: what would make a sceptic doubt the verdicts, and which other readings there are.

    >>> claims = Claims(limits="One start is followed.")
    >>> @claims.printed("end", "The loss ends at 0", "Theorem 1", high=1e-6)
    ... def final_loss(run: xr.Dataset) -> Estimate:
    ...     \"\"\"Final loss.\"\"\"
    ...     return Estimate(float(run.loss[-1]))
    >>> [(claim.name, claim.quantity) for claim in claims]
    [('end', 'Final loss')]
    """

    def __init__(self, claims: Iterable[Claim] = (), *, limits: str = "", requires: Sequence[Requirement] = ()) -> None:
        """Begin with `claims`; each claim that is added also requires `requires`."""
        super().__init__(claims)
        self.limits = limits
        self._requires = tuple(requires)

    def _add(
        self,
        kind: Kind,
        name: str,
        statement: str,
        source: str,
        *,
        requires: Sequence[Requirement] = (),
        **bounds: Unpack[_Bounds],
    ) -> Callable[[S], S]:
        needs = (*self._requires, *requires)

        def register(statistic: S) -> S:
            claim = Claim(
                name=name, statement=statement, kind=kind, source=source, statistic=statistic, requires=needs, **bounds
            )
            self.append(claim)
            return statistic

        return register

    printed = partialmethod(_add, Kind.PRINTED)
    """Return a decorator that adds a claim with the paper's own sentence and bound; arguments as in `Claim`."""
    reading = partialmethod(_add, Kind.READING)
    """Return a decorator that adds the paper's words with a number of ours; arguments as in `Claim`."""
    stand_in = partialmethod(_add, Kind.STAND_IN)
    """Return a decorator that adds the paper's statement on smaller data or networks; arguments as in `Claim`."""
    extension = partialmethod(_add, Kind.EXTENSION)
    """Return a decorator that adds a question beyond the paper; arguments as in `Claim`."""


def inside(measured: Estimate, low: float, high: float) -> bool | None:
    """Return True if inside the bounds by more than the uncertainty, False if outside by more, else None.

    With uncertainty 0 the bounds themselves count as inside. NaN, or an infinite uncertainty, is undecided.

    >>> inside(Estimate(0.5, 0.1), 0.0, 1.0), inside(Estimate(0.95, 0.1), 0.0, 1.0), inside(Estimate(2.0), 0.0, 1.0)
    (True, None, False)
    """
    value, uncertainty = measured.value, measured.uncertainty
    if math.isnan(value) or not math.isfinite(uncertainty):
        return None
    margin = min(value - low, high - value)
    if margin > uncertainty or (uncertainty == 0 and margin >= 0):
        return True
    return False if -margin > uncertainty else None

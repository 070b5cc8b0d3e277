"""Claims and the verdicts on them.

A claim is a statement that is true or false, a measured quantity, and bounds fixed, with their source, before the run.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, SupportsFloat, TypeVar, overload

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope._shared.reprs import ReprMixin, brief
from saddlescope.reproduction.catalogue import SIZES

Size = Literal["quick", "default", "reduced", "paper"]


class Kind(StrEnum):
    """Kind of a claim: what its verdict is about."""

    PRINTED = "printed"
    """The paper's own statement."""
    READING = "reading"
    """The paper's words with a number that this project put to them."""
    STAND_IN = "stand-in"
    """The paper's statement, judged on smaller data or networks; it refutes nothing about the paper."""
    OWN = "own"
    """A question or a bar of this project."""


class Evidence(StrEnum):
    """What a verdict rests on."""

    IDENTITY = "identity"
    """An equation or an inequality, or an output of a deterministic computation, to a numerical tolerance."""
    CASES = "cases"
    """A count over all cases of the run, or their extreme: one case outside the bounds decides."""
    SAMPLE = "sample"
    """A random sample, with an interval for the distribution it is drawn from; none without an uncertainty."""


class Outcome(StrEnum):
    """Outcome of comparing an estimate with the bounds of a claim."""

    REPRODUCED = "reproduced"
    SEEN = "seen"
    """Inside the bounds, on a stand-in."""
    REFUTED = "refuted"
    NOT_SEEN = "not seen"
    """Outside the bounds, on a stand-in: nothing about the paper is refuted."""
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"
    """The claim cannot be judged at the run's size, or what it needs failed; no verdict."""


@dataclass(frozen=True)
class Estimate:
    """Value of a statistic with its uncertainty, both in the claim's unit.

    Attributes:
        value: the measured value; NaN when the run did not resolve it.
        uncertainty: half-width of the interval that contains the value (Student's 95 % interval over seeds, or an
            estimate of the numerical error); at least 0. Counts and exact comparisons have uncertainty 0.
        remark: one sentence for the reader, such as why the value is NaN.
        n: number of independent cases, such as seeds, that the value rests on.
        tested: False if what the statistic needs failed, so that there is nothing to judge; the remark says why.
    """

    value: float
    uncertainty: float = 0.0
    remark: str = ""
    n: int = 1
    tested: bool = True

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
    def largest(cls, values: ArrayLike, remark: str = "") -> "Estimate":
        """Return the largest of all cases; NaN if one is NaN."""
        found = np.asarray(values, float)
        return cls(float(found.max()), 0.0, remark, found.size) if found.size else cls.unresolved("There are no cases.")

    @classmethod
    def smallest(cls, values: ArrayLike, remark: str = "") -> "Estimate":
        """Return the smallest of all cases; NaN if one is NaN."""
        found = np.asarray(values, float)
        return cls(float(found.min()), 0.0, remark, found.size) if found.size else cls.unresolved("There are no cases.")

    @classmethod
    def number(cls, which: ArrayLike, remark: str = "") -> "Estimate":
        """Return the number of cases for which `which` holds, of all cases."""
        found = np.asarray(which, bool)
        return cls(float(found.sum()), 0.0, remark or f"of {found.size}", found.size)

    @classmethod
    def median(cls, values: ArrayLike, remark: str = "") -> "Estimate":
        """Return the median of independent values with a 95 % interval from their order, for any distribution.

        Below six values no interval of the order has that confidence, and the claim is left undecided.
        """
        from scipy.stats import binom

        found = np.sort(np.asarray(values, float).ravel())
        if found.size < 6:
            return cls.unresolved(f"The median of {found.size} values has no 95 % interval; give six or more.")
        k = int(binom.ppf(0.025, found.size, 0.5))  # P(fewer than k values below the median) < 2.5 %
        middle = float(np.median(found))
        return cls(middle, max(middle - float(found[k - 1]), float(found[-k]) - middle), remark, found.size)

    @classmethod
    def mean(cls, values: ArrayLike, remark: str = "") -> "Estimate":
        """Return the mean of independent values with Student's 95 % interval; one value leaves the claim undecided."""
        from scipy.stats import t

        found = np.asarray(values, float)
        if found.size < 2:
            return cls.unresolved("One value has no spread; give two or more, such as seeds.")
        error = float(found.std(ddof=1)) / found.size**0.5
        return cls(float(found.mean()), float(t.ppf(0.975, found.size - 1)) * error, remark, found.size)

    @classmethod
    def share(cls, count: SupportsFloat, of: SupportsFloat, remark: str = "") -> "Estimate":
        """Return the share of a count in independent trials, with Wilson's 95 % interval made symmetric about it.

        For a population of which the trials are a sample. A share of the trials themselves is exact; use `Estimate`.
        """
        hits, n = float(count), float(of)
        if n < 1:
            return cls.unresolved("There were no trials to count.")
        share, (low, high) = hits / n, wilson_interval(hits, n)
        return cls(share, max(share - low, high - share), remark or f"{hits:.0f} of {n:.0f}", int(n))


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
"""Function from a stored run to an estimate."""

S = TypeVar("S", bound=Statistic)


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
    outcome: Outcome
    remark: str = ""
    n: int = 1

    def __repr__(self) -> str:
        value = f"{self.value:.6g} ± {self.uncertainty:.2g}{f' {self.unit}' if self.unit else ''}"
        return f"Verdict({brief(self.claim)} {self.outcome}: {value}, bounds {self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Claim(ReprMixin):
    """A statement that is true or false, with the quantity that decides it.

    Attributes:
        name: short and stable, unique in its entry; used in tables and on the command line.
        statement: a full sentence without a full stop, at most 20 words.
        quantity: label of the measured quantity, such as "largest relative error".
        kind: printed, reading, stand-in or own.
        source: place of the statement in the paper, and origin of the bounds.
        statistic: function from the stored run to its estimate.
        evidence: identity, cases or sample. A sample without an uncertainty, or one case alone, decides nothing.
        why: one sentence, why the quantity measures the statement.
        doubt: one sentence, what would make a sceptic doubt the verdict.
        over: what the independent cases are, such as "seeds" or "draws of data".
        low, high: the bounds, written before the run; the claim holds when the value is between them.
        unit: unit of value, uncertainty and bounds; empty for pure numbers.
        sizes: sizes of a run at which the claim can be judged; at others it is not tested.
        needs: names of claims of the same entry without which this one means nothing, such as that a classifier is
            right; where one of them does not hold, this claim is not tested.
    """

    name: str
    statement: str
    quantity: str
    kind: Kind
    source: str
    statistic: Statistic
    evidence: Evidence
    why: str
    doubt: str
    over: str = ""
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    sizes: tuple[Size, ...] = SIZES
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.why and self.doubt and (self.over or self.evidence == Evidence.IDENTITY)):
            raise ValueError(f"Claim {self.name!r} must say why and doubt, and over which cases unless an identity.")
        if not self.low <= self.high or (math.isinf(self.low) and math.isinf(self.high)):
            raise ValueError(f"Claim {self.name!r} must have low <= high, one of them finite.")
        if not self.sizes or set(self.sizes) - set(SIZES):
            raise ValueError(f"Claim {self.name!r} must have one or more of the sizes {', '.join(SIZES)}.")

    def judge(self, run: xr.Dataset, size: str = "default") -> Verdict:
        """Compare the statistic of a stored run of one size with the bounds, whatever the claim needs."""
        return self.verdict(self.statistic(run), size)

    def verdict(self, measured: Estimate, size: str = "default", failed: Sequence[str] = ()) -> Verdict:
        """Return the verdict on an estimate; `failed` names those claims that this one needs and that do not hold."""
        found, remark = self.outcome(measured), measured.remark
        if size not in self.sizes or failed:
            found = Outcome.NOT_TESTED
        if failed:
            remark = f"Not tested, since {' and '.join(failed)} does not hold."
        return Verdict(
            claim=self.name,
            statement=self.statement,
            quantity=self.quantity,
            kind=self.kind,
            source=self.source,
            unit=self.unit,
            low=self.low,
            high=self.high,
            value=measured.value,
            uncertainty=measured.uncertainty,
            outcome=found,
            remark=remark,
            n=measured.n,
        )

    def outcome(self, measured: Estimate) -> Outcome:
        """Return the outcome that an estimate gives this kind of claim on this kind of evidence."""
        if not measured.tested:
            return Outcome.NOT_TESTED
        if self.evidence == Evidence.SAMPLE and measured.uncertainty == 0:
            return Outcome.UNDECIDED
        if self.evidence == Evidence.CASES and measured.n < 2:
            return Outcome.UNDECIDED
        found = outcome(measured, self.low, self.high)
        if self.kind != Kind.STAND_IN:
            return found
        return {Outcome.REPRODUCED: Outcome.SEEN, Outcome.REFUTED: Outcome.NOT_SEEN}.get(found, found)


def judge(claims: Sequence[Claim], run: xr.Dataset, size: str = "default") -> tuple[Verdict, ...]:
    """Return the verdicts of all claims on a stored run; one whose needs fail is not tested.

    A claim that others need is looked at for them at every size.
    """
    return verdicts(claims, {claim.name: _measured(claim, run) for claim in claims}, size)


def _measured(claim: Claim, run: xr.Dataset) -> Estimate:
    estimate = claim.statistic(run)
    if not isinstance(estimate, Estimate):
        raise TypeError(f"the claim {claim.name} must return an Estimate; got {estimate!r:.80}")
    return estimate


def verdicts(claims: Sequence[Claim], measured: Mapping[str, Estimate], size: str = "default") -> tuple[Verdict, ...]:
    """Return the verdicts of all claims from their estimates, by name."""
    holds = {claim.name: claim.outcome(measured[claim.name]) in (Outcome.REPRODUCED, Outcome.SEEN) for claim in claims}
    return tuple(
        claim.verdict(measured[claim.name], size, [name for name in claim.needs if not holds[name]]) for claim in claims
    )


class Claims(Sequence[Claim]):
    """The claims of an entry, in the order in which they are added.

    >>> claims = Claims()
    >>> @claims.add(
    ...     "end", "The loss ends at 0", quantity="final loss", kind="printed", source="Theorem 1", high=1e-6,
    ...     evidence="identity", why="The theorem is about the end", doubt="One run is followed",
    ... )
    ... def final_loss(run: xr.Dataset) -> Estimate:
    ...     return Estimate(float(run.loss[-1]))
    >>> [claim.name for claim in claims]
    ['end']
    """

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims = list(claims)

    def add(
        self,
        name: str,
        statement: str,
        *,
        quantity: str,
        kind: Literal["printed", "reading", "stand-in", "own"],
        source: str,
        evidence: Literal["identity", "cases", "sample"],
        why: str,
        doubt: str,
        over: str = "",
        low: float = -math.inf,
        high: float = math.inf,
        unit: str = "",
        sizes: tuple[Size, ...] = SIZES,
        needs: tuple[str, ...] = (),
    ) -> Callable[[S], S]:
        """Return a decorator that adds a claim about the decorated statistic; arguments as in `Claim`."""

        def register(statistic: S) -> S:
            claim = Claim(
                name=name,
                statement=statement,
                quantity=quantity,
                kind=Kind(kind),
                source=source,
                statistic=statistic,
                low=low,
                high=high,
                unit=unit,
                sizes=sizes,
                evidence=Evidence(evidence),
                over=over,
                why=why,
                doubt=doubt,
                needs=needs,
            )
            self._claims.append(claim)
            return statistic

        return register

    def extend(self, claims: Iterable[Claim]) -> None:
        """Add claims that other code has made, such as those that several entries share."""
        self._claims.extend(claims)

    @overload
    def __getitem__(self, index: int) -> Claim: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Claim, ...]: ...
    def __getitem__(self, index: int | slice) -> Claim | tuple[Claim, ...]:
        return self._claims[index] if isinstance(index, int) else tuple(self._claims[index])

    def __len__(self) -> int:
        return len(self._claims)


def outcome(measured: Estimate, low: float, high: float) -> Outcome:
    """Return reproduced if inside the bounds by more than the uncertainty, refuted if outside by more, else undecided.

    With uncertainty 0 the bounds themselves count as inside. NaN, or an infinite uncertainty, is undecided.

    >>> outcome(Estimate(0.5, 0.1), 0.0, 1.0), outcome(Estimate(0.95, 0.1), 0.0, 1.0), outcome(Estimate(2.0), 0.0, 1.0)
    (<Outcome.REPRODUCED: 'reproduced'>, <Outcome.UNDECIDED: 'undecided'>, <Outcome.REFUTED: 'refuted'>)
    """
    value, uncertainty = measured.value, measured.uncertainty
    if math.isnan(value) or not math.isfinite(uncertainty):
        return Outcome.UNDECIDED
    inside = min(value - low, high - value)
    if inside > uncertainty or (uncertainty == 0 and inside >= 0):
        return Outcome.REPRODUCED
    return Outcome.REFUTED if -inside > uncertainty else Outcome.UNDECIDED

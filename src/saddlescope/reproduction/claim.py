"""Claims of the papers and the verdicts on them.

A claim is a statistic of a stored run with bounds that were written down, with their source, before the run was made.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import SupportsFloat

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from saddlescope._shared.reprs import ReprMixin, brief


class Outcome(StrEnum):
    """What a measurement says about a claim."""

    REPRODUCED = "reproduced"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A statistic's value with its own uncertainty, both in the claim's unit.

    Attributes:
        value: the measured value; NaN when the run did not resolve it.
        uncertainty: half-width of the interval in which the value lies (Student's 95 % interval over seeds, or an
            estimate of the numerical error); at least 0. Counts and exact comparisons have uncertainty 0.
        remark: one sentence for the reader, such as why the value is NaN.
    """

    value: float
    uncertainty: float = 0.0
    remark: str = ""

    def __post_init__(self) -> None:
        if self.uncertainty < 0:
            raise ValueError(f"uncertainty must be at least 0; got {self.uncertainty!r}.")

    @classmethod
    def unresolved(cls, why: str) -> "Estimate":
        """The run failed, or did not resolve the statistic: the claim stays undecided."""
        return cls(math.nan, math.inf, why)

    @classmethod
    def mean(cls, values: ArrayLike, remark: str = "") -> "Estimate":
        """The mean of independent values, with Student's 95 % interval; one value has none, so nothing is decided."""
        from scipy.stats import t

        found = np.asarray(values, float)
        if found.size < 2:
            return cls.unresolved("One value has no spread to hold it against; give two or more, such as seeds.")
        error = float(found.std(ddof=1)) / found.size**0.5
        return cls(float(found.mean()), float(t.ppf(0.975, found.size - 1)) * error, remark)

    @classmethod
    def share(cls, count: SupportsFloat, of: SupportsFloat, remark: str = "") -> "Estimate":
        """What part a count is of independent trials, with Wilson's 95 % interval, made symmetric about the share.

        For a population that the trials are a sample of. Where all or none of these trials are meant, the share is a
        count, and exact.
        """
        hits, n = float(count), float(of)
        if n < 1:
            return cls.unresolved("There were no trials to count.")
        share, (low, high) = hits / n, wilson_interval(hits, n)
        return cls(share, max(share - low, high - share), remark or f"{hits:.0f} of {n:.0f}")


def wilson_interval(count: SupportsFloat, of: SupportsFloat) -> tuple[float, float]:
    """Wilson's 95 % interval of the share that a count is of independent trials, at least one."""
    n, z = float(of), 1.96
    share = float(count) / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5 / (1 + z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, repr=False)
class Verdict(ReprMixin):
    """A claim, what was measured, and the outcome."""

    claim: str
    says: str
    source: str
    unit: str
    low: float
    high: float
    value: float
    uncertainty: float
    outcome: Outcome
    remark: str = ""

    def __repr__(self) -> str:
        value = f"{self.value:.6g} ± {self.uncertainty:.2g}{f' {self.unit}' if self.unit else ''}"
        return f"Verdict({brief(self.claim)} {self.outcome}: {value}, bounds {self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True, repr=False, kw_only=True)
class Claim(ReprMixin):
    """One checkable statement of a paper.

    Attributes:
        name: short and stable, unique in its entry; used in tables and on the command line.
        says: the statement, one sentence.
        source: where the paper makes it and where the bounds come from.
        statistic: from the stored run to what was measured.
        low, high: the bounds, written before the run; the claim holds when the value lies between them.
        unit: unit of value, uncertainty and bounds; empty for pure numbers.
    """

    name: str
    says: str
    source: str
    statistic: "Callable[[xr.Dataset], Estimate]"
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.low <= self.high or (math.isinf(self.low) and math.isinf(self.high)):
            raise ValueError(f"Claim {self.name!r} must have low <= high, one of them finite.")

    def judge(self, run: xr.Dataset) -> Verdict:
        """Holds the stored run against the bounds."""
        measured = self.statistic(run)
        return Verdict(
            claim=self.name,
            says=self.says,
            source=self.source,
            unit=self.unit,
            low=self.low,
            high=self.high,
            value=measured.value,
            uncertainty=measured.uncertainty,
            outcome=outcome(measured, self.low, self.high),
            remark=measured.remark,
        )


def outcome(measured: Estimate, low: float, high: float) -> Outcome:
    """Reproduced when inside the bounds by more than the uncertainty, refuted when outside by more, else undecided.

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

"""Formatting of verdicts and numbers, the same for the terminal, the gallery and JSON."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from saddlescope._shared.reprs import Table
from saddlescope.reproduction.claim import Evidence, Kind, Outcome, Verdict

SYMBOLS = {
    Outcome.HOLDS: "✓",
    Outcome.FAILS: "✗",
    Outcome.AGREES: "✓",
    Outcome.DIFFERS: "○",
    Outcome.SEEN: "✓",
    Outcome.NOT_SEEN: "○",
    Outcome.UNDECIDED: "?",
    Outcome.NOT_TESTED: "–",
}
"""Sign beside each outcome, so that colour is never the only mark."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST_DIGITS = 6


def number(value: float, digits: int = 4) -> str:
    """Return a number with at most `digits` significant digits.

    >>> number(0.0000123), number(12.0), number(-0.5), number(123456.0), number(float("inf"))
    ('1.23 × 10⁻⁵', '12', '−0.5', '1.235 × 10⁵', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    exponent = _exponent(value, digits)
    if -4 <= exponent < 5:
        decimals = max(0, digits - 1 - exponent)
        return _trimmed(f"{value:.{decimals}f}")
    return f"{_trimmed(f'{value / 10.0**exponent:.{digits - 1}f}')} × {_power(exponent)}"


def measured(value: float, uncertainty: float, unit: str = "") -> str:
    """Return a value with its uncertainty, both to the digits that the uncertainty allows.

    The uncertainty has one significant digit, or two when it begins with 1; one of 0 is not shown.

    >>> measured(0.43218, 0.0123, "s"), measured(3.21e-9, 4e-11), measured(1.0, 0.0)
    ('0.432 ± 0.012 s', '(3.21 ± 0.04) × 10⁻⁹', '1')
    """
    tail = f" {unit}" if unit else ""
    if math.isnan(value):
        return "not resolved"
    if math.isinf(uncertainty):
        return f"{number(value)}{tail}, uncertainty unknown"
    if uncertainty == 0 or math.isinf(value):
        return f"{number(value)}{tail}"
    last = _exponent(uncertainty, 1)  # the decimal place of the last digit shown
    last -= uncertainty / 10.0**last < 2
    exponent = _exponent(max(abs(value), uncertainty), 4)
    if exponent - last >= _MOST_DIGITS:
        return f"{number(value, _MOST_DIGITS)} ± {number(uncertainty, 1)}{tail}"
    if -4 <= exponent < 5 and last <= 0:
        return f"{_minus(f'{value:.{-last}f}')} ± {uncertainty:.{-last}f}{tail}"
    decimals, unit_of_last = max(0, exponent - last), 10.0**exponent
    shown = f"{_minus(f'{value / unit_of_last:.{decimals}f}')} ± {uncertainty / unit_of_last:.{decimals}f}"
    return f"({shown}) × {_power(exponent)}{tail}"


def bounds(low: float, high: float, unit: str = "") -> str:
    """Return the condition on a value for its claim to hold.

    >>> bounds(float("-inf"), 1.0), bounds(0.5, 2.0), bounds(1.0, float("inf")), bounds(1.0, 1.0)
    ('≤ 1', 'in [0.5, 2]', '≥ 1', '= 1')
    """
    tail = f" {unit}" if unit else ""
    if low == high:
        return f"= {number(low)}{tail}"
    if math.isinf(low):
        return f"≤ {number(high)}{tail}"
    if math.isinf(high):
        return f"≥ {number(low)}{tail}"
    return f"in [{number(low)}, {number(high)}]{tail}"


def evidence(verdict: Verdict) -> str:
    """Return what a verdict rests on, such as "sample of 24 draws"."""
    words = {Evidence.IDENTITY: "identity", Evidence.CASES: "all cases", Evidence.SAMPLE: "sample"}
    cases = f"{verdict.n} {verdict.over}" if verdict.n > 1 and verdict.over else ""
    return " of ".join(filter(None, (words[verdict.evidence], cases)))


def record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON values; infinity and NaN are null."""
    values = dataclasses.asdict(verdict)
    return {name: finite(value) if isinstance(value, float) else value for name, value in values.items()}


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """Return the verdict of a record that `record` made, whatever else it has."""
    values = {field.name: record[field.name] for field in dataclasses.fields(Verdict)}
    infinite = {"low": -math.inf, "high": math.inf, "value": math.nan, "uncertainty": math.inf}
    values |= {name: float(value) for name, value in infinite.items() if values[name] is None}
    kinds = {"kind": Kind, "evidence": Evidence, "outcome": Outcome}
    return Verdict(**values | {name: kind(values[name]) for name, kind in kinds.items()})


def finite(value: float) -> float | None:
    """Return the value, or None, which JSON can represent, if it is infinite or NaN."""
    return value if math.isfinite(value) else None


def counts(outcomes: Iterable[str]) -> dict[Outcome, int]:
    """Return the number of each outcome, in the order of `Outcome`; other words do not count."""
    listed = list(outcomes)
    return {outcome: listed.count(outcome) for outcome in Outcome}


def tallies(verdicts: Iterable[Verdict]) -> dict[Kind, dict[Outcome, int]]:
    """Return the number of each outcome, by kind of claim; kinds are never added up."""
    listed = list(verdicts)
    return {
        kind: counts(v.outcome for v in listed if v.kind == kind)
        for kind in Kind
        if any(v.kind == kind for v in listed)
    }


def summary(verdicts: Iterable[Verdict]) -> str:
    """Return the tallies in words, without zeros: "printed: 3 hold, 1 fails; reading: 1 agrees"."""
    parts = []
    for kind, found in tallies(verdicts).items():
        words = ", ".join(outcome.counted(n) for outcome, n in found.items() if n)
        parts.append(f"{kind}: {words}")
    return "; ".join(parts) or "no claims"


def position(outcome: Outcome) -> str:
    """Return where a value is, for runs that are not judged: "inside" or "outside" the bounds, or undecided."""
    return str(outcome) if outcome.inside is None else "inside" if outcome.inside else "outside"


def positions(verdicts: Iterable[Verdict]) -> str:
    """Return the numbers of values inside and outside their bounds: "1 inside the bounds, 2 outside, 2 undecided"."""
    places = [position(verdict.outcome) for verdict in verdicts]
    words = [f"{places.count(place)} {place}" for place in ("inside", "outside", "undecided", "not tested")]
    shown = ", ".join(word for word in words if not word.startswith("0 "))
    return re.sub("(inside|outside)", r"\1 the bounds", shown, count=1)


VERDICT_COLUMNS = ("claim", "statement", "quantity", "value", "bound", "kind", "verdict")
"""Columns of a table of verdicts."""


def verdict_cells(verdict: Verdict) -> dict[str, str]:
    """Return the cells of a verdict as text, by `VERDICT_COLUMNS`, and its `position` and `evidence`."""
    return {
        "claim": verdict.claim,
        "statement": f"{verdict.statement} ({verdict.remark})" if verdict.remark else verdict.statement,
        "quantity": verdict.quantity,
        "value": measured(verdict.value, verdict.uncertainty, verdict.unit),
        "bound": bounds(verdict.low, verdict.high, verdict.unit),
        "kind": str(verdict.kind),
        "verdict": f"{SYMBOLS[verdict.outcome]} {verdict.outcome}",
        "position": position(verdict.outcome),
        "evidence": evidence(verdict),
    }


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    """Return the columns and rows of a table of verdicts."""
    rows = ([verdict_cells(verdict)[column] for column in VERDICT_COLUMNS] for verdict in verdicts)
    return VERDICT_COLUMNS, rows


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """Return 1 if a printed claim fails, else 3 if one is outside its bounds or undecided, else 0.

    Claims that are not tested do not count.
    """
    found = set(outcomes)
    if Outcome.FAILS in found:
        return 1
    return 3 if found & {Outcome.UNDECIDED, Outcome.DIFFERS, Outcome.NOT_SEEN} else 0


def _exponent(value: float, digits: int) -> int:
    """Return the decimal exponent of a number after rounding to `digits` digits; 0 for 0."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2]) if value else 0


def _trimmed(text: str) -> str:
    return _minus(text.rstrip("0").rstrip(".") if "." in text else text)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"

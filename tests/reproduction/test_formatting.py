import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saddlescope.reproduction import Kind, Outcome, Verdict
from saddlescope.reproduction.formatting import (
    bounds,
    counts,
    exit_status,
    finite,
    measured,
    number,
    record,
    summary,
    tallies,
)

R, F, A, D, S, NS, U, N = Outcome
PLAIN = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")
sizes = st.floats(1e-30, 1e30) | st.floats(1e-3, 1e3)


def verdict_of(outcome, kind=Kind.EXTENSION, remark=""):
    """Return a verdict of an outcome."""
    words = {"claim": "c", "statement": "statement", "quantity": "quantity", "source": "source", "unit": "s"}
    numbers = {"low": -math.inf, "high": 1.0, "value": math.nan, "uncertainty": math.inf}
    return Verdict(**words, **numbers, kind=kind, outcome=outcome, remark=remark)


def read(text: str) -> float:
    """Parse a formatted number."""
    digits, _, power = text.translate(PLAIN).partition(" × 10")
    return float(digits) * 10.0 ** int(power or 0)


@given(sizes, st.booleans(), st.integers(1, 8))
def test_a_number_is_reported_to_its_digits(size, negative, digits):
    value = -size if negative else size
    assert read(number(value, digits)) == pytest.approx(value, rel=0.5001 * 10.0 ** (1 - digits))


@given(sizes | st.just(0.0), sizes, st.booleans())
def test_a_value_is_reported_to_a_fraction_of_its_uncertainty(size, uncertainty, negative):
    value = -size if negative else size
    reported = measured(value, uncertainty, "s").removesuffix(" s")
    if wrapped := re.fullmatch(r"\((.*) ± (.*)\)( × 10.*)", reported):
        shown, spread = (read(part + wrapped[3]) for part in wrapped.groups()[:2])
    else:
        shown, spread = map(read, reported.split(" ± "))
    assert abs(shown - value) <= max(0.26 * uncertainty, 1e-5 * size)
    assert spread == pytest.approx(uncertainty, rel=0.34)
    assert len(reported) < 45


@pytest.mark.parametrize(
    ("value", "uncertainty", "reported"),
    [
        (1.0, 0.0, "1"),
        (12.0, 0.0, "12"),
        (0.9666, 0.0341, "0.97 ± 0.03"),
        (-0.9666, 0.0141, "−0.967 ± 0.014"),
        (4e-16, 0.0, "4 × 10⁻¹⁶"),
        (1234.0, 300.0, "(1.2 ± 0.3) × 10³"),
        (0.02, 3.0, "0 ± 3"),
        (0.5, 1e-12, "0.5 ± 1 × 10⁻¹²"),
        (math.nan, 0.0, "not resolved"),
        (math.nan, math.inf, "not resolved"),
        (2.0, math.inf, "2, uncertainty unknown"),
        (math.inf, 0.0, "∞"),
    ],
)
def test_measured(value, uncertainty, reported):
    assert measured(value, uncertainty) == reported


def test_bounds_carry_their_unit():
    assert bounds(-math.inf, 0.05, "s") == "≤ 0.05 s"
    assert bounds(-1.0, 1.0) == "in [−1, 1]"
    assert bounds(1e-12, math.inf, "s") == "≥ 1 × 10⁻¹² s"


def test_a_record_is_json_without_what_json_cannot_report():
    verdict = verdict_of(U, remark="why")
    reported = json.loads(json.dumps(record(verdict), allow_nan=False))
    assert reported == {
        **{"claim": "c", "statement": "statement", "quantity": "quantity", "kind": "extension", "source": "source"},
        **{"unit": "s", "remark": "why", "outcome": "undecided"},
        **{"low": None, "high": 1.0, "value": None, "uncertainty": None, "n": 1, "evidence": "identity", "over": ""},
    }
    assert finite(-math.inf) is None
    assert finite(2.0) == 2.0


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], 0),
        ([R, A, S, N], 0),
        ([R, NS], 3),
        ([R, D], 3),
        ([N, U], 3),
        ([N, F], 1),
        ([U, F, R], 1),
    ],
)
def test_exit_status(outcomes, status):
    assert exit_status(iter(outcomes)) == status


def test_summaries_leave_out_zeros():
    verdicts = [verdict_of(U), verdict_of(S), verdict_of(F, Kind.PRINTED), verdict_of(S), verdict_of(N)]
    assert summary(iter(verdicts)) == "printed: 1 fails; extension: 2 seen, 1 undecided, 1 not tested"
    assert summary([]) == "no claims"
    assert tallies(verdicts)[Kind.PRINTED] == dict.fromkeys(Outcome, 0) | {F: 1}
    assert counts(iter([F])) == dict.fromkeys(Outcome, 0) | {F: 1}

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from saddlescope.reproduction import Claim, Claims, Estimate, Evidence, Kind, Outcome
from saddlescope.reproduction.claim import inside

FIELDS = {"name": "c", "statement": "s", "kind": Kind.PRINTED, "source": "p"}
numbers = st.floats(-1e6, 1e6)


def of(estimate):
    """Return a statistic of one estimate."""

    def statistic(run):
        """What is measured."""
        return estimate

    return statistic


@pytest.mark.parametrize(
    ("value", "uncertainty", "expected"),
    [
        (0.5, 0.0, True),
        (0.5, 0.4, True),
        (0.5, 0.5, None),  # inside by no more than its uncertainty
        (0.5, 0.7, None),
        (1.0, 0.0, True),  # an exact value on the bound
        (1.0, 1e-9, None),
        (1.5, 0.4, False),
        (1.5, 0.5, None),
        (-0.5, 0.4, False),
        (math.nan, 0.0, None),
        (0.5, math.inf, None),
        (9.0, math.inf, None),
        (math.inf, 0.0, False),
    ],
)
def test_inside_zero_and_one(value, uncertainty, expected):
    assert inside(Estimate(value, uncertainty), 0.0, 1.0) is expected


@given(numbers, st.floats(0, 1e3), numbers, numbers)
def test_it_mirrors_when_everything_changes_sign(value, uncertainty, a, b):
    low, high = min(a, b), max(a, b)
    assert inside(Estimate(value, uncertainty), low, high) is inside(Estimate(-value, uncertainty), -high, -low)


@given(numbers, st.floats(0, 1e3), st.floats(0, 1e3), numbers)
def test_more_uncertainty_never_decides(value, uncertainty, more, high):
    before = inside(Estimate(value, uncertainty), -math.inf, high)
    after = inside(Estimate(value, uncertainty + more), -math.inf, high)
    assert after in (before, None)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (-math.inf, math.inf), (math.nan, 1.0)])
def test_a_claim_that_nothing_could_refute_is_refused(low, high):
    with pytest.raises(ValueError, match="low <= high"):
        Claim(**FIELDS, statistic=of(Estimate(0.0)), low=low, high=high)


def test_claims_are_declared_beside_their_statistics():
    claims = Claims(limits="One run.")

    @claims.reading("end", "The loss ends at 0", "none", high=0.0, unit="nats")
    def final_loss(run):
        """Final loss, after all
        steps.

        More about it.
        """
        return Estimate(float(run))

    claims.extend([Claim(**FIELDS, statistic=final_loss, low=1.0)])
    assert [claim.name for claim in claims] == ["end", "c"]
    assert final_loss(3.0).value == 3.0
    first = claims[0]
    described = (first.statement, first.quantity, first.kind, first.unit)
    assert described == ("The loss ends at 0", "Final loss, after all steps", "reading", "nats")
    assert first.statistic is final_loss
    assert claims[1:] == [claims[1]]


def test_a_statistic_says_what_it_measures():
    with pytest.raises(ValueError, match="needs a docstring"):
        Claims().printed("end", "The loss ends at 0", "Theorem 1", high=0.0)(lambda run: Estimate(0.0))


def test_negative_uncertainty_is_refused():
    with pytest.raises(ValueError, match="uncertainty"):
        Estimate(1.0, -0.1)


def test_a_mean_has_students_interval():
    measured = Estimate.mean([1.0, 2.0, 4.0], "three")
    # t of 2 degrees of freedom is 4.3027; the standard deviation is sqrt(7/3)
    assert measured.value == pytest.approx(7 / 3)
    assert measured.uncertainty == pytest.approx(4.30265 * (7 / 9) ** 0.5, rel=1e-5)
    assert measured.remark == "three"
    assert math.isnan(Estimate.mean([1.0]).value)


def test_a_share_has_wilsons_interval():
    one = Estimate.share(10, 1000)
    assert one.value == 0.01
    assert one.remark == "10 of 1000"
    assert 1.96 * (0.01 * 0.99 / 1000) ** 0.5 < one.uncertainty < 0.0085
    # the lower end for all of n: n / (n + 1.96^2)
    assert 1 - Estimate.share(40, 40, "all").uncertainty == pytest.approx(40 / (40 + 1.96**2))
    assert Estimate.share(0, 40).uncertainty == pytest.approx(Estimate.share(40, 40).uncertainty)
    assert math.isnan(Estimate.share(0, 0).value)


def test_extremes_and_numbers_count_their_cases():
    cases = {"n": 3, "evidence": Evidence.CASES, "over": "seeds"}
    assert Estimate.largest([1.0, 3.0, 2.0], over="seeds") == Estimate(3.0, **cases)
    assert Estimate.smallest([1.0, 3.0, 2.0], "why", over="seeds") == Estimate(1.0, remark="why", **cases)
    assert Estimate.number([True, False, True], over="seeds") == Estimate(2.0, remark="of 3", **cases)
    assert math.isnan(Estimate.largest([1.0, math.nan]).value)
    assert math.isnan(Estimate.smallest([]).value)


def test_a_median_has_an_interval_of_its_order():
    found = Estimate.median([5.0, 1.0, 4.0, 2.0, 3.0, 100.0])
    assert (found.value, found.uncertainty, found.n) == (3.5, 96.5, 6)  # of six values, all of the range
    assert math.isnan(Estimate.median([1.0, 2.0, 3.0, 4.0, 5.0]).value)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = Estimate.median(rng.exponential(size=25))
        covered += abs(found.value - math.log(2)) <= found.uncertainty
    assert covered >= 0.93 * 400


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (Estimate(0.5, 0.0, n=30, evidence=Evidence.SAMPLE), Outcome.UNDECIDED),
        (Estimate.share(30, 60), Outcome.HOLDS),
        (Estimate(2.0, 0.0, n=30, evidence=Evidence.SAMPLE), Outcome.UNDECIDED),
        (Estimate.mean([1.9, 2.0, 2.1]), Outcome.FAILS),
        (Estimate.largest([0.5]), Outcome.UNDECIDED),
        (Estimate.smallest([2.0]), Outcome.UNDECIDED),
        (Estimate.largest([0.5, 0.4]), Outcome.HOLDS),
        (Estimate.number([True, True, False]), Outcome.FAILS),
        (Estimate(0.5), Outcome.HOLDS),
        (Estimate(2.0), Outcome.FAILS),
    ],
)
def test_one_run_without_an_interval_decides_nothing_but_identities(estimate, expected):
    claim = Claim(**FIELDS, statistic=of(estimate), high=1.0)
    assert claim.judge(xr.Dataset()).outcome is expected


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind.PRINTED, (Outcome.HOLDS, Outcome.FAILS)),
        (Kind.READING, (Outcome.AGREES, Outcome.DIFFERS)),
        (Kind.STAND_IN, (Outcome.SEEN, Outcome.NOT_SEEN)),
        (Kind.EXTENSION, (Outcome.SEEN, Outcome.NOT_SEEN)),
    ],
)
def test_each_kind_has_its_own_words(kind, words):
    for value, expected in ((0.5, words[0]), (2.0, words[1]), (math.nan, Outcome.UNDECIDED)):
        one = Claim(**FIELDS | {"kind": kind}, statistic=of(Estimate(value)), high=1.0)
        assert one.judge(xr.Dataset()).outcome is expected
        assert expected.inside is {0.5: True, 2.0: False}.get(value)


def test_a_claim_is_tested_only_where_what_it_requires_is_met():
    def right(run):
        """The classifier is right"""
        return run.sizes["image"] > 2

    claims = Claims(requires=[right])
    claims.reading("order", "s", "p", low=0.9)(of(Estimate(1.0)))
    small, large = (xr.Dataset({"a": ("image", np.zeros(n))}) for n in (2, 3))
    verdict = claims[0].judge(small)
    assert (verdict.outcome, verdict.remark) == (Outcome.NOT_TESTED, "Required, but not met: The classifier is right")
    assert claims[0].judge(large).outcome is Outcome.AGREES


def test_an_estimate_of_nothing_is_no_verdict():
    verdict = Claim(**FIELDS, statistic=of(Estimate.not_tested("It did not train.")), high=1.0).judge(xr.Dataset())
    assert (verdict.outcome, verdict.remark) == (Outcome.NOT_TESTED, "It did not train.")

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from saddlescope.reproduction import Claim, Claims, Estimate, Evidence, Kind, Outcome
from saddlescope.reproduction.claim import judge, outcome

WORDS = {"evidence": "identity", "why": "w", "doubt": "d", "over": "runs"}
FIELDS = (
    {"name": "c", "statement": "s", "quantity": "q", "kind": Kind.PRINTED, "source": "p"}
    | WORDS
    | {"evidence": Evidence.IDENTITY}
)
numbers = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("value", "uncertainty", "expected"),
    [
        (0.5, 0.0, Outcome.REPRODUCED),
        (0.5, 0.4, Outcome.REPRODUCED),
        (0.5, 0.5, Outcome.UNDECIDED),  # inside by no more than its uncertainty
        (0.5, 0.7, Outcome.UNDECIDED),
        (1.0, 0.0, Outcome.REPRODUCED),  # an exact value on the bound
        (1.0, 1e-9, Outcome.UNDECIDED),
        (1.5, 0.4, Outcome.REFUTED),
        (1.5, 0.5, Outcome.UNDECIDED),
        (-0.5, 0.4, Outcome.REFUTED),
        (math.nan, 0.0, Outcome.UNDECIDED),
        (0.5, math.inf, Outcome.UNDECIDED),
        (9.0, math.inf, Outcome.UNDECIDED),
        (math.inf, 0.0, Outcome.REFUTED),
    ],
)
def test_outcomes_between_zero_and_one(value, uncertainty, expected):
    assert outcome(Estimate(value, uncertainty), 0.0, 1.0) is expected


@given(numbers, st.floats(0, 1e3), numbers, numbers)
def test_outcome_mirrors_when_everything_changes_sign(value, uncertainty, a, b):
    low, high = min(a, b), max(a, b)
    assert outcome(Estimate(value, uncertainty), low, high) is outcome(Estimate(-value, uncertainty), -high, -low)


@given(numbers, st.floats(0, 1e3), st.floats(0, 1e3), numbers)
def test_more_uncertainty_never_decides(value, uncertainty, more, high):
    before = outcome(Estimate(value, uncertainty), -math.inf, high)
    after = outcome(Estimate(value, uncertainty + more), -math.inf, high)
    assert after in (before, Outcome.UNDECIDED)


def test_a_failed_run_is_undecided_with_its_reason():
    claim = Claim(**FIELDS, statistic=lambda run: Estimate.unresolved("It stopped."), high=1.0)
    verdict = claim.judge(xr.Dataset())
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.remark == "It stopped."


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (-math.inf, math.inf), (math.nan, 1.0)])
def test_a_claim_that_nothing_could_refute_is_refused(low, high):
    with pytest.raises(ValueError, match="low <= high"):
        Claim(**FIELDS, statistic=lambda run: Estimate(0.0), low=low, high=high)


def test_at_other_sizes_a_claim_is_not_tested():
    claim = Claim(**FIELDS, statistic=lambda run: Estimate(2.0), high=1.0, sizes=("default", "paper"))
    assert claim.judge(xr.Dataset()).outcome is Outcome.REFUTED
    verdict = claim.judge(xr.Dataset(), "quick")
    assert (verdict.outcome, verdict.value) == (Outcome.NOT_TESTED, 2.0)


@pytest.mark.parametrize("sizes", [(), ("quik",)])
def test_a_claim_names_existing_sizes(sizes, types_unchecked):
    with types_unchecked(), pytest.raises(ValueError, match="one or more of the sizes quick, default, reduced, paper"):
        Claim(**FIELDS, statistic=lambda run: Estimate(0.0), high=1.0, sizes=sizes)


def test_claims_are_declared_beside_their_statistics():
    claims = Claims()

    @claims.add(
        "end", "The loss ends at 0", quantity="final loss", kind="own", source="none", high=0.0, unit="nats", **WORDS
    )
    def final_loss(run):
        return Estimate(float(run))

    claims.extend([Claim(**FIELDS, statistic=final_loss, low=1.0)])
    assert [claim.name for claim in claims] == ["end", "c"]
    assert final_loss(3.0).value == 3.0
    first = claims[0]
    assert (first.statement, first.quantity, first.kind, first.unit) == (
        "The loss ends at 0",
        "final loss",
        "own",
        "nats",
    )
    assert first.statistic is final_loss
    assert claims[1:] == (claims[1],)


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
    assert Estimate.largest([1.0, 3.0, 2.0]) == Estimate(3.0, n=3)
    assert Estimate.smallest([1.0, 3.0, 2.0], "why") == Estimate(1.0, remark="why", n=3)
    assert Estimate.number([True, False, True]) == Estimate(2.0, remark="of 3", n=3)
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
    ("evidence", "estimate", "expected"),
    [
        ("sample", Estimate(0.5, 0.0, n=30), Outcome.UNDECIDED),
        ("sample", Estimate(0.5, 0.1, n=30), Outcome.REPRODUCED),
        ("sample", Estimate(2.0, 0.0, n=30), Outcome.UNDECIDED),
        ("cases", Estimate(0.5), Outcome.UNDECIDED),
        ("cases", Estimate(2.0), Outcome.UNDECIDED),
        ("cases", Estimate(0.5, n=2), Outcome.REPRODUCED),
        ("cases", Estimate(2.0, n=2), Outcome.REFUTED),
        ("identity", Estimate(0.5), Outcome.REPRODUCED),
        ("identity", Estimate(2.0), Outcome.REFUTED),
    ],
)
def test_one_run_without_an_interval_decides_nothing_but_identities(evidence, estimate, expected):
    claim = Claim(**FIELDS | {"evidence": Evidence(evidence)}, statistic=lambda run: estimate, high=1.0)
    assert claim.judge(xr.Dataset()).outcome is expected


def test_a_stand_in_is_seen_or_not_seen():
    for value, expected in ((0.5, Outcome.SEEN), (2.0, Outcome.NOT_SEEN), (math.nan, Outcome.UNDECIDED)):
        one = Claim(**FIELDS | {"kind": Kind.STAND_IN}, statistic=lambda run, v=value: Estimate(v), high=1.0)
        assert one.judge(xr.Dataset()).outcome is expected


def _chain(accuracy):
    claims = Claims()
    common = {"quantity": "q", "kind": "own", "source": "p", "low": 0.9} | WORDS
    claims.add("order", "s", **common, needs=("classifier",))(lambda run: Estimate(1.0))
    claims.add("classifier", "s", **common, sizes=("default",))(lambda run: accuracy)
    return claims


@pytest.mark.parametrize("size", ["quick", "default"])
@pytest.mark.parametrize("accuracy", [Estimate(0.5), Estimate(0.9, 0.1), Estimate.not_tested("It did not train.")])
def test_what_a_claim_needs_must_hold(size, accuracy):
    verdict = judge(_chain(accuracy), xr.Dataset(), size)[0]
    assert verdict.outcome is Outcome.NOT_TESTED
    assert verdict.remark == "Not tested, since classifier does not hold."


def test_what_it_needs_may_hold_at_a_size_that_cannot_judge_it():
    order, classifier = judge(_chain(Estimate(0.95)), xr.Dataset(), "quick")
    assert (order.outcome, classifier.outcome) == (Outcome.REPRODUCED, Outcome.NOT_TESTED)


def test_an_estimate_of_nothing_is_no_verdict():
    claim = Claim(**FIELDS, statistic=lambda run: Estimate.not_tested("It did not train."), high=1.0)
    assert (claim.judge(xr.Dataset()).outcome, claim.judge(xr.Dataset()).remark) == (
        Outcome.NOT_TESTED,
        "It did not train.",
    )

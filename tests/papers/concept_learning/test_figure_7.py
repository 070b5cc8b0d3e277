"""Figure 7: claims at the quick size, and spoilt runs that refute them."""

import pytest

from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-7"
ENTRY = find_entry(NAME)
WHOLE = ("tolerance-5-of-largest", "order", "generalising")


def test_the_order_holds_within_a_tolerance_but_not_strictly(run, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in WHOLE} == {"reproduced"}
    assert found["strictly"] == "refuted"
    assert found["last"] == "undecided"  # of two networks


def the_other_direction(run):
    run["loss"] = run.loss.isel(point=slice(None, None, -1))


def one_point_behind(run):
    run.loss.values[0, 20:60, 1] += 2.0  # the weakest cluster's mean


def never_learned(run):
    run.loss.values[1, -1, 7] = 0.9


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (the_other_direction, ("tolerance-5", "tolerance-5-of-largest", "strictly", "last", "order")),
        (one_point_behind, ("tolerance-5", "tolerance-5-of-largest")),
        (never_learned, ("generalising",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_a_run_in_strict_order_holds_strictly(run, outcomes):
    run["loss"] = 0 * run.loss + run["index"].sum("concept") * 0.01
    found = outcomes(ENTRY, run)
    assert found["strictly"] == found["tolerance-5"] == "reproduced"


def test_a_point_that_is_not_learned_leaves_no_order(run, outcomes):
    run.loss.values[0, -1, 15] = 2.0
    found = outcomes(ENTRY, run)
    assert found["generalising"] == "refuted"
    assert found["order"] == found["last"] == "not tested"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "1"}, "mu must be two or more positive numbers, such as mu="),
        ({"dim": "3"}, "dim must be at least 4, one for each of mu; got 3"),
        ({"samples": "50"}, "samples must make an epoch"),
        ({"sigma": "0"}, "sigma must be positive"),
    )

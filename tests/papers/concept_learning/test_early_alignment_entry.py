"""Early alignment: the claims hold at the quick size, and a spoilt run refutes them."""

import numpy as np
import pytest

from saddlescope.reproduction import find_entry

NAME = "concept-learning/early-alignment"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    """Return the quick run with its two networks taken three times."""
    one = quick_run(NAME).run
    return one.isel(run=[0, 1] * 3).copy(deep=True)


def test_all_claims_hold_at_the_quick_size(run, quick_run, outcomes):
    assert outcomes(ENTRY, quick_run(NAME).run)["left-over"] == "undecided"  # of two networks
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def other_direction(run):
    run.fastest.values[:] = [1.0, 0.0]
    run.off_concept.values[-1] = 90.0


def turned(run):
    run.first.values[-1] = run.first.values[-1] @ np.array([[0.8, 0.6], [-0.6, 0.8]])


def aligned_at_once(run):
    run.first.values[0], run.second.values[0] = run.first.values[1], run.second.values[1]


def twice_as_much_left(run):
    run.predicted_first.values[-1] += 0.2 * run.predicted_first.values[-1][..., ::-1]


def late(run):
    run.leaving.values[-1] *= 1.1


def bent(run):
    run.r_squared.values[-1, 0, 1] = 0.9


def bent_outside(run):
    run.outside.values[-1, 0, 2] = 0.5


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (other_direction, ("fastest", "aligned")),
        (turned, ("every-neuron", "predicted", "in-and-out", "aligned")),
        (aligned_at_once, ("too-large",)),
        (twice_as_much_left, ("left-over",)),
        (late, ("time",)),
        (bent, ("linear",)),
        (bent_outside, ("linear-outside",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "2,1"}, "mu must be exactly 2 positive numbers, increasing"),
        ({"mu": "1,2,3"}, "mu must be exactly 2 positive numbers"),
        ({"scales": "0.5,0.1"}, "scales must be two or more numbers, each above 0 and below 0.3, decreasing"),
        ({"neurons": "1"}, "neurons must be at least 2"),
        ({"rate": "0"}, "rate must be positive"),
    )

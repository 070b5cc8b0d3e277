"""Figure 5's claims hold, and a spoilt curve refutes them."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/figure-5"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def other_speed(run):
    run.speed.values[17] += 1e-9


def higher_maximum(run):
    run["best"] += 1e-6
    run["best_upper"] += 1e-6


def maximum_elsewhere(run):
    run.speed.values[3] = 1.0


def faster_at_random(run):
    run.random_speed.values[0] = 0.5


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_speed, "equation-6"),
        (higher_maximum, "maximum"),
        (maximum_elsewhere, "where"),
        (faster_at_random, "all-of-rank-one"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_angles_that_miss_the_maxima_leave_their_place_undecided(run, outcomes):
    assert outcomes(ENTRY, run.isel(angle=slice(3, 30)))["where"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (({"angles": "3"}, "angles must be at least 17"), ({"depth": "1"}, "depth must be at l")):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)

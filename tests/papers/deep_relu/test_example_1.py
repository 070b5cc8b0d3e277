"""Example 1's claims: the paper's two slips are refuted, the others hold, and spoilt runs are refuted."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/example-1"
ENTRY = find_entry(NAME)
SLIPS = {"printed-weights", "printed-second-layer"}


def test_all_but_the_papers_slips_hold_at_the_quick_size(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert {claim for claim, outcome in verdicts.items() if outcome == "refuted"} == SLIPS
    assert set(verdicts.values()) == {"reproduced", "refuted"}


def faster_by_a_little(run):
    run.lower.loc[{"samples": 8}] = 0.5 + 1e-6
    run.upper.loc[{"samples": 8}] = 0.5 + 1e-6


def bounds_apart(run):
    run.upper.loc[{"samples": 12}] += 1e-6


def a_faster_neuron(run):
    run.rank_one.loc[{"samples": 8}] += 1e-6
    run.rank_one_upper.loc[{"samples": 8}] += 1e-6


def rank_one_first_layer(run):
    run.ranks.loc[{"samples": 8}] = 1


def rank_two_second_layer(run):
    run.ranks.loc[{"samples": 8, "layer": 2}] = 2


def a_neuron_on_the_hexagon(run):
    run.rank_one_upper.loc[{"samples": 6}] = 1e-6


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (faster_by_a_little, "optimum"),
        (bounds_apart, "bounds-meet"),
        (bounds_apart, "closed-form"),
        (a_faster_neuron, "rank-one"),
        (rank_one_first_layer, "first-layer"),
        (rank_two_second_layer, "second-layer"),
        (a_neuron_on_the_hexagon, "rank-one-circles"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_bounds_too_far_apart_leave_the_optimum_undecided(run, outcomes):
    run.upper.loc[{"samples": 8}] = 0.6
    assert outcomes(ENTRY, run)["optimum"] == "undecided"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"samples": "4,6"}, "samples must contain 8"),
        ({"samples": "8,7"}, "samples must be one or more integers, each a multiple of 2 and at least 4, increasing"),
        ({"samples": "8,4"}, "increasing"),
        ({"samples": "2,8"}, "at least 4"),
        ({"curve": "2"}, "curve must be at least 9"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)

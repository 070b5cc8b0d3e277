"""Deeper networks at the quick size, and a stage that never came."""

from saddlescope.reproduction import find_entry

NAME = "concept-learning/deep-stages"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, inside, outcomes):
    assert {"largest", "order"} <= inside(ENTRY, run)
    assert outcomes(ENTRY, run)["forgotten"] == "seen"
    run.noisy_w.values[..., 0] = 1.0
    assert outcomes(ENTRY, run)["forgotten"] == "not seen"


def test_a_stage_that_never_came_leaves_the_error_undecided(run):
    run.found.values[0, -1, 0, 0] = float("nan")
    (claim,) = (claim for claim in ENTRY.claims if claim.name == "largest")
    assert claim.judge(run).outcome == "undecided"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(({"depths": "2"}, "depths must end with 3 or more"), ({"noises": "3,2"}, "noises must end below 1"))

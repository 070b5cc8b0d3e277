"""The flip of the order: half-times between two marks, and starts that do not flip."""

from saddlescope.reproduction import find_entry

NAME = "concept-learning/order-flip"
ENTRY = find_entry(NAME)


def test_claims_that_few_runs_resolve(run, inside):
    assert {"two-layers", "theorem"} <= inside(ENTRY, run)


def test_starts_that_do_not_flip_leave_it_undecided(run):
    run.half.values[:, :5, :, 1] = 100.0
    (claim,) = (claim for claim in ENTRY.claims if claim.name == "two-layers")
    assert claim.judge(run).outcome == "undecided"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "1.9,2"}, "mu must be two numbers, the first below"),
        ({"mu": "1,2,3"}, "mu must be two numbers, the first below"),
    )

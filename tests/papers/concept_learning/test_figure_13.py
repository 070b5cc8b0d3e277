"""Figures 13 and 14: claims at the quick size, and spoilt runs that refute them."""

import pytest

from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-13"
ENTRY = find_entry(NAME)
DEEP = "three layers, d = 3"
ONE = "one layer, d = 3"


def test_claims_that_the_quick_size_resolves_hold(run, inside, outcomes):
    found = outcomes(ENTRY, run)
    few = {"fewer-dimensions", "typical", "memorizing"}  # no networks at d = 64, no half, and few transient networks
    assert found.keys() - inside(ENTRY, run) <= few
    assert found["sooner"] == "reproduced"
    assert found["fewer-dimensions"] == "undecided"


def one_descent(run):
    run.descents.loc[{"kind": DEEP}] = 1


def one_layer_more(run):
    run.descents.loc[{"kind": ONE}] = 2


def at_the_test_point(run):
    run.descents.loc[{"kind": DEEP}] = 2
    run.peak_output.values[:] = run.mu.transpose("task", "concept").values[None, :, None, :]


def never_learned(run):
    run.learned.loc[{"kind": DEEP, "task": "small"}] = float("nan")


def later(run):
    run.learned.loc[{"kind": DEEP, "task": "large"}] = run.learned.sel(kind=DEEP, task="small").values + 1


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (one_descent, ("small-signals", "large-signals", "typical")),
        (one_layer_more, ("more-layers",)),
        (at_the_test_point, ("memorizing",)),
        (never_learned, ("generalising",)),
        (later, ("sooner",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert "reproduced" not in {found[claim] for claim in claims}
    assert "refuted" in {found[claim] for claim in claims}


def test_without_transient_networks_the_claim_on_them_is_not_tested(run, outcomes):
    one_descent(run)
    assert outcomes(ENTRY, run)["memorizing"] == "not tested"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "2,1"}, "mu must be two or more positive numbers, increasing"),
        ({"mu": "1,2,3"}, "mu must be two positive numbers"),
        ({"sigma": "1"}, "sigma must be two or more positive numbers"),
        ({"seeds": "0"}, "seeds must be at least 1"),
    )

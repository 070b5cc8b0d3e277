"""Theorem 3.1's claims: only its content at a practical depth is refuted; spoilt runs are refuted."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/theorem-3-1"
ENTRY = find_entry(NAME)


def test_only_the_content_is_refuted_at_the_quick_size(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert verdicts.pop("printed-content") == "refuted"
    assert set(verdicts.values()) == {"reproduced"}


def other_formula(run):
    run.first_layer.values[:] *= 0.9


def exceeds(run):
    run.activations.values[-1, 3] = 0.9


def exceeds_in_the_weights(run):
    run.weights.values[-1, 3] = 0.9


def spends_too_much(run):
    run.spent.values[0] = run.budget.values[0] + 1e-6


def no_content(run):
    run.budget.values[:] *= 2


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_formula, "first-layer"),
        (exceeds, "holds"),
        (exceeds_in_the_weights, "holds"),
        (exceeds_in_the_weights, "printed-layer"),
        (spends_too_much, "budget"),
        (no_content, "content"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_weights_are_bounded_one_layer_later_than_printed(run, outcomes):
    """The first layer's weights have no bound in the corrected theorem, and one in the printed."""
    run.weights.values[-1, 0] = 0.9
    verdicts = outcomes(ENTRY, run)
    assert verdicts["holds"] == "reproduced"
    assert verdicts["printed-layer"] == "refuted"


def test_bounds_without_content_leave_it_undecided(run, outcomes):
    run.bound.values[:] = 2.0
    assert outcomes(ENTRY, run)["holds"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"circles": "4"}, "circles must contain 8"),
        ({"circles": "8,9"}, "circles must be one or more integers, each a multiple of 2 and at least 4"),
        (
            {"log10_distances": "-2,-1"},
            "log10_distances must be two or more numbers, each between -7 and 0, dec",
        ),
        ({"depth": "2"}, "depth must be at least 3"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)

"""Unequal scores: claims at the quick size, and spoilt runs."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/unequal-scores"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def test_the_larger_spread_is_the_further_from_its_limit_and_both_come_near_like_one_over_ln_t(run):
    for spread in run.spread.values:
        errors = run.error.sel(spread=spread).values[0]
        assert errors[-1] / errors[-3] == pytest.approx(0.1, rel=0.2)  # ln t = 1e4 against 1e3


@pytest.mark.parametrize(
    ("variable", "place", "value", "claim"),
    [
        ("error", {"spread": 0.1, "log_time": 1e3}, 2e-3, "small-perturbations"),
        ("error", {"spread": 0.9, "log_time": 1e4}, 2e-3, "large-perturbations"),
        ("law", {"spread": 0.1, "log_time": 1e4}, 2e-3, "margins-of-unequal-scores"),
        ("negative_at_start", {"spread": 0.9}, 0, "rates-of-either-sign"),
        ("negative_at_end", {"spread": 0.9}, 1, "rates-are-positive-late"),
        ("lost", {"spread": 0.1, "gap": 20.0, "flow": "diagonal weights"}, 1.0, "assumption-3-of-the-second-best"),
        ("lost", {"spread": 0.9, "gap": 1.0, "flow": "W alone"}, 1.0, "w-alone-loses-none"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, place, value, claim):
    run[variable].loc[place] = value
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_flows_that_did_not_end_decide_nothing(run, outcomes):
    run.lost.values[:] = np.nan
    found = outcomes(ENTRY, run)
    assert found["assumption-3-of-the-second-best"] == found["w-alone-loses-none"] == "undecided"


def test_without_the_spreads_and_without_allowed_data_nothing_is_decided(run, outcomes):
    run.allowed.values[:] = False
    assert outcomes(ENTRY, run)["assumption-3-of-the-second-best"] == "undecided"
    other = run.assign_coords(spread=np.array([0.2, 0.3]))
    found = outcomes(ENTRY, other)
    assert found["small-perturbations"] == found["large-perturbations"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"spreads": "0.5"}, "spreads must be two or more"),
        ({"spreads": "0,1"}, "at least 0 and below 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)

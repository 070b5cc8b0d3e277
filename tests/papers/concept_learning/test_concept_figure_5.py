"""Figure 5's claims hold, and a spoilt run refutes them."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index, of_authors
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-5"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    few = {name for name in ("by-sign", "reversal-often") if found.pop(name) == "undecided"}
    assert set(found.values()) == {"reproduced"}, few


def test_the_start_is_positive_and_random_ones_are_of_their_law(run):
    assert run.start.values.min() >= 0
    assert bool(run.positive.sel(law="positive").all())
    assert 0.4 < float(run.positive.sel(law="normal").mean()) < 0.6


def one_descent(run):
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]


def risen_with_a(run):
    run["printed_rise"] = run.printed_rise + 0.02


def rise_by_a_major_entry(run):
    rise = int(np.argmax(np.diff(run.authors_turning_loss.values)))
    run.authors_push[rise, entry_index(of_authors(run), 1, 1), 0] = 10.0


def peak_after_the_rise(run):
    run.authors_top[entry_index(of_authors(run), 0, 1)] = 30.0


def output_without_return(run):
    run["authors_output"] = run.authors_output.copy(data=np.maximum.accumulate(run.authors_output.values, axis=0))


def outputs_without_return(run):
    run.output_fall[:] = 0.0


def other_stage(run):
    run.top[entry_index(run, 0, 0)] += 0.03


def other_peak(run):
    run.height[entry_index(run, 0, 1)] *= -1


def seldom(run):
    run.rise[:] = 0.0


def any_sign(run):
    run.positive[:] = False


def large_rises(run):
    run.rise[:] = 0.02


def other_fall(run):
    run.authors_push[-1, entry_index(of_authors(run), 1, 1), 0] = -1.0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_descent, "two-descents"),
        (risen_with_a, "two-with-A"),
        (outputs_without_return, "reversal-often"),
        (rise_by_a_major_entry, "rise"),
        (peak_after_the_rise, "when"),
        (other_fall, "second-descent"),
        (output_without_return, "reversal"),
        (other_stage, "stage-times"),
        (other_peak, "peak"),
        (seldom, "often"),
        (any_sign, "by-sign"),
        (large_rises, "vanishes"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "1,2,3", "sigma": "0,0,0"}, "mu must be exactly 2 positive numbers"),
        ({"scales": "0.1"}, "scales must be two or more numbers"),
        ({"bound": "0"}, "bound must be positive"),
    )

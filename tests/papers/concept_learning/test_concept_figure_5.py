"""Figure 5's claims hold, and a spoilt run refutes them."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-5"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def test_the_start_is_positive_and_random_ones_are_of_their_law(run):
    assert run.start.values.min() >= 0
    assert bool(run.positive.sel(law="positive").all())
    assert 0.4 < float(run.positive.sel(law="normal").mean()) < 0.6


def one_descent(run):
    run.turning_loss[1:-1] = np.linspace(float(run.turning_loss[0]), 0.0, run.sizes["turn"])[1:-1]


def rise_by_a_major_entry(run):
    rise = int(np.argmax(np.diff(run.turning_loss.values)))
    run.push[rise, entry_index(run, 1, 1), 0] = 10.0


def peak_after_the_rise(run):
    run.top[entry_index(run, 0, 1)] = 30.0


def output_without_return(run):
    run["output"] = run.output.copy(data=np.maximum.accumulate(run.output.values, axis=0))


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
    run.push[-1, entry_index(run, 1, 1), 0] = -1.0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_descent, "two-descents"),
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

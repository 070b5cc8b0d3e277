"""The entry on the assumptions: its times by interpolation, its numbers, and claims that a wrong run refutes."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning.assumptions import half_times
from saddlescope.reproduction import find_entry

NAME = "concept-learning/assumptions"
ENTRY = find_entry(NAME)


def test_when_a_half_is_passed():
    times = np.array([0.0, 1.0, 3.0])
    values = np.array([[0.0, 0.25, 0.75], [0.6, 0.7, 1.0], [0.0, 0.1, 0.2]]).T[None]
    np.testing.assert_array_equal(half_times(times, values), [[2.0, 0.0, np.nan]])


def test_margins_of_the_figures(run):
    strengths = {"Figure 5": (0.5025, 1.1275), "Figure 8": (1 / 3 + 0.0025, 0.7525, 2.2**2 / 3 + 0.0025)}
    for name, a in strengths.items():
        least = min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0]
        np.testing.assert_allclose(run.margin.sel(data=name), least, rtol=1e-12)
    assert np.isnan(run.figure_log10_omega.sel(data=["Figure 5", "Figure 8", "Figure 9"])).all()
    assert run.figure_log10_omega.sel(data="Figure 10") < -60


def test_more_concepts_and_larger_ratios_of_entries_need_smaller_starts(run):
    assert (run.log10_omega.diff("beta") < 0).all()
    assert (run.log10_omega_three < run.log10_omega.isel(beta=0)).all()


def test_outcomes_at_the_quick_size(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert verdicts.pop("in-practice") == "refuted"
    undecided = {name for name, verdict in verdicts.items() if verdict == "undecided"}
    assert undecided == {"order", "order-of-figures", "minor-small"}  # of 64 starts
    assert "refuted" not in verdicts.values()


def test_data_far_apart_are_within_the_assumptions(run, outcomes):
    run.margin[:] = 1.0
    assert outcomes(ENTRY, run)["in-practice"] == "reproduced"


def larger_starts(run):
    run.log10_omega[{"ratio": 3, "beta": 0}] = -8.0


def no_settings(run):
    run["printed_hold"] = 0


def corrected_settings(run):
    run["corrected_hold"] = 1


def free_direction(run):
    run["without_data_hold"] = 1


def out_of_order(run):
    run.ordered[{"data": 2, "scale": -1}] = 40


def out_of_order_at_once(run):
    run.ordered[{"data": 2, "scale": 0}] = 30


def large_minors(run):
    run.small[{"data": 0, "scale": 0}] = 40


def not_learned(run):
    run.learned[{"data": 0, "scale": 0}] = 63


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (larger_starts, "largest-omega"),
        (no_settings, "can-be-met"),
        (corrected_settings, "contradiction"),
        (free_direction, "no-free-direction"),
        (out_of_order, "order"),
        (out_of_order_at_once, "order-of-figures"),
        (large_minors, "minor-small"),
        (not_learned, "learned"),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"betas": "0.5"}, "betas must be one or more numbers, each between 1 and 1e.06"),
        ({"scales": "0.001,0.1"}, "scales must be one or more positive numbers, decreasing"),
        ({"starts": "2"}, "starts must be at least 10"),
    )

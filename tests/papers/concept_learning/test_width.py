"""The entry on widths: samples against an independent count, moments of E.1, and claims that a wrong run refutes."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, descent_counts, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.papers.concept_learning.width import sample_starts
from saddlescope.reproduction import find_entry

NAME = "concept-learning/width"
ENTRY = find_entry(NAME)


def test_directions_without_data_may_be_put_together():
    """The entry replaces their rows V by R of V = Q R; here all five dimensions are followed."""
    starts = draw_starts(np.random.default_rng((1, 2)), "normal", 0.1, (60, 5, 2))
    a, x = (np.pad(of, (0, 3)) for of in strengths_and_test_point(*FIGURES["Figure 5"]))
    flows = symmetric_flows(a, starts, test_point=x, until=40.0, tolerance=1e-7)
    one = sample_starts(5, 2, 0.1, 60, (1, 2))
    assert int(one.several) == np.sum(descent_counts(flows) >= 2) > 8
    assert int(one.visible) <= int(one.several)


def test_moments_of_the_start(run):
    errors = run.major_error * run.starts**0.5  # of w_ii over d' tau^2, the deviation of chi squared: sqrt(2 / d')
    np.testing.assert_allclose(errors.isel(dim=0), np.broadcast_to(np.sqrt(2 / run.width), (2, 2)), rtol=0.2)
    assert np.all(np.abs(run.major_mean - 1) < 4 * run.major_error)
    assert np.all(np.abs(run.minor_mean) < 4 / run.starts**0.5)
    assert np.all(np.abs(run.minor_size.isel(dim=0) - 1) < 0.25)


def test_outcomes_at_the_quick_size(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert verdicts["sgd"] == "undecided"  # one run
    assert ENTRY.judge(run)[-1].value == 1.0


def more(run):
    run["starts"] = run.starts * 10**4
    run["visible"] = run.visible * 10**4
    run["major_error"] = run.major_error / 100


def wide_as_narrow(run):
    run.visible[{"width": -1}] = run.starts[{"width": -1}] // 5


def dimension_matters(run):
    run.visible[{"dim": 0}] = run.starts[{"dim": 0}] // 5
    run.visible[{"dim": 1}] = 0


def rises_at_any_scale(run):
    run.visible[{"scale": 0}] = run.starts[{"scale": 0}] // 10


def dimension_is_nothing(run):
    run.visible[:] = run.starts // 10


def other_moments(run):
    run.major_mean[:] = run.width
    run.minor_mean[:] = 0.5
    run.minor_size[:] = 2.0


def two_descents(run):
    """One run of the quick size is repeated to eight, none of which has three."""
    run.sgd_descents[0] = 2
    losses = run.sgd_loss.isel(run=np.zeros(8, int)).rename(run="eight")
    run["sgd_descents"], run["sgd_loss"] = run.sgd_descents.isel(run=np.zeros(8, int)).rename(run="eight"), losses


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (wide_as_narrow, ["wide"]),
        (dimension_matters, ["dimension"]),
        (dimension_is_nothing, ["low-dimension"]),
        (rises_at_any_scale, ["any-scale"]),
        (other_moments, ["major-entries", "minor-entries", "sqrt-width"]),
        (two_descents, ["sgd"]),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claims):
    more(run)
    spoil(run)
    assert {outcomes(ENTRY, run)[claim] for claim in claims} == {"refuted"}


def test_without_a_start_with_three_descents_sgd_is_not_tested(run, outcomes):
    run["flow_descents"] = 2
    assert outcomes(ENTRY, run)["sgd"] == "not tested"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"widths": "4,2"}, "widths must be two or more positive integers, increasing"),
        ({"scales": "0.1"}, "scales must be two or more positive numbers, increasing"),
        ({"high": "2"}, "high must be at least 3"),
        ({"runs": "0"}, "runs must be at least 1"),
    )

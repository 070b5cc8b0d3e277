"""The descent statistics: counts that agree with themselves."""

import numpy as np

from saddlescope.flow import symmetric_flows
from saddlescope.measure import find_descents
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, descent_counts, draw_starts, largest_rises
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.reproduction import find_entry

NAME = "concept-learning/descents"
ENTRY = find_entry(NAME)


def test_counts_agree(run):
    assert (run.counts.sum("descents") == 256).all()
    assert (run.counts == run.counts_at.sel(hysteresis=0.0)).all()
    means = (run.counts_at * run.descents).sum("descents")
    assert (means.diff("hysteresis") <= 0).all()
    several = run.counts.sel(descents=slice(2, None)).sum("descents")
    assert (run.rises.sum("log_rise") <= several).all()
    assert (run.counts.sel(data="Figure 5", descents=slice(3, None)) == 0).all()


def test_the_largest_rise_is_that_between_descents():
    a, x = strengths_and_test_point(*FIGURES["Figure 8"])
    starts = draw_starts(np.random.default_rng(3), "uniform", 0.1, (200, 3, 3))
    flows = symmetric_flows(a, starts, test_point=x, until=40.0, tolerance=1e-7)
    found = find_descents(flows.turning_losses)
    np.testing.assert_array_equal(descent_counts(flows), found.counts)
    np.testing.assert_allclose(largest_rises(flows), found.rises[:, 1:].max(axis=1) / (x @ x / 2), rtol=1e-12)


def test_a_rise_below_the_visible_level_is_no_descent(run):
    """The same starts have other counts above and below 1 % of the first loss, and claims read those above."""
    (claim,) = (claim for claim in ENTRY.claims if claim.name == "positive")
    before = claim.judge(run).value
    run.counts_at.loc[{"hysteresis": slice(0.0, 0.003)}] = 0
    run.counts[:] = 0
    assert claim.judge(run).value == before > 0


def test_without_a_fourth_descent_multiple_ones_are_not_there(run):
    (claim,) = (claim for claim in ENTRY.claims if claim.name == "multiple")
    run.counts_at.loc[{"data": "Figure 9", "hysteresis": 0.01, "descents": slice(4, None)}] = 0
    assert claim.judge(run).outcome == "fails"


def test_large_starts_can_have_more_descents_than_concepts():
    """A counterexample from large weights: this one, confirmed at two tolerances, has four with three concepts."""
    a, x = strengths_and_test_point(*FIGURES["Figure 8"])
    start = np.array([[-2.343, 0.703, 0.416], [0.3, 0.479, 0.452], [4.0, 0.08, 0.427]])
    for tolerance in (1e-9, 1e-12):
        flows = symmetric_flows(a, start[None], test_point=x, until=100.0, tolerance=tolerance)
        assert descent_counts(flows) == 4
        steps = np.diff(flows.turning_losses[0]) / (x @ x / 2)
        assert np.all(np.abs(steps[steps != 0]) > 1e-3)

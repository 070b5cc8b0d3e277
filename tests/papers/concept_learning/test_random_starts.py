"""Sampled starts of two-layer networks: counts that agree with themselves, with other counts, and with closed forms."""

import numpy as np

from saddlescope.flow import symmetric_flows
from saddlescope.measure import find_descents
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES
from saddlescope.papers.concept_learning.shared.two_layer_runs import half_times, strengths_and_test_point


def test_counts_of_descents_agree(quick_run):
    run = quick_run("concept-learning/atlas").run
    assert ((run.counts.sum("descents") == 64) & (run.visible.sum("descents") == 64)).all()
    assert (((run.counts - run.visible) * run.descents).sum("descents") >= 0).all()
    assert (run.counts.sel(concepts=2, descents=slice(3, None)) == 0).all()
    run = quick_run("concept-learning/descents").run
    assert (run.counts_at.sum("descents") == 256).all()
    assert ((run.counts_at * run.descents).sum("descents").diff("hysteresis") <= 0).all()
    exact = run.counts_at.sel(hysteresis=0.0)
    assert (run.rises.sum("log_rise") <= exact.sel(descents=slice(2, None)).sum("descents")).all()
    assert (exact.sel(data="Figure 5", descents=slice(3, None)) == 0).all()


def test_large_starts_can_have_more_descents_than_concepts():
    """A counterexample from large weights: this one, confirmed at two tolerances, has four with three concepts."""
    a, x = strengths_and_test_point(*FIGURES["Figure 8"])
    start = np.array([[-2.343, 0.703, 0.416], [0.3, 0.479, 0.452], [4.0, 0.08, 0.427]])
    for tolerance in (1e-9, 1e-12):
        flows = symmetric_flows(a, start[None], test_point=x, until=100.0, tolerance=tolerance)
        assert find_descents(flows.turning_losses).counts == 4
        steps = np.diff(flows.turning_losses[0]) / (x @ x / 2)
        assert np.all(np.abs(steps[steps != 0]) > 1e-3)


def test_when_a_half_is_passed():
    times = np.array([0.0, 1.0, 3.0])
    values = np.array([[0.0, 0.25, 0.75], [0.6, 0.7, 1.0], [0.0, 0.1, 0.2]]).T[None]
    np.testing.assert_array_equal(half_times(times, values), [[2.0, 0.0, np.nan]])


def test_assumptions_on_the_data_of_the_figures(quick_run):
    """Margins by hand; more concepts and larger ratios of entries need smaller starts."""
    run = quick_run("concept-learning/assumptions").run
    strengths = {"Figure 5": (0.5025, 1.1275), "Figure 8": (1 / 3 + 0.0025, 0.7525, 2.2**2 / 3 + 0.0025)}
    for name, a in strengths.items():
        least = min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0]
        np.testing.assert_allclose(run.margin.sel(data=name), least, rtol=1e-12)
    assert np.isnan(run.figure_log10_omega.sel(data=["Figure 5", "Figure 8", "Figure 9"])).all()
    assert run.figure_log10_omega.sel(data="Figure 10") < -60
    assert (run.log10_omega.diff("beta") < 0).all()
    assert (run.log10_omega_three < run.log10_omega.isel(beta=0)).all()

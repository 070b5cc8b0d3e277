"""Figures 8 and 9: distances of trajectories have their known values, and claims can fail."""

import numpy as np
import pytest

from saddlescope.papers.gradual_rank.figure_8 import distances_to_limit, distances_to_next
from saddlescope.papers.gradual_rank.shared.diagonal_entries import coordinate_name, coordinates, staircase
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-8"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


@pytest.fixture
def four(run):
    """Four scales, of which the third and the fourth are alike: Cauchy's criterion then has two cases."""
    return run.isel(scale=[0, 1, 2, 2]).assign_coords(scale=[-2.0, -16.0, -512.0, -1024.0]).copy(deep=True)


def away_by(run, product, sizes):
    """Move each scale's entries of one product away from the limit by a constant."""
    for k, size in enumerate(sizes):
        here = {"scale": k, "coordinate": list(coordinates(run, product))}
        run.beta[here] = staircase(run)[:, list(coordinates(run, product))] + size
    return run


def test_it_is_the_run_of_figure_2():
    assert ENTRY.run is find_entry("gradual-rank/figure-2").run
    assert ENTRY.configure("quick") == find_entry("gradual-rank/figure-2").configure("quick")


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found["limit-KQ"] == found["limit-VO"] == "reproduced"
    assert found["cauchy-KQ"] == found["cauchy-VO"] == "undecided"  # one ratio is one case


def test_the_staircase_holds_each_level_until_the_next_stage(run):
    levels, time = staircase(run), run.time.values
    for k in (0, 3):
        begins, ends = run.predicted_time.values[[k, k + 1]]
        plateau = (time >= begins) & (time < ends)
        assert plateau.any()
        assert (levels[plateau] == run.predicted_beta.values[k]).all()
    assert (levels[time < run.predicted_time.values[0]] == 0).all()


@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_a_constant_distance_is_measured_as_that_times_the_entries(run, product):
    away_by(run, product, [0.3, 0.1, 0.05])
    half = run.sizes["coordinate"] // 2
    np.testing.assert_allclose(distances_to_limit(run, product), half * np.array([0.3, 0.1, 0.05]), rtol=1e-12)
    np.testing.assert_allclose(distances_to_next(run, product), half * np.array([0.2, 0.05]), rtol=1e-9)


@pytest.mark.parametrize(("product", "other"), [("KQ", "VO"), ("VO", "KQ")])
def test_a_product_that_does_not_converge_is_distinguished(four, outcomes, product, other):
    run = away_by(four, other, [0.4, 0.2, 0.1, 0.05])
    found = outcomes(ENTRY, away_by(run, product, [0.1, 0.2, 0.4, 0.8]))
    assert found[f"limit-{product}"] == found[f"cauchy-{product}"] == "refuted"
    assert found[f"limit-{other}"] == found[f"cauchy-{other}"] == "reproduced"


def test_another_limit_than_the_theory_s_is_cauchy_and_refutes_the_limit(four, outcomes):
    found = outcomes(ENTRY, away_by(four, "VO", [0.1, 0.18, 0.2, 0.205]))
    assert (found["limit-VO"], found["cauchy-VO"]) == ("refuted", "reproduced")


def test_too_few_scales_decide_nothing(run, outcomes):
    assert outcomes(ENTRY, run.isel(scale=[0, 1]))["cauchy-KQ"] == "undecided"
    assert set(outcomes(ENTRY, run.isel(scale=[0])).values()) == {"undecided"}


def test_names_of_coordinates(run):
    half = run.sizes["coordinate"] // 2
    assert [coordinate_name(run, i) for i in (0, half - 1, half)] == ["KQ 0", f"KQ {half - 1}", "VO 0"]

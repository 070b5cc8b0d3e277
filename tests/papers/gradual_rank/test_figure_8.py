"""Figures 8 and 9: distances of trajectories have their known values, and the worse product decides."""

import numpy as np
import pytest

from saddlescope.papers.gradual_rank.figure_2 import distances_to_limit
from saddlescope.papers.gradual_rank.shared.diagonal_entries import coordinate_name, coordinates, staircase
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-8"
ENTRY = find_entry(NAME)


def away_by(run, product, sizes):
    """Move each scale's entries of one product away from the limit by a constant."""
    for k, size in enumerate(sizes):
        here = {"scale": k, "coordinate": list(coordinates(run, product))}
        run.beta[here] = staircase(run, run.time.values)[:, list(coordinates(run, product))] + size
    return run


def test_the_staircase_holds_each_level_until_the_next_stage(run):
    time = run.time.values
    levels = staircase(run, time)
    for k in (0, 3):
        begins, ends = run.predicted_time.values[[k, k + 1]]
        plateau = (time >= begins) & (time < ends)
        assert plateau.any()
        assert (levels[plateau] == run.predicted_beta.values[k]).all()
    assert (levels[time < run.predicted_time.values[0]] == 0).all()


@pytest.mark.parametrize(("product", "other"), [("KQ", "VO"), ("VO", "KQ")])
def test_a_product_that_does_not_converge_decides(run, outcomes, product, other):
    assert outcomes(ENTRY, run)["limit"] == "agrees"
    away_by(away_by(run, other, [0.4, 0.2, 0.1]), product, [0.3, 0.1, 0.4])
    half = run.sizes["coordinate"] // 2
    np.testing.assert_allclose(distances_to_limit(run, product), half * np.array([0.3, 0.1, 0.4]), rtol=1e-12)
    assert outcomes(ENTRY, run)["limit"] == "differs"
    assert outcomes(ENTRY, run.isel(scale=[0]))["limit"] == "undecided"


def test_names_of_coordinates(run):
    half = run.sizes["coordinate"] // 2
    assert [coordinate_name(run, i) for i in (0, half - 1, half)] == ["KQ 0", f"KQ {half - 1}", "VO 0"]

"""Figure 7: the order of the cube at the quick size, and runs whose answer is known."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning import figure_7

NAME = "concept-learning/figure-7"
ENTRY = figure_7.entry


def test_pairs_are_nested_and_leave_the_origin_out(run):
    index = run["index"].values
    pairs = {(u, v) for u in range(1, 16) for v in range(16) if u != v and u & v == u}  # point numbers are bits
    np.testing.assert_array_equal(index, np.arange(16)[:, None] >> np.arange(4) & 1)
    assert {(int(u), int(v)) for u, v in zip(*figure_7._pairs(run), strict=True)} == pairs
    assert len(pairs) == 3**4 - 2**4 - (2**4 - 1)


@pytest.mark.parametrize(
    ("value", "strictly", "order"),
    [(1e-6, "not seen", "agrees"), (0.0, "seen", "agrees"), (2.0, "not seen", "differs")],
)
def test_one_pair_behind_is_seen(run, outcomes, value, strictly, order):
    run["loss"] = 0 * run.loss + 0.01 * run["index"].sum("concept") * np.exp(-run.epoch)
    at_5 = int(np.argmin(abs(run.epoch.values - 5)))
    run.loss[0, 1, :at_5, 3] += value
    run.loss[0, 1, at_5, 3] = run.loss[0, 1, at_5, 7] + value  # concepts 1 and 2, and 3 too
    assert outcomes(ENTRY, run) == {"strictly": strictly, "order": order}


def test_networks_that_have_not_learned_have_no_order(run, outcomes):
    run.loss[0, 1, -1, 7] = 0.9
    assert outcomes(ENTRY, run)["order"] == "not tested"

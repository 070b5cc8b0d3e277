"""Figure 3: descents of the stored losses, and runs whose answer is known."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning import figure_3
from saddlescope.papers.concept_learning.shared.transient_memorization import HYSTERESIS
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-3"
ENTRY = find_entry(NAME)


def test_rises_and_descents_are_those_of_the_stored_losses(run):
    """By a plain search for a fall, a rise and a fall of more than 5 % of the start."""
    one = figure_3.select_networks(run, figure_3.LOW, 4)
    assert (one.descents > 1).any()
    for seed in range(one.sizes["seed"]):
        loss = one.test_loss.isel(seed=seed).values.astype(float) / float(one.test_loss.isel(seed=seed)[0])
        turns = any(
            loss[:low].max() - loss[low] > HYSTERESIS
            and loss[low:].max() - loss[low] > HYSTERESIS
            and loss[low + np.argmax(loss[low:])] - loss[low + np.argmax(loss[low:]) :].min() > HYSTERESIS
            for low in range(1, len(loss) - 1)
        )
        assert turns == (int(one.descents[seed]) > 1)
        rise = max(loss[k] - loss[: k + 1].min() for k in range(len(loss)))
        np.testing.assert_allclose(float(one.rise[seed]), rise, atol=1e-6)


def transient(run, kind, depth, number):
    """Make the first networks of one kind transient, and no others."""
    run.descents.values[:] = 1
    run.descents.values[((run.kind == kind) & (run.depth == depth)).values, :number] = 2


def test_a_memorizing_network_is_near_the_cluster_and_generalises(run, outcomes):
    transient(run, figure_3.LOW, 4, 8)
    (judged,) = (one for one in ENTRY.claims if one.name == "memorizing")
    run.peak_output.values[:] = [0.1, 1.9]
    run.test_loss.values[..., -1] = 0.0
    assert judged.statistic(run).value == 1
    run.test_loss.values[:, :2, -1] = run.test_loss.values[:, :2, 0]
    run.peak_output.values[:, 7] = [1.0, 2.0]
    assert judged.statistic(run).value == pytest.approx(5 / 8)
    transient(run, figure_3.HIGH, 4, 1)
    assert outcomes(ENTRY, run)["memorizing"] == "not tested"
    assert list(ENTRY.figures(run))

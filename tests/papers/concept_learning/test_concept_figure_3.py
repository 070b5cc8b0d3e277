"""Figure 3: its claims at the quick size, spoilt runs that refute them, and invalid parameters."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import figure_3
from saddlescope.papers.concept_learning.shared.transient_memorization import HYSTERESIS
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-3"
ENTRY = find_entry(NAME)


def test_transient_memorization_is_seen_at_the_quick_size(run, inside, outcomes):
    found = outcomes(ENTRY, run)
    assert {"low-dimension", "high-dimension", "one-layer-small"} <= inside(ENTRY, run)
    assert found["high-dimension"] == found["one-layer-small"] == "reproduced"  # none at all, which is exact
    assert found["deeper"] == "undecided"  # of one depth above 1 alone


def test_rises_and_descents_are_those_of_the_stored_losses(run):
    """By a plain search for a fall, a rise and a fall of more than 5 % of the start."""
    one = figure_3.select_networks(run, figure_3.LOW, 4)
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


def of(run, kind, depth):
    return ((run.kind == kind) & (run.depth == depth)).values


def some_transients(run):
    run.descents.values[of(run, figure_3.LOW, 4)] = 2


def no_transients(run):
    run.descents.values[of(run, figure_3.LOW, 4)] = 1


def one_rise(run):
    run.descents.values[of(run, figure_3.HIGH, 4), 0] = 2


def at_the_test_point(run):
    some_transients(run)
    run.peak_output.values[:] = [1.0, 2.0]


def still_memorizing(run):
    some_transients(run)
    run.test_loss.values[..., -1] = run.test_loss.values[..., 0]


def small_start_rises(run):
    run.descents.values[of(run, figure_3.SMALL, 1), 1] = 3


def no_one_layer_rises(run):
    run.descents.values[of(run, figure_3.LOW, 1)] = 1


def wide_ones_rise(run):
    some_transients(run)
    for kind in (figure_3.WIDE, figure_3.WIDE_SGD):
        run.descents.values[of(run, kind, 4)] = 2


@pytest.mark.parametrize(
    ("spoil", "claim", "outcome"),
    [
        (one_rise, "high-dimension", "refuted"),
        (at_the_test_point, "memorizing", "not seen"),
        (still_memorizing, "generalising", "not seen"),
        (small_start_rises, "one-layer-small", "refuted"),
        (small_start_rises, "one-layer-default", "not tested"),
        (no_one_layer_rises, "one-layer-default", "refuted"),
        (wide_ones_rise, "width", "refuted"),
        (wide_ones_rise, "width-sgd", "refuted"),
    ],
)
def test_a_spoilt_run_does_not_hold(run, outcomes, spoil, claim, outcome):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == outcome


def test_without_transients_there_is_nothing_to_say_of_them(run, outcomes):
    no_transients(run)
    found = outcomes(ENTRY, run)
    assert found["memorizing"] == found["generalising"] == found["width"] == "not tested"
    assert ENTRY.figures(run)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"depths": "1,2"}, "depths must contain 1 and depth = 4"),
        ({"depths": "2,4"}, "depths must contain 1 and depth = 4"),
        ({"depths": "4,1"}, "depths must be one or more integers, each at least 1, increasing"),
        ({"depth": "1", "depths": "1,4"}, "depth must be at least 2"),
        ({"high": "2"}, "high must be above low = 2"),
        ({"seeds": "0"}, "seeds must be at least 1"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import saddlescope as ss
from saddlescope._shared.errors import InputError
from saddlescope.measure import Stage, Staircase, compare, find_plateaus
from saddlescope.plot.staircases import staircase_panel


def staircase(*arrivals, end=100.0, ranks_only=False, unit="t"):
    """Build stages from (time, loss, support) after an empty first one of loss 1."""
    rows = [(0.0, 1.0, ()), *arrivals]
    ends = [row[0] for row in rows[1:]] + [end]
    stages = (
        Stage(start, stop, loss, len(support), None if ranks_only else tuple(sorted(support)))
        for (start, loss, support), stop in zip(rows, ends, strict=True)
    )
    return Staircase(tuple(stages), unit)


def test_errors_of_time_and_level_are_those_of_the_same_component():
    predicted = staircase((10.0, 0.5, (3,)), (20.0, 0.25, (3, 1)), end=math.inf)
    found = staircase((10.1, 0.52, (3,)), (19.0, 0.24, (3, 1)))
    result = compare(predicted, found)
    assert [match.predicted.component for match in result.matches] == [3, 1]
    np.testing.assert_allclose(result.time_errors, [0.01, -0.05])
    np.testing.assert_allclose(result.loss_errors, [0.02, -0.01])
    assert (result.missed, result.extra, result.exact_order_prefix) == ((), (), 2)
    assert "2 matched, 0 missed, 0 extra, the first 2 in exact order, largest relative time error 0.05" in repr(result)


@given(
    times=st.lists(st.floats(0.1, 90), min_size=1, max_size=8, unique=True).map(sorted),
    components=st.permutations(range(8)),
)
@settings(max_examples=50, deadline=None)
def test_a_staircase_agrees_with_itself(times, components):
    arrivals = [(time, 1.0 / (k + 2), components[: k + 1]) for k, time in enumerate(times)]
    for ranks_only in (False, True):
        one = staircase(*arrivals, ranks_only=ranks_only)
        result = compare(one, one)
        assert len(result.matches) == result.exact_order_prefix == len(times)
        assert result.time_errors == result.loss_errors == (0.0,) * len(times)
        assert result.missed == result.extra == ()


def test_swapped_arrivals_are_matched_and_end_the_exact_order():
    predicted = staircase((10.0, 0.5, (0,)), (20.0, 0.3, (0, 1)), (20.1, 0.2, (0, 1, 2)), (30.0, 0.1, (0, 1, 2, 3)))
    found = staircase((10.0, 0.5, (0,)), (20.2, 0.4, (0, 2)), (20.3, 0.2, (0, 1, 2)), (30.0, 0.1, (0, 1, 2, 3)))
    result = compare(predicted, found)
    assert result.exact_order_prefix == 1
    np.testing.assert_allclose(result.time_errors, [0, 0.3 / 20, 0.1 / 20.1, 0], atol=1e-12)
    # The run was never in the state {0, 1}; it was in {0, 1, 2}, by another way.
    np.testing.assert_allclose(result.loss_errors, [0, math.nan, 0, 0], atol=1e-12)


def test_missed_and_extra_arrivals_are_reported():
    predicted = staircase((10.0, 0.5, (0,)), (20.0, 0.3, (0, 1)), (150.0, 0.2, (0, 1, 2)), end=math.inf)
    found = staircase((10.0, 0.5, (0,)), (40.0, 0.3, (0, 5)))
    result = compare(predicted, found)
    assert [arrival.component for arrival in result.missed] == [1]  # 2 is predicted after the record ends
    assert [arrival.component for arrival in result.extra] == [5]
    assert result.exact_order_prefix == 1
    until = compare(predicted, found, until=15.0)
    assert (len(until.matches), until.missed, until.extra) == (1, (), ())


def test_departures_start_no_arrival_and_returns_are_distinguished():
    predicted = staircase((10.0, 0.5, (0,)), (20.0, 0.3, (1,)), (30.0, 0.1, (0, 1)))  # at 20, 0 leaves as 1 enters
    found = staircase((10.0, 0.5, (0,)), (21.0, 0.4, (0, 1)), (22.0, 0.3, (1,)), (33.0, 0.1, (0, 1)))
    result = compare(predicted, found)
    keys = [(match.predicted.component, match.predicted.occurrence) for match in result.matches]
    assert keys == [(0, 0), (1, 0), (0, 1)]
    np.testing.assert_allclose(result.time_errors, [0.0, 0.05, 0.1])
    np.testing.assert_allclose(result.loss_errors, [0.0, 0.0, 0.0])  # {0, 1} lasted longest from 33 on
    assert result.exact_order_prefix == 3


def test_a_tie_may_come_in_any_order():
    predicted = staircase((10.0, 0.5, (0, 4)), (20.0, 0.3, (0, 2, 4)))
    found = staircase((10.1, 0.6, (4,)), (10.2, 0.5, (0, 4)), (20.0, 0.3, (0, 2, 4)))
    result = compare(predicted, found)
    assert result.exact_order_prefix == 3
    assert [match.predicted.component for match in result.matches] == [0, 4, 2]
    assert compare(found, predicted).exact_order_prefix == 3
    wrong = staircase((10.1, 0.6, (2,)), (10.2, 0.5, (2, 4)), (20.0, 0.3, (0, 2, 4)))
    assert compare(predicted, wrong).exact_order_prefix == 0


@pytest.mark.parametrize("which", ["predicted", "found", "both"])
def test_without_supports_ranks_are_matched(which):
    predicted = staircase((10.0, 0.5, (0,)), (20.0, 0.3, (0, 1)), ranks_only=which != "found")
    found = staircase((11.0, 0.4, (7,)), (19.0, 0.2, (7, 3)), (50.0, 0.1, (7, 3, 5)), ranks_only=which != "predicted")
    result = compare(predicted, found)
    np.testing.assert_allclose(result.time_errors, [0.1, -0.05])
    np.testing.assert_allclose(result.loss_errors, [-0.1, -0.1])
    assert [arrival.component for arrival in result.extra] == [2]
    assert result.exact_order_prefix == 2


def test_units_that_learn_the_same_count_once_by_the_loss():
    unit = lambda theta, x: theta[0] * jax.nn.relu(theta[1:] @ x)  # noqa: E731
    data, loss = (np.eye(2), np.array([2.0, -1.0])), lambda f, y: (f - y) ** 2 / 2
    predicted = ss.predict(unit, data, loss, parameters=np.zeros(3), width=12)
    run = ss.simulate(predicted, log_scale=-300.0)
    result = compare(predicted, run)
    assert np.isfinite(run.rises).sum() > len(result.matches) == 2 == result.exact_order_prefix
    assert (result.missed, result.extra) == ((), ())
    assert max(map(abs, result.time_errors)) < 0.03
    assert max(map(abs, result.loss_errors)) < 1e-3
    assert len(compare(predicted, run, until=0.0).missed) == 0
    first = Staircase(predicted.staircase.stages[:2], run.time_unit)
    ((more,), (_,)) = compare(first, run).extra, compare(first, run).matches
    assert abs(more.time - result.matches[1].found.time) < 0.1
    assert abs(compare(first, run).loss_errors[0]) < 1e-3
    nothing = Staircase((Stage(0.0, 9.0, 0.0, 0),), run.time_unit)  # a loss of 0 from the start
    assert compare(nothing, dataclasses.replace(run, losses=0.0 * run.losses)).extra == ()
    deep = compare(predicted, dataclasses.replace(run, losses=run.losses - 1e300 * (run.times > 0)))
    assert (len(deep.matches), len(deep.extra)) == (2, 1)
    with pytest.raises(InputError, match="level must be None where found is a sum of units"):
        compare(predicted, run, level=0.1)


def test_steps_are_rescaled_to_the_time_of_a_prediction():
    predicted, steps = staircase((1.0, 0.5, (0,))), staircase((210.0, 0.5, (0,)), end=400.0, unit="steps")
    with pytest.raises(InputError, match=r"got 'steps'. Rescale one of them by Staircase\.rescaled"):
        compare(predicted, steps)
    np.testing.assert_allclose(compare(predicted, steps.rescaled(0.005, "t")).time_errors, [0.05])
    with pytest.raises(InputError, match="factor must be positive and finite"):
        steps.rescaled(0.0, "t")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1, 0.2])
@pytest.mark.parametrize(("begin", "end", "by"), [(0, 0, 0), (1800, 1810, 0.5), (1100, 1110, -0.5), (1700, 2000, 0.5)])
def test_the_loss_of_a_training_is_compared_by_its_levels(begin, end, by, noise, seed):
    """Logistic drops in the middles of which stages are predicted; noise of minibatches; a spike, a dip or a rise."""
    steps, drops = np.arange(2000.0), ((300.0, 0.4), (900.0, 0.3), (1500.0, 0.2))
    losses = 1.0 - np.sum([size / (1 + np.exp((at - steps) / 20)) for at, size in drops], axis=0)
    losses[begin:end] += by
    record = find_plateaus(losses + noise * np.random.default_rng(seed).standard_normal(2000))
    supported = ((300.0, 0.6, (0,)), (900.0, 0.3, (0, 1)), (1500.0, 0.1, (0, 1, 2)))
    predicted = staircase(*supported, end=2000.0, unit="steps")
    result = compare(predicted, record)
    assert (len(result.matches), result.missed, result.extra) == (3, (), ())
    found, right, sizes = np.array(
        [(match.found.time, *drop) for match, drop in zip(result.matches, drops, strict=True)]
    ).T
    np.testing.assert_array_less(abs(found - right), 1e-3 + 2 * noise / (sizes / 80))  # the loss falls so far in it
    settled = 2 if end == 2000 else 3  # the level of a stage in which the loss rises for good is before or after it
    np.testing.assert_array_less(np.abs(result.loss_errors[:settled]), 1e-6 + noise / 2)
    assert staircase_panel(predicted, record).marks


def test_a_prediction_at_time_zero_has_no_relative_error():
    predicted, found = staircase((0.0, 0.5, (0,))), staircase((1.0, 0.5, (0,)))
    assert math.isnan(compare(predicted, found).time_errors[0])
    assert "largest relative time error nan" in repr(compare(predicted, found))

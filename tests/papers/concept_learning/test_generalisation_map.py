"""The generalisation map: its readings against closed forms and a plain loop, and its claims against wrong runs."""

import numpy as np
import pytest
from scipy.optimize import brentq

from saddlescope.papers.concept_learning.extensions import generalisation_map as runs
from saddlescope.reproduction import find_entry

NAME = "concept-learning/generalisation-map"
ENTRY = find_entry(NAME)
ASKED = ENTRY.configure("default", {"budget": "20", "horizon": "150"})


def logistic(start: float, rate: float, t: float) -> float:
    return start * np.exp(4 * rate * t) / (1 - start + start * np.exp(4 * rate * t))


@pytest.mark.parametrize("ratio", [2.0, 6.0])
def test_aligned_symmetric_networks_follow_the_logistic_curve(ratio):
    """With orthogonal rows W stays diagonal, and every w_kk is logistic at the rate 4 a_k."""
    a, x = runs.data_law("both", ratio, 0.05, 0.05)
    start = 1e-3 * np.eye(2, 4)[None]
    found = runs.symmetric_runs(a, x, start, ASKED).isel(start=0)
    weak, strong = a

    def left(s: float) -> float:
        return sum(rate * (1 - logistic(1e-6, rate, s / strong)) ** 2 for rate in (weak, strong)) - 0.01 * a.sum()

    stop = brentq(left, 0.1, 150.0)
    assert float(found.stop) == pytest.approx(stop, rel=1e-3)
    assert float(found.at_stop) == pytest.approx(logistic(1e-6, weak, stop / strong), abs=2e-3)
    assert float(found.at_budget) == pytest.approx(logistic(1e-6, weak, 20.0 / strong), abs=1e-6)
    expected = np.log(1e6 - 1) / (4 * weak / strong)
    assert float(found.predicted) == pytest.approx(expected, rel=1e-12)
    assert float(found.learned) == pytest.approx(expected, rel=1e-3)


def test_descent_is_that_of_a_plain_loop():
    a, x = runs.data_law("strong", 2.0, 0.5, 0.05)
    start = 0.03 * np.random.default_rng(3).standard_normal((2, 2, 2, 4))
    found = runs.trained_runs([(a, x)], [start], ASKED)[0]
    U, V, rate = start[:, 0], start[:, 1].mT, runs.RATE / a.max()
    first, outputs, losses = None, [], []
    for _ in range(round(150.0 / runs.RATE)):
        E = U @ V - np.eye(2)
        outputs.append((U @ V @ x / x).min(axis=-1))
        losses.append((E**2).sum(axis=1) @ a)
        U, V = U - rate * (E * a) @ V.mT, V - rate * U.mT @ (E * a)
    outputs, losses = np.array(outputs), np.array(losses)
    for n in range(2):
        first = np.argmax(losses[:, n] <= 0.01 * losses[0, n]) * runs.RATE
        assert float(found.stop[n]) == pytest.approx(first, abs=0.3)  # the marks are 1.3 % apart
        assert float(found.at_budget[n]) == pytest.approx(outputs[round(20.0 / runs.RATE), n], abs=1e-9)


def test_small_weights_that_are_not_symmetric_take_twice_the_time():
    a, x = runs.data_law("both", 3.0, 0.5, 0.05)
    start = 1e-5 * np.random.default_rng(4).standard_normal((3, 2, 2, 4))
    slow = runs.trained_runs([(a, x)], [start], ASKED)[0]
    fast = runs.symmetric_runs(a, x, start.mean(axis=1), ASKED)
    step = runs.RATE * a.min() / a.max()
    np.testing.assert_allclose(slow.learned / fast.learned, 2 * step / np.log1p(step), rtol=3e-3)


def test_the_output_at_the_stop_is_0_below_the_share_and_one_half_at_four_times_it():
    assert runs.predicted_output(0.01, 0.01) == runs.predicted_output(0.001, 0.01) == 0.0
    assert runs.predicted_output(0.04, 0.01) == 0.5


def test_events_that_training_does_not_reach_are_nan():
    a, x = runs.data_law("both", 2.0, 0.05, 0.05)
    short = ENTRY.configure("default", {"budget": "0.5", "horizon": "1"})
    found = runs.symmetric_runs(a, x, 1e-3 * np.eye(2)[None], short)
    assert np.isnan([found.stop, found.at_stop, found.learned]).all()


def test_quick_run_and_a_wrong_one(run, inside):
    assert {"border", "budget", "diversity-hides"} <= inside(ENTRY, run)
    wrong = run.assign(at_stop=1 - run.at_stop, at_budget=1 - run.at_budget)
    assert not {"border", "budget", "diversity-hides"} & inside(ENTRY, wrong)

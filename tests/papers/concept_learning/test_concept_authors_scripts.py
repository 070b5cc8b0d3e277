"""The authors' programs: the two discrete maps against exact flow, and the claims at the quick size."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows
from saddlescope.papers.concept_learning.shared.discrete_maps import gradient_runs, printed_runs
from saddlescope.reproduction import find_entry

NAME = "concept-learning/authors-scripts"
ENTRY = find_entry(NAME)
A = np.array([0.3, 0.9, 1.6])
STARTS = 0.3 * np.random.default_rng(8).standard_normal((4, 3, 3))


def test_one_printed_step_is_equation_d2():
    runs = printed_runs(A, STARTS, step=0.1, steps=1, keep=1)
    D = np.diag(A)
    for start, W in zip(STARTS, runs.W[:, 1], strict=True):
        W0 = start @ start.T
        expected = W0 @ D + D @ W0 - (D @ W0 @ W0 + W0 @ W0 @ D + 2 * W0 @ D @ W0) / 2
        np.testing.assert_allclose((W - W0) / 0.1, expected, atol=1e-12)
    np.testing.assert_allclose(runs.times, [0.0, 0.05])  # half the time of gradient flow


@pytest.mark.parametrize(("runs", "time"), [(gradient_runs, 1.0), (printed_runs, 2.0)])
def test_both_maps_go_to_the_flow_in_first_order(runs, time):
    flow = symmetric_flows(A, STARTS, test_point=np.ones(3), until=1.0, tolerance=1e-11).W[:, -1]
    errors = []
    for steps in (1000, 2000):
        found = runs(A, STARTS, step=time / steps, steps=steps, keep=2)
        assert found.times[-1] == pytest.approx(1.0)
        errors.append(np.abs(found.W[:, -1] - flow).max())
    assert errors[0] < 5e-3
    assert 1.8 < errors[0] / errors[1] < 2.2


def test_a_map_that_blows_up_is_seen_to():
    unsound = printed_runs(A, np.array([[[3.0, 0.0, 0.0]] * 3]), step=0.5, steps=200, keep=10)
    assert bool(unsound.blown_up[0])
    assert bool(unsound.indefinite[0])
    assert np.isnan(unsound.losses(np.ones(3))[0, -1])
    sound = gradient_runs(A, STARTS, step=0.01, steps=200, keep=10)
    assert not np.any(sound.indefinite)


def test_the_programs_show_their_figures(run, outcomes):
    found = outcomes(ENTRY, run)
    assert (found["programs-descents"], found["programs-descents-A"]) == ("agrees", "seen")
    np.testing.assert_allclose(run.share.sum("descents"), 1.0)
    run.program_descents[1] = 2
    found = outcomes(ENTRY, run)
    assert (found["programs-descents"], found["programs-descents-A"]) == ("differs", "not tested")

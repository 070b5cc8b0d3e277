"""Stage times and minor peaks against gradient flow."""

import mpmath
import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope._shared.errors import InputError
from saddlescope.models import StructuredIdentityTask
from saddlescope.theory.concepts import concept_stages

FIGURE_8 = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05,) * 3, 10, 3).strengths


def _start(scale, seed, shape=(3, 3)):
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _flow(a, U0, end, points=8001):
    times = np.linspace(0.0, end, points)
    U = symmetric_network_flow(a, U0, times, rtol=1e-11)
    return times, U @ U.swapaxes(1, 2)


@pytest.mark.parametrize(("scale", "within"), [(1e-3, 0.02), (1e-5, 1e-3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_times_on_the_data_of_figure_8(scale, within, seed):
    stages = concept_stages(FIGURE_8, _start(scale, seed))
    assert stages.separated
    times, W = _flow(FIGURE_8, _start(scale, seed), stages.times.max() + 4)
    for k in range(3):
        crossing = int(np.argmax(W[:, k, k] > 0.5))
        found = np.interp(0.5, W[crossing - 1 : crossing + 1, k, k], times[crossing - 1 : crossing + 1])
        assert abs(found - stages.times[k]) < within


@pytest.mark.parametrize("seed", range(3))
def test_the_minor_peaks(seed):
    stages = concept_stages(FIGURE_8, _start(1e-5, seed))
    times, W = _flow(FIGURE_8, _start(1e-5, seed), stages.times.max() + 4)
    for i, k in ((0, 1), (0, 2), (1, 2)):
        top = int(np.argmax(np.abs(W[:, i, k])))
        assert abs(stages.peak_times[i, k] - times[top]) < 2e-3
        assert stages.peak_times[k, i] == stages.peak_times[i, k]
    assert np.all(np.isnan(np.diag(stages.peak_times)))


def test_the_schur_complements_against_exact_arithmetic():
    U = _start(1e-3, 5, (4, 6))
    a = np.array([0.7, 1.9, 0.2, 1.1])
    stages = concept_stages(a, U)
    with mpmath.workdps(40):
        W = mpmath.matrix(U.tolist()) * mpmath.matrix(U.tolist()).T
        order = [1, 3, 0, 2]
        for n, k in enumerate(order):
            before = order[:n]
            for i in order[n:]:
                left = W[i, k]
                if before:
                    block = mpmath.matrix([[W[p, q] for q in before] for p in before])
                    right = mpmath.lu_solve(block, mpmath.matrix([W[p, k] for p in before]))
                    left -= sum(W[i, p] * right[m] for m, p in enumerate(before))
                np.testing.assert_allclose(stages.couplings[i, k], float(left), rtol=1e-11)
            np.testing.assert_allclose(stages.schur[k], stages.couplings[k, k], rtol=0)
            time = mpmath.log(1 / mpmath.mpf(stages.schur[k]) - 1) / (4 * mpmath.mpf(a[k]))
            np.testing.assert_allclose(stages.times[k], float(time), rtol=1e-13)


def test_a_diagonal_start_is_exact_at_any_scale():
    a, sizes = np.array([0.4, 1.0, 1.7]), np.array([0.5, 0.2, 0.1])
    stages = concept_stages(a, np.diag(sizes))
    for k, time in enumerate(stages.times):
        w = np.diag(symmetric_network_flow(a, np.diag(sizes), [time])[-1]) ** 2
        np.testing.assert_allclose(w[k], 0.5, atol=1e-11)
    assert np.all(np.isnan(stages.peak_times))


def test_the_order_of_the_concepts_does_not_matter():
    U, order = _start(1e-3, 0), [2, 0, 1]
    plain, turned = concept_stages(FIGURE_8, U), concept_stages(FIGURE_8[order], U[order])
    np.testing.assert_allclose(turned.times, plain.times[order], rtol=1e-13)
    np.testing.assert_allclose(turned.peak_times, plain.peak_times[np.ix_(order, order)], rtol=1e-10)
    rotation = np.linalg.qr(_start(1.0, 9))[0]
    np.testing.assert_allclose(concept_stages(FIGURE_8, U @ rotation).times, plain.times, rtol=1e-12)


def test_a_deficient_rank_never_learns_the_weakest():
    stages = concept_stages(FIGURE_8, _start(1e-3, 0, (3, 2)))
    assert np.isinf(stages.times[0])
    assert np.all(np.isfinite(stages.times[1:]))
    assert stages.schur[0] == 0
    assert stages.staircase.supports == ((), (2,), (1, 2))
    np.testing.assert_allclose(stages.staircase.losses[-1], FIGURE_8[0] / 2)


def test_directions_without_strength():
    a = np.append(FIGURE_8, [0.0, 0.0])
    U = _start(1e-4, 2, (5, 5))
    stages = concept_stages(a, U)
    assert np.all(np.isinf(stages.times[3:]))
    times, W = _flow(a, U, stages.times[:3].max() + 4)
    for k in range(3):
        assert abs(np.interp(0.5, W[:, k, k], times) - stages.times[k]) < 0.01
    assert abs(stages.peak_times[3, 2] - times[np.argmax(np.abs(W[:, 3, 2]))]) < 0.01


def test_the_staircase():
    staircase = concept_stages(FIGURE_8, _start(1e-3, 0)).staircase
    assert staircase.supports == ((), (2,), (1, 2), (0, 1, 2))
    np.testing.assert_allclose(staircase.losses, [FIGURE_8.sum() / 2, FIGURE_8[:2].sum() / 2, FIGURE_8[0] / 2, 0])
    assert staircase.times == tuple(sorted(concept_stages(FIGURE_8, _start(1e-3, 0)).times))


def test_two_concepts_learned_at_once_have_no_staircase():
    with pytest.raises(InputError, match=r"Start from smaller weights"):
        _ = concept_stages([1.0, 1.1], np.diag([0.1, 1e-6])).staircase

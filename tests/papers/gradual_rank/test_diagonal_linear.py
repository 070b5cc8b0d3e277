"""Algorithm 1 on diagonal linear networks: each stage against a solver without dynamics, and the end of the flow."""

import jax
import numpy as np
import pytest
from scipy.optimize import nnls

from saddlescope.models import diagonal_linear_network
from saddlescope.papers.gradual_rank.diagonal_linear import least_l1_interpolator
from saddlescope.theory import incremental_learning


@pytest.mark.parametrize(("seed", "n", "p"), [(3, 5, 9), (0, 6, 12), (1, 6, 12), (2, 20, 40)])
def test_every_stage_is_that_of_solvers_without_dynamics(seed, n, p):
    """The plateaus are non-negative least squares, the slopes subgradients of the l1 norm, the end a linear programme.

    A coordinate enters when its slope, the integral of g, reaches 1 or -1 (Berthier 2022; Pesme and Flammarion 2023).
    """
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, p))
    targets = features @ rng.standard_normal(p)
    with jax.enable_x64(True):
        learned = incremental_learning(diagonal_linear_network(features, targets), p)
    nu, before = np.zeros(n), learned.stages[0]
    for stage in learned.stages[1:]:
        rate = 2 / n * (targets - features @ before.beta)
        nu += (stage.time - before.time) * rate
        xi = features.T @ nu
        (entered,) = stage.entered
        signs = np.sign(before.beta)
        signs[entered] = np.sign(rate @ features[:, entered])
        active = np.flatnonzero(signs)
        exact = np.zeros(p)
        exact[active] = signs[active] * nnls(features[:, active] * signs[active], targets)[0]
        np.testing.assert_allclose(stage.beta, exact, atol=1e-9)
        np.testing.assert_allclose(xi[exact != 0], np.sign(exact[exact != 0]), atol=1e-9)
        assert abs(xi).max() < 1 + 1e-9
        assert xi[entered] == pytest.approx(signs[entered], abs=1e-9)
        before = stage
    np.testing.assert_allclose(features @ before.beta, targets, atol=1e-9)
    assert abs(before.beta).sum() == pytest.approx(nu @ targets, abs=1e-9)  # the dual bound is reached
    np.testing.assert_allclose(before.beta, least_l1_interpolator(features, targets), atol=1e-8)
    assert abs(before.gradient).max() < 1e-9  # T = infinity: no coordinate ever enters


def test_the_end_is_not_any_interpolator():
    """The least squares solution of least l2 norm interpolates too, and has a larger l1 norm than the programme's."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((5, 9))
    targets = features @ rng.standard_normal(9)
    shortest = least_l1_interpolator(features, targets)
    np.testing.assert_allclose(features @ shortest, targets, atol=1e-12)
    assert np.abs(shortest).sum() < 0.99 * np.abs(np.linalg.pinv(features) @ targets).sum()

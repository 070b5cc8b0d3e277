"""End of a transition against the flow of the weights, on losses where minimisation would find another point."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.integrate import solve_ivp
from scipy.optimize import minimize
from tests import problems, tolerances

from saddlescope._shared.progress import silent
from saddlescope.models import attention_teacher_task, diagonal_linear_network
from saddlescope.theory import AlgorithmStatus, incremental_learning
from saddlescope.theory.incremental.greedy_algorithm import _learn
from saddlescope.theory.incremental.loss_oracle import LossOracle
from saddlescope.theory.incremental.orbit import follow_path, follow_timed
from saddlescope.theory.incremental.stationary_point import curvature

POLICIES = pytest.mark.parametrize("transition", [follow_path, follow_timed], ids=["path", "timed"])
X = jnp.asarray(np.random.default_rng(0).standard_normal((40, 3)))
LABELS = jnp.sign(X @ jnp.array([1.0, -0.5, 0.2]))


def _ghost(away):
    return jnp.sum(away**4 / 4 - away**3 / 3 + 1e-4 * (away**2 / 2 - away))


LOSSES = {  # of both policies, so that each is compiled once
    "two minima": lambda beta: jnp.sum(beta**4 / 4 - 7 * beta**3 / 3 + 7 * beta**2 - 8 * beta),
    "ghost": lambda beta: _ghost(beta - 1),
    "tiny": lambda beta: jnp.sum((beta / 1e-9) ** 3 / 3 - beta / 1e-9),
    "falling": lambda beta: -beta[0] - beta[0] ** 3,
    "at infinity": lambda beta: 2 * (beta[0] - 2) ** 2 + jnp.logaddexp(0.0, -beta[1]),
    "separable": lambda beta: jnp.mean(jnp.logaddexp(0.0, -LABELS * (X @ beta))),
    "NaN": lambda beta: jnp.where(beta[0] > 0.5, jnp.nan, (beta[0] - 1) ** 2) + 2 * (beta[1] - 3) ** 2,
    "barrier": lambda beta: -beta[0] - 1e-3 * jnp.log(1 - beta[0]),
}


def _learned(loss, size, transition):
    return _learn(LossOracle(loss, size), None, transition, 1e-11, None, silent)


def _assert_followed(loss, size):
    """Equation 13 literally: SciPy follows the flow of the weights u from each saddle to the next, v = s u.

    Only u is integrated. With v as well, rounding would break the conservation law once a coordinate is tiny.
    """
    learned, slope = incremental_learning(loss, size), jax.jit(jax.grad(loss))
    assert learned.status == AlgorithmStatus.CONVERGED
    for before, stage in itertools.pairwise(learned.stages):
        (new,) = stage.entered
        signs = np.sign(before.beta)
        signs[new] = stage.signs[0]
        start = np.sqrt(np.abs(before.beta))
        start[new] = 1e-5

        def velocity(_, u, signs=signs):
            return -signs * u * np.asarray(slope(jnp.asarray(signs * u**2)))

        rate = min([stage.convergence_rate, *np.abs(before.gradient[[new]]), *np.abs(stage.gradient[list(stage.left)])])
        end = solve_ivp(velocity, (0, 1e4 / rate), start, method="LSODA", rtol=1e-8, atol=1e-13).y[:, -1]
        np.testing.assert_allclose(signs * end**2, stage.beta, atol=tolerances.TRANSITION)
    return learned


def _minimised(loss, size, learned, k):
    """Return the point that bounded L-BFGS finds from saddle k, with signs fixed."""
    before, stage = learned.stages[k], learned.stages[k + 1]
    oracle = LossOracle(loss, size)
    active = np.append(np.flatnonzero(before.beta), stage.entered)
    signs = np.append(np.sign(before.beta[active[:-1]]), stage.signs)

    def value_and_slope(x):
        beta = np.zeros(size)
        beta[active] = signs * x
        value, g = oracle.value_and_gradient(beta)
        return value, -(signs * g[active])

    start = np.append(np.abs(before.beta[active[:-1]]), 1e-3)
    found = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(active))
    beta = np.zeros(size)
    beta[active] = signs * found.x
    return beta


def test_agrees_with_the_flow_where_minimisation_goes_astray():
    astray = 0
    for seed in (79, 102, 140, 159):
        loss = problems.bumpy(seed)
        learned = _assert_followed(loss, 3)
        astray += sum(
            np.max(np.abs(_minimised(loss, 3, learned, k) - learned.stages[k + 1].beta)) > 1e-2
            for k in range(len(learned.stages) - 1)
        )
    assert astray >= 3


@pytest.mark.slow
def test_agrees_with_the_flow_on_many_losses():
    for seed in range(300):
        _assert_followed(problems.bumpy(seed), 3)


def test_agrees_with_the_flow_on_attention():
    task = attention_teacher_task(0, samples=30, tokens=4, dim=3)
    _assert_followed(task.network, 6)


def test_agrees_with_the_flow_where_a_coordinate_leaves():
    X = np.array(problems.RETURNING_FEATURES)
    learned = _assert_followed(diagonal_linear_network(X, X @ np.array(problems.RETURNING_TEACHER)), 3)
    assert any(stage.left for stage in learned.stages)


@POLICIES
def test_stops_at_the_first_minimum_on_the_path(transition):
    """L' = (beta - 1)(beta - 2)(beta - 4): a far deeper minimum waits at 4 behind a maximum at 2."""
    learned = _learned(LOSSES["two minima"], 1, transition)
    assert learned.status == AlgorithmStatus.CONVERGED
    assert learned.stages[1].time == pytest.approx(1 / 8, rel=1e-14)
    assert learned.stages[1].beta[0] == pytest.approx(1.0, abs=1e-14)
    assert learned.stages[1].curvature == pytest.approx(6.0, rel=1e-12)  # 2 x L'' with x = 1, L'' = (1-2)(1-4)


@POLICIES
def test_passes_slowly_through_the_ghost_of_a_minimum(transition):
    """L' = (beta - 1)^2 (beta - 2) + 1e-4 (beta - 2): almost 0 at 1, but not 0 before 2."""
    learned = _learned(LOSSES["ghost"], 1, transition)
    assert learned.stages[1].beta[0] == pytest.approx(2.0, abs=1e-12)


@POLICIES
def test_a_scale_of_its_own_is_found(transition):
    """Zero curvature at the origin: it gives no scale for a small start."""
    learned = _learned(LOSSES["tiny"], 1, transition)
    assert learned.stages[1].beta[0] == pytest.approx(1e-9, rel=1e-13)


@POLICIES
def test_no_minimum_is_said(transition):
    learned = _learned(LOSSES["falling"], 1, transition)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert learned.end == 1.0


def _valley(pull, beta):
    return (jnp.sum(beta) - 1) ** 2 / 2 - pull @ beta


@pytest.mark.parametrize("pull", [(0.1, 0.0), (-0.22, 0.17), (-0.04, -0.2, 0.18)])
def test_a_valley_without_end_falls_without_bound(pull):
    """One weight tends to infinity and another to its negative; trial points overshoot, or the loss overflows there."""
    learned = incremental_learning(Partial(_valley, jnp.array(pull)), len(pull))
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert "without bound" in learned.message


@POLICIES
def test_a_minimiser_at_infinity_is_not_followed_for_ever(transition):
    """Coordinate 1 grows as log t for ever; r = e^-beta. It is enough to see three decades of that."""
    learned = _learned(LOSSES["at infinity"], 2, transition)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert [stage.entered for stage in learned.stages] == [(), (0,)]
    assert learned.end == pytest.approx(2.0)
    assert learned.next == (1,)
    assert "seems to be at infinity" in learned.message
    assert "Assumption 4.4" in learned.message
    assert "penalty" in learned.message
    followed = float(learned.message.split("max |beta| = ")[1].split(",")[0])
    assert 5 < followed < 20


@POLICIES
def test_separable_data_have_no_minimum(transition):
    learned = _learned(LOSSES["separable"], 3, transition)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert "seems to be at infinity" in learned.message
    assert len(learned.stages) == 2  # one feature does not separate them, two do


@pytest.mark.parametrize("transition", [follow_timed], ids=["timed"])
def test_a_flat_loss_is_not_taken_for_one_that_falls_for_ever(transition):
    """L = (beta - 1)^6 / 6: rates fade as t^(-5/4), and so do Newton steps, if slowly."""
    learned = _learned(lambda beta: (beta[0] - 1) ** 6 / 6, 1, transition)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert "flat" in learned.message
    assert "infinity" not in learned.message


def test_a_flat_direction_is_not_taken_for_a_strict_minimum():
    """H = v v^T is singular: its smallest computed eigenvalue is rounding, of either sign."""
    rng = np.random.default_rng(0)
    for v in rng.standard_normal((50, 6)):
        assert curvature(np.ones(6), np.outer(v, v)) == 0
    assert curvature(np.ones(2), np.diag([1e-12, 1.0])) == pytest.approx(2e-12)


def _flattening(target, beta):
    apart = (beta[0] - 1) ** 2 + (beta[1] - target) ** 2
    return ((1 - beta[2]) ** 2 * apart + (beta[0] + beta[1] - 1 - target) ** 2 + 0.2 * (1 - beta[2]) ** 2) / 2


@POLICIES
@pytest.mark.parametrize("target", [0.9, 0.83, 0.7])
def test_a_valley_that_becomes_flat_has_no_strict_minimum(transition, target):
    """Once beta_3 is 1, the loss depends on beta_1 + beta_2 alone."""
    learned = _learned(Partial(_flattening, jnp.array(target)), 3, transition)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert [stage.entered for stage in learned.stages] == [(), (0,), (1,)]
    assert "flat" in learned.message


@POLICIES
def test_a_loss_that_ends_in_nan_is_named(transition):
    learned = _learned(LOSSES["NaN"], 2, transition)
    assert learned.status == AlgorithmStatus.NOT_FINITE
    assert [stage.entered for stage in learned.stages] == [(), (1,)]  # what was learned before is kept
    assert learned.next == (0,)
    assert learned.end == pytest.approx(0.5, rel=1e-14)
    assert "logarithm" in learned.message


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda beta: -jnp.exp(beta[0]), "without bound"),
        (lambda beta: -beta[0] - beta[0] ** 5, "without bound"),
        (lambda beta: jnp.sum((jnp.exp(beta) - 1 - 1e-12) ** 2), "expm1"),
    ],
)
def test_what_is_no_flat_loss_is_not_called_so(loss, says):
    learned = incremental_learning(loss, 1)
    assert learned.status == AlgorithmStatus.NO_MINIMUM
    assert says in learned.message


@POLICIES
def test_a_barrier_is_no_obstacle(transition):
    """Trial points beyond the pole of the logarithm are not the loss's fault."""
    learned = _learned(LOSSES["barrier"], 1, transition)
    assert learned.stages[1].beta[0] == pytest.approx(1 - 1e-3, rel=1e-12)

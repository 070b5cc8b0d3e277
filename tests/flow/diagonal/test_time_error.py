"""The error of stage times that a flow reports by default, against runs at a far smaller tolerance."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import tolerances
from tests.problems import LOG10

from saddlescope.flow import DiagonalInit, Trajectory, gradient_flow
from saddlescope.models import attention_teacher_task


class Tanh(eqx.Module):
    """Mean squared error of tanh(gain * x . beta): its gradient nearly vanishes where the tanh is saturated."""

    x: jax.Array
    gain: jax.Array
    targets: jax.Array

    def __call__(self, beta):
        return 0.5 * jnp.mean((jnp.tanh(self.gain * (self.x @ beta)) - self.targets) ** 2)


def _problem(seed):
    rng = np.random.default_rng(seed)
    x, teacher = rng.standard_normal((12, 4)), rng.standard_normal(4) * np.array([3, 1, 0.5, 0.3])
    gain = float(rng.choice([1.0, 2.0, 4.0]))
    u, v = rng.standard_normal((2, 4))
    loss = Tanh(jnp.asarray(x), jnp.asarray(gain), jnp.asarray(np.tanh(gain * x @ teacher)))
    return loss, DiagonalInit(u, v, -float(rng.choice([8, 16, 32])) * LOG10)


def _true_error(flow: Trajectory, tight: Trajectory) -> float:
    ours, exact = (sorted((c.index, c.sign, c.rising, c.time) for c in run.crossings) for run in (flow, tight))
    if [one[:3] for one in ours] != [one[:3] for one in exact]:
        return np.inf
    return max(abs(a[3] / b[3] - 1) for a, b in zip(ours, exact, strict=True))


@pytest.mark.parametrize(
    "seeds", [(40, 41, 95), pytest.param((*range(37, 47), 88, 95, *range(300, 312)), marks=pytest.mark.slow)]
)
def test_errors_on_a_saturated_tanh_are_reported_and_brought_down_by_further_runs(seeds):
    """Seeds that calibrated nothing: no error is more than twice the estimate, and large ones are found."""
    errors, reported, more = np.zeros(len(seeds)), np.zeros(len(seeds)), 0
    for k, (loss, start) in enumerate(map(_problem, seeds)):
        run = partial(gradient_flow, loss, start, until=60.0, level=0.05)
        tight, once, flow = run(tolerance=1e-8, verify=False), run(tolerance=1e-4, verify=False), run(tolerance=1e-4)
        assert once.accuracy is None
        assert once.time_error is not None
        assert flow.time_error is not None
        errors[k], reported[k] = _true_error(once, tight), once.time_error
        error = _true_error(flow, tight)
        assert error < tolerances.FLOW_STAGE_TIME * 1e-4
        assert flow.time_error > error / 2
        assert ("relative errors of about" in repr(flow)) == (flow.accuracy is not None)
        more += flow.accuracy is not None
    assert np.sum(errors > 5e-4) >= 2  # the tolerance was missed, by a factor of ten
    assert np.all(reported > errors / 2)
    assert np.any(reported < 3e-4)  # no alarm for all
    assert more > 0


def test_well_conditioned_stages_cost_no_second_run():
    task = attention_teacher_task(4, samples=60, tokens=4, dim=3)
    start = DiagonalInit(task.u0, task.v0, -32 * LOG10)
    flow = gradient_flow(task.network, start, until=30.0, tolerance=1e-4, level=0.05)
    plain = gradient_flow(task.network, start, until=30.0, tolerance=1e-4, level=0.05, verify=False)
    assert flow.accuracy is None
    assert flow.evaluations == plain.evaluations
    assert flow.time_error is not None
    assert 1e-4 <= flow.time_error < 1e-3
    assert gradient_flow(task.network, start, until=30.0, tolerance=1e-4).time_error is None

"""Many flows at once: against closed forms, against one flow at a time, and against each other in another order."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import tolerances
from tests.problems import LOG10

from saddlescope.flow import BatchedFlowError, DiagonalInit, gradient_flow, gradient_flow_batched
from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network


def _regression(seed, digits, p=4, samples=8):
    rng = np.random.default_rng(seed)
    features, teacher = rng.standard_normal((samples, p)), rng.standard_normal(p)
    u, v = rng.standard_normal((2, p))
    return diagonal_linear_network(features, features @ teacher), DiagonalInit(u, v, -digits * LOG10)


def _regressions(seeds, digits, **sizes):
    return map(list, zip(*(_regression(seed, digits, **sizes) for seed in seeds), strict=True))


def _times(trajectory):
    """Times of each kind of crossing; repeated ones in turn."""
    times = {}
    for c in trajectory.crossings:
        times.setdefault((c.index, c.rising, c.sign), []).append(c.time)
    return times


def _assert_same_stages(found, expected, rtol):
    ours, theirs = _times(found), _times(expected)
    assert ours.keys() == theirs.keys()
    for kind, times in theirs.items():
        np.testing.assert_allclose(ours[kind], times, rtol=rtol)


@pytest.mark.parametrize("digits", [2, 512])
def test_each_flow_is_the_one_that_it_would_be_alone(digits):
    losses, starts = _regressions(range(3), digits)
    times = np.linspace(0, 10, 11)
    flows = gradient_flow_batched(losses, starts, until=10.0, tolerance=1e-5, level=0.05, record=times)
    for loss, start, flow, beta in zip(losses, starts, flows, flows.beta, strict=True):
        tight = gradient_flow(loss, start, until=10.0, tolerance=1e-8, level=0.05)
        _assert_same_stages(flow, tight, rtol=tolerances.FLOW_STAGE_TIME * 1e-5)
        np.testing.assert_allclose(beta, tight(times), atol=3e-3)  # a record may lie in a steep part
        np.testing.assert_allclose(beta[-1], tight.beta[-1], atol=1e-5)
        np.testing.assert_array_equal(flow(times), beta)


def test_tightening_the_tolerance_tightens_the_stage_times():
    losses, starts = _regressions(range(3), 32)
    runs = [
        gradient_flow_batched(losses, starts, until=10.0, tolerance=tolerance, level=0.05)
        for tolerance in (1e-3, 1e-5, 1e-8)
    ]
    errors = [
        max(
            abs(a / b - 1)
            for flow, exact in zip(run, runs[-1], strict=True)
            for kind, times in _times(exact).items()
            for a, b in zip(_times(flow)[kind], times, strict=True)
        )
        for run in runs[:2]
    ]
    assert 1e-5 < errors[0] < tolerances.FLOW_STAGE_TIME * 1e-3
    assert errors[1] < tolerances.FLOW_STAGE_TIME * 1e-5
    assert runs[0].evaluations.gradients < runs[1].evaluations.gradients


def test_order_and_company_change_nothing():
    """All kinds of steps are taken at once, and flows end one after the other; none may change another's state."""
    losses, starts = _regressions(range(7), 8)
    starts = [DiagonalInit(s.u, s.v, s.log_scale * (1 + flow)) for flow, s in enumerate(starts)]
    together = gradient_flow_batched(losses, starts, until=6.0, tolerance=1e-5, level=0.05)
    order = np.random.default_rng(0).permutation(7)
    shuffled = gradient_flow_batched(
        [losses[i] for i in order], [starts[i] for i in order], until=6.0, tolerance=1e-5, level=0.05
    )
    np.testing.assert_allclose(shuffled.beta, together.beta[order], atol=1e-5)
    for flow in (0, 3, 6):
        alone = gradient_flow_batched([losses[flow]], [starts[flow]], until=6.0, tolerance=1e-5, level=0.05)
        np.testing.assert_allclose(alone.beta[0], together.beta[flow], atol=1e-5)
        _assert_same_stages(together[flow], alone[0], rtol=1e-7)  # rounding may turn a decision of the solver
        np.testing.assert_allclose(alone[0].evaluations.gradients, together[flow].evaluations.gradients, rtol=0.05)


def test_flows_that_explicit_steps_do_not_serve_are_followed_alone():
    """Below the rounding of explicit steps every flow is one of `gradient_flow`, with the same records."""
    losses, starts = _regressions(range(2), 8)
    settings = {"until": 6.0, "level": 0.05, "record": np.linspace(0, 6, 7)}
    flows = gradient_flow_batched(losses, starts, tolerance=1e-9, **settings)
    for loss, start, flow, beta in zip(losses, starts, flows, flows.beta, strict=True):
        alone = gradient_flow(loss, start, tolerance=1e-9, **settings)
        assert flow.crossings == alone.crossings
        np.testing.assert_allclose(beta, alone(flows.times), rtol=1e-12, atol=1e-15)
        assert flow.evaluations.hessians > 0


def test_one_loss_for_all_is_that_loss_for_each():
    loss, start = _regression(1, 8)
    starts = [DiagonalInit(start.u, start.v, -digits * LOG10) for digits in (1, 8, 64)]
    shared = gradient_flow_batched(loss, starts, until=6.0, tolerance=1e-5, level=0.05)
    each = gradient_flow_batched([loss] * 3, starts, until=6.0, tolerance=1e-5, level=0.05)
    np.testing.assert_allclose(shared.beta, each.beta, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_networks_with_and_without_derivatives_of_their_own():
    tasks = [attention_teacher_task(seed, samples=6, tokens=3, dim=2) for seed in range(2)]
    starts = [DiagonalInit(task.u0, task.v0, -20.0) for task in tasks]
    own = gradient_flow_batched([task.network for task in tasks], starts, until=20.0, tolerance=1e-6, level=0.05)
    generic = gradient_flow_batched(
        [DiagonalNetwork(task.network.h, task.network.inputs, task.network.targets) for task in tasks],
        starts,
        until=20.0,
        tolerance=1e-6,
        level=0.05,
    )
    assert sum(map(len, own.crossings)) >= 4
    for a, b in zip(own, generic, strict=True):
        _assert_same_stages(a, b, rtol=2e-6)
    alone = gradient_flow(tasks[1].network, starts[1], until=20.0, tolerance=1e-7, level=0.05)
    _assert_same_stages(own[1], alone, rtol=tolerances.FLOW_STAGE_TIME * 1e-6)


def test_a_trajectory_of_many_keeps_what_a_trajectory_promises():
    losses, starts = _regressions(range(3), 4)
    flows = gradient_flow_batched(losses, starts, until=5.0, tolerance=1e-6, level=0.1)
    assert (len(flows), len(list(flows)), flows.failed) == (3, 3, ())
    assert flows.evaluations.gradients == sum(flow.evaluations.gradients for flow in flows)
    for loss, flow in zip(losses, flows, strict=True):
        assert {c.time for c in flow.crossings} <= set(flow.times)
        for c in flow.crossings:
            np.testing.assert_allclose(flow(np.array([c.time]))[0, c.index], c.sign * 0.1, rtol=1e-9)
        assert list(flow.crossings) == sorted(flow.crossings)
        assert np.all(np.diff(flow.losses) <= 1e-12)
        np.testing.assert_allclose(flow.losses, [loss(jnp.asarray(beta)) for beta in flow.beta], rtol=1e-9, atol=1e-25)
        u, v = flow.parameters(flow.times)
        np.testing.assert_allclose(u * v, flow.beta, rtol=1e-9, atol=1e-20)
        np.testing.assert_allclose(u**2 - v**2, np.tile(u[0] ** 2 - v[0] ** 2, (len(u), 1)), atol=1e-14)


def test_flows_go_on_from_where_flows_ended():
    losses, starts = _regressions(range(3), 12)
    whole = gradient_flow_batched(losses, starts, until=6.0, tolerance=1e-6, record=np.array([6.0]))
    first = gradient_flow_batched(losses, starts, until=0.4, tolerance=1e-6)
    second = gradient_flow_batched(
        losses, [flow.end for flow in first], until=5.6, tolerance=1e-6, record=np.array([5.6])
    )
    np.testing.assert_array_equal(second.beta[:, 0], first.beta[:, -1])
    np.testing.assert_allclose(second.beta[:, -1], whole.beta[:, -1], atol=1e-6)


def test_frozen_coordinates_and_no_time_at_all():
    loss, start = _regression(0, 6)
    u, v = start.u.copy(), start.v.copy()
    u[1] = v[1] = 0.0
    v[2] = u[2]
    flows = gradient_flow_batched(loss, [DiagonalInit(u, v, -14.0)] * 2, until=5.0, tolerance=1e-5)
    assert np.all(flows.beta[:, :, 1] == 0)
    assert np.all(flows.beta[:, :, 2] > 0)
    still = gradient_flow_batched(loss, [start], until=0.0, tolerance=1e-5)
    np.testing.assert_allclose(still.beta[0], [gradient_flow(loss, start, until=0.0, tolerance=1e-5).beta[0]])


def test_flows_that_end_early_are_named_and_leave_the_others_alone():
    class Cliff(eqx.Module):
        edge: jax.Array

        def __call__(self, beta):
            return jnp.sum(0.5 * (1 - beta) ** 2 + 0.0 * jnp.sqrt(self.edge - beta))

    starts = [DiagonalInit(np.ones(1), np.ones(1), -5.0)] * 3
    losses = [Cliff(jnp.array(edge)) for edge in (2.0, 0.4, 2.0)]
    flows = gradient_flow_batched(losses, starts, until=2.0, tolerance=1e-4, throw=False)
    assert flows.failed == (1,)
    assert "NaN" in flows[1].status.sentence
    np.testing.assert_allclose(flows[1].beta[-1], 0.4, atol=1e-4)
    assert np.isnan(flows.beta[1, -1, 0])
    np.testing.assert_allclose(flows.beta[[0, 2], -1], 1, atol=1e-3)
    with pytest.raises(BatchedFlowError, match="1 of 3 runs ended early: 1") as error:
        gradient_flow_batched(losses, starts, until=2.0, tolerance=1e-4)
    assert error.value.result.failed == (1,)


@pytest.mark.parametrize("samples", [3, 8])
def test_fewer_samples_than_half_the_coordinates(samples):
    """Gradients by products with the data, or by the quadratic form: the flows are those of `gradient_flow`."""
    losses, starts = _regressions(range(3), 17, p=8, samples=samples)
    flows = gradient_flow_batched(losses, starts, until=5.0, tolerance=1e-5, level=0.05)
    for flow, loss, start in zip(flows, losses, starts, strict=True):
        exact = gradient_flow(loss, start, until=5.0, tolerance=1e-8, level=0.05)
        _assert_same_stages(flow, exact, rtol=1e-4)
        np.testing.assert_allclose(flow.beta[-1], exact.beta[-1], atol=1e-4)

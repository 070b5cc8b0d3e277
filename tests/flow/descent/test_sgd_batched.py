"""Batched SGD: against a full network trained by a plain loop, resumed runs, divergence, and invalid input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.compiled_functions import forget
from saddlescope._shared.errors import InputError
from saddlescope.flow import BatchedFlowError, homogeneous_rate, sgd, sgd_batched
from saddlescope.models import LayeredLoss, StructuredIdentityTask, random_rotation
from saddlescope.models.concepts.perceptron import (
    perceptron_loss,
    perceptron_output,
    perceptron_weights,
    weights_from_span,
    weights_in_span,
)

MU, SIGMA, DIM, BATCH = ((1.0, 2.0), (2.0, 0.5), (1.0, 1.0)), (0.3, 0.5), 4, 8


def _problem(*, relu=False, dtype=None, widths=(DIM, 5, DIM)):
    """Three tasks with different rotations, and a network for each."""
    tasks = [
        StructuredIdentityTask(mu, SIGMA, 10, DIM, origin=True, rotation=random_rotation(DIM, seed=n))
        for n, mu in enumerate(MU)
    ]
    frames = np.stack([task.directions[:, :2] for task in tasks])
    losses = [
        perceptron_loss(task.draw(0), frame, relu=relu, dtype=dtype) for task, frame in zip(tasks, frames, strict=True)
    ]
    start = perceptron_weights(widths, seed=4, num_starts=3, dtype=dtype)
    return tasks, frames, losses, start


def _observe(relu, weights):
    points = jnp.array([[1.0, 2.0], [0.5, 0.0]], weights.weights[0].dtype)
    return {"output": perceptron_output(weights, points, relu=relu), "first": weights.weights[0]}


def _run(losses, start, *, steps=11, record=(), relu=False, **given):
    options = {
        "learning_rate": 0.1, "batch": BATCH, "seeds": (3, 1, 3), "observe": jax.tree_util.Partial(_observe, relu),
    }  # fmt: skip
    return sgd_batched(losses, start, steps=steps, record=np.array(record, int), **options | given)


@pytest.mark.parametrize(
    ("relu", "widths"),
    [(False, (DIM, DIM)), (True, (DIM, 5, DIM)), (False, (DIM, 5, 6, 5, DIM)), (True, (DIM, 5, 6, 5, DIM))],
)
def test_steps_are_those_of_a_plain_loop_over_whole_networks(relu, widths):
    """By hand, on all of the first weight, with the samples themselves; each run with its own data, seed and rate."""
    tasks, frames, losses, start = _problem(relu=relu, widths=widths)
    rates, seeds = (0.05, 0.1, 0.2), (3, 1, 3)
    run = _run(losses, weights_in_span(start, frames), record=[1, 4, 7], relu=relu, learning_rate=rates, seeds=seeds)
    np.testing.assert_array_equal(run.steps, [0, 1, 4, 7, 11])
    assert all(status.ok for status in run.statuses)
    ends = weights_from_span(jax.tree.map(jnp.asarray, run.weights), start, frames)
    for n, task in enumerate(tasks):
        x = task.draw(0)
        W = [np.array(weight[n]) for weight in start.weights]
        b = [np.array(bias[n]) for bias in start.biases]
        for step in range(12):
            if step in run.steps:
                seen = run.observed["first"][n, run.steps.tolist().index(step)]
                np.testing.assert_allclose(seen, W[0] @ frames[n], atol=1e-12)
            if step == 11:
                break
            epoch, place = divmod(step, len(x) // BATCH)
            rows = np.random.default_rng((seeds[n], epoch + 1)).permutation(len(x))[BATCH * place : BATCH * (place + 1)]
            h, z = [x[rows]], []
            for k, weight in enumerate(W):
                z.append(h[-1] @ weight.T + b[k])
                h.append(np.maximum(z[-1], 0) if relu and k < len(W) - 1 else z[-1])
            back = (h[-1] - x[rows]) / BATCH
            for k in range(len(W) - 1, -1, -1):
                slope, offset = back.T @ h[k], back.sum(0)
                back = back @ W[k]
                back = back * (z[k - 1] > 0) if relu and k else back
                W[k] = W[k] - rates[n] * slope
                b[k] = b[k] - rates[n] * offset
        for k in range(len(W)):
            np.testing.assert_allclose(ends.weights[k][n], W[k], atol=1e-12)
            np.testing.assert_allclose(ends.biases[k][n], b[k], atol=1e-12)


def test_neither_records_nor_other_runs_change_a_run():
    _, frames, losses, start = _problem(dtype=jnp.float32)
    reduced = weights_in_span(start, frames)
    plain, marked = _run(losses, reduced), _run(losses, reduced, record=np.arange(12))
    jax.tree.map(np.testing.assert_array_equal, marked.weights, plain.weights)
    assert marked.observed["output"].dtype == np.float32
    assert marked.observed["output"].shape == (3, 12, 2, DIM)
    alone = _run(losses[1:2], jax.tree.map(lambda leaf: leaf[1:2], reduced), seeds=(1,), record=np.arange(12))
    for name in ("output", "first"):
        np.testing.assert_allclose(alone.observed[name][0], marked.observed[name][1], atol=1e-6)


def test_a_call_compiles_one_program_and_none_for_other_data_of_the_same_shapes():
    names = []

    def note(name, *_, fun_name="", **__):
        if name.endswith("backend_compile_duration"):
            names.append(fun_name)

    forget()
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for other in (1.0, 2.0):
            tasks, frames, _, start = _problem(dtype=jnp.float32)
            losses = [
                perceptron_loss(other * task.draw(1), frame, dtype=jnp.float32)
                for task, frame in zip(tasks, frames, strict=True)
            ]
            weights = weights_in_span(jax.tree.map(np.asarray, start), frames)
            names.clear()
            _run(losses, weights, learning_rate=0.01)
            assert len(names) == (1 if other == 1.0 else 0), names
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def test_one_loss_serves_all_runs_and_all_samples_at_once():
    _, frames, losses, start = _problem()
    reduced = weights_in_span(start, frames[0])
    shared = _run(losses[0], reduced, batch=None, seeds=None, steps=20)
    each = _run([losses[0]] * 3, reduced, batch=None, seeds=None, steps=20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), shared.weights, each.weights)
    at = jax.tree.map(lambda leaf: leaf[2], reduced)
    for _ in range(20):
        at = jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, at, jax.grad(losses[0])(at))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[2], b, atol=1e-12), shared.weights, at)


def _scaled(scale, weights):
    return scale * weights[0]


def test_any_sampled_loss_will_do():
    rng = np.random.default_rng(0)
    loss = LayeredLoss(rng.standard_normal((12, 3)), rng.standard_normal((12, 2)))  # of NumPy's arrays
    jnp_loss = jax.tree.map(jnp.asarray, loss)
    start = (jnp.asarray(rng.standard_normal((2, 4, 3))), jnp.asarray(rng.standard_normal((2, 2, 4))))
    run = sgd_batched(
        [loss, loss], start, steps=6, learning_rate=0.05, batch=12, seeds=(0, 1), record=np.array([3]),
        observe=[jax.tree_util.Partial(_scaled, jnp.asarray(scale)) for scale in (1.0, 2.0)],
    )  # fmt: skip
    whole = sgd_batched(
        loss, start, steps=6, learning_rate=0.05, record=np.arange(0), observe=lambda weights: jnp_loss(weights)
    )
    np.testing.assert_allclose(run.weights[0], whole.weights[0], atol=1e-12)
    np.testing.assert_allclose(run.observed[:, 0], np.array([1.0, 2.0])[:, None, None] * start[0], atol=1e-14)
    assert np.all(np.diff(whole.observed) < 0)


def _same(weights):
    return weights


class _Quartic(eqx.Module):
    scale: jax.Array

    def __call__(self, weights):
        return self.scale * jnp.sum(weights**4)


class _Quadratic(eqx.Module):
    scale: jax.Array

    def __call__(self, weights):
        return self.scale * jnp.sum(weights**2) / 2


def test_a_run_that_diverges_spoils_no_other():
    start = jnp.ones((3, 2))
    losses = [_Quartic(jnp.asarray(scale)) for scale in (0.1, 5.0, 0.2)]
    given = {"steps": 30, "learning_rate": 0.2, "record": np.arange(30), "observe": _same}
    run = sgd_batched(losses, start, throw=False, **given)
    with pytest.raises(BatchedFlowError, match="1 of 3 runs ended early: 1") as raised:
        sgd_batched(losses, start, **given)
    assert raised.value.result.failed == (1,)
    assert run.failed == (1,)
    assert [status.ok for status in run.statuses] == [True, False, True]
    assert "infinite or NaN between steps" in run.statuses[1].sentence
    assert np.isfinite(run.observed[[0, 2]]).all()
    assert np.isfinite(run.observed[1, 0]).all()
    assert np.isnan(run.observed[1, -1]).all()
    w = 1.0
    for _ in range(30):
        w -= 0.2 * 4 * 0.2 * w**3
    np.testing.assert_allclose(run.weights[2], w, rtol=1e-12)


def test_integers_of_runs_that_have_all_diverged_go_on():
    run = sgd_batched(
        _Quartic(jnp.asarray(5.0)), jnp.ones((2, 2)), steps=4000, learning_rate=0.2, record=np.arange(0, 4001, 100),
        observe=lambda weights: (weights, 3), throw=False,
    )  # fmt: skip
    assert run.failed == (0, 1)
    assert np.isnan(run.observed[0][:, -1]).all()
    assert np.all(run.observed[1] == 3)


def test_a_run_is_reported_from_the_first_record_that_is_not_finite():
    """By hand: (-2)^n, (-4)^n and (-8)^n overflow at steps 1024, 512 and 342."""
    scales, ends = (3.0, 5.0, 9.0), []
    for scale in scales:
        w, step = np.float64(1.0), 0
        with np.errstate(over="ignore"):
            while np.isfinite(w) and step < 2000:
                w, step = w - scale * w, step + 1
        ends.append(step)
    assert ends == [1024, 512, 342]
    losses, steps = [_Quadratic(jnp.asarray(scale)) for scale in (*scales, 0.5)], max(ends) + 600
    for record in (np.arange(steps), np.array([340, 1100])):
        run = sgd_batched(
            losses, jnp.ones((4, 1)), steps=steps, learning_rate=1.0, record=record, observe=_same, throw=False
        )
        for n, end in enumerate(ends):
            np.testing.assert_array_equal(np.isfinite(run.observed[n, :, 0]), run.steps < end)
            first = run.steps[run.steps >= end][0]
            before = run.steps[run.steps < end][-1]
            assert f"between steps {before} and {first}" in run.statuses[n].sentence
        assert run.statuses[3].ok
        assert np.isfinite(run.observed[3]).all()


def _decay(step):
    return 0.1 / jnp.asarray(1 + step, float)


@pytest.mark.parametrize("rate", [_decay, homogeneous_rate(0.1, 4)], ids=["schedule", "of the weights"])
def test_a_rate_that_changes_is_each_runs_own(rate):
    """At the number of the step, and at the weights: the runs take the steps of `sgd`, in every stretch."""
    start, loss = jnp.asarray([[1.0, 2.0], [0.5, -1.0]]), _Quartic(jnp.asarray(0.1))
    given = {"steps": 600, "learning_rate": rate, "record": np.array([3, 255, 257, 513]), "observe": _same}
    run = sgd_batched(loss, start, **given)
    for n in range(2):
        np.testing.assert_allclose(run.observed[n], sgd(loss, start[n], **given).observed, rtol=1e-12)


def test_a_learning_rate_past_the_edge_of_stability_is_refused():
    _, frames, losses, start = _problem()
    bounds = [loss.largest_learning_rate(weights_in_span(start, frames)) for loss in losses]
    assert max(bounds) > 1.2 * min(bounds)
    _run(losses, weights_in_span(start, frames), learning_rate=0.99 * min(bounds), steps=1)
    with pytest.raises(InputError, match=f"learning_rate must be at most {min(bounds):.6g}, .*settle at none"):
        _run(losses, weights_in_span(start, frames), learning_rate=1.01 * min(bounds), steps=1)
    _run(_problem(relu=True)[2], weights_in_span(start, frames), learning_rate=9.0, steps=0, relu=True)

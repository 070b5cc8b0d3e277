"""SGD with records: its steps against a plain loop, its records, its checkpoints, and its learning rates."""

import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.compiled_functions import compilations
from saddlescope._shared.errors import InputError
from saddlescope.flow import FlowError, geometric_steps, homogeneous_rate, sgd, sgd_batched
from saddlescope.flow.descent import loop
from saddlescope.models.deep import LayeredLoss, cross_entropy, layered_weights


def _problem(dtype=np.float32, samples=20, seed=0):
    rng = np.random.default_rng(seed)
    inputs = jnp.asarray(rng.standard_normal((samples, 4)), dtype)
    targets = jnp.asarray(np.eye(3)[rng.integers(3, size=samples)], dtype)
    return LayeredLoss(inputs, targets, cross_entropy), layered_weights(
        (4, 5, 5, 3), seed=1, deviation=0.5, dtype=dtype
    )


def _observe(weights):
    return {"weights": weights, "norms": jnp.stack([jnp.linalg.norm(weight) for weight in weights])}


def _run(loss, weights, *, steps=30, record=(), batched=False, **given):
    """Follow one run, or two at once with minibatches of their own."""
    given = {
        "learning_rate": homogeneous_rate(0.3, 3),
        "observe": _observe,
        "record": record if record is None else np.array(record, int),
    } | given
    if not batched:
        return sgd(loss, weights, steps=steps, **given)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), weights)
    return sgd_batched(loss, several, steps=steps, **{"seeds": (0, 1)} | given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_are_those_of_a_plain_loop(dtype):
    """With ReLU and cross-entropy by hand, the learning rate from the weights before the step."""
    loss, start = _problem(dtype)
    run = _run(loss, start, batch=6, seed=3, steps=35, record=[1, 17])
    x, t = np.asarray(loss.inputs, float), np.asarray(loss.targets, float)
    w, seen = [np.asarray(weight, float) for weight in start], []
    for step in range(36):
        if step in (0, 1, 17, 35):
            seen.append([weight.copy() for weight in w])
        epoch, place = divmod(step, 3)
        order = np.asarray(jax.random.permutation(jax.random.fold_in(jax.random.key(3), epoch), 20))
        rows = order[6 * place : 6 * place + 6]
        z = [x[rows].T]
        for weight in w:
            z.append(weight @ (z[-1] if len(z) == 1 else np.maximum(z[-1], 0)))
        p = np.exp(z[-1]) / np.exp(z[-1]).sum(0)
        back, grads = (p - t[rows].T) / 6, []
        for layer in (2, 1, 0):
            grads.append(back @ (np.maximum(z[layer], 0) if layer else z[0]).T)
            back = (w[layer].T @ back) * (z[layer] > 0)
        rate = 0.3 / np.sqrt(sum(np.sum(weight**2) for weight in w))
        w = [weight - rate * grad for weight, grad in zip(w, grads[::-1], strict=True)]
    np.testing.assert_array_equal(run.steps, [0, 1, 17, 35])
    for layer in range(3):
        wanted = np.stack([weights[layer] for weights in seen])
        assert run.observed["weights"][layer].dtype == dtype
        np.testing.assert_allclose(run.observed["weights"][layer], wanted, atol=2e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_array_equal(run.weights[layer], run.observed["weights"][layer][-1])


def test_neither_records_nor_stretches_change_the_steps(monkeypatch):
    """Records within, at the end of, and beyond an epoch of 3 steps; and the loop called for one step at a time."""
    loss, start = _problem()
    plain = _run(loss, start, batch=6)
    marked = _run(loss, start, batch=6, record=[2, 3, 4, 9, 16, 29])
    monkeypatch.setattr("saddlescope.flow.descent.loop._STRETCH", 0.0)
    single = _run(loss, start, batch=6, record=[16])
    for run in (marked, single):
        np.testing.assert_array_equal(run.weights[0], plain.weights[0])
    np.testing.assert_array_equal(single.observed["norms"][1], marked.observed["norms"][5])


def test_the_learning_rate_makes_descent_blind_to_the_scale():
    """On a homogeneous loss, c theta takes c times the path of theta, at any scale that float64 can hold."""
    inputs = jnp.asarray(np.random.default_rng(0).standard_normal((4, 12)))

    def loss(weights):
        z = inputs
        for weight in weights:
            z = weight @ jax.nn.relu(z)
        return jnp.sum(z * jnp.cos(jnp.arange(36.0)).reshape(3, 12)) / 12

    start = layered_weights((4, 6, 6, 3), seed=2)
    runs = {
        scale: _run(loss, [scale * w for w in start], learning_rate=homogeneous_rate(0.1, 3), steps=60)
        for scale in (1.0, 1e-40, 1e30)
    }
    assert runs[1.0].observed["norms"][-1, 1] > 1.1 * runs[1.0].observed["norms"][0, 1]
    for scale, run in runs.items():
        np.testing.assert_allclose(run.weights[1] / scale, runs[1.0].weights[1], rtol=1e-9)


def test_the_rate_is_the_papers():
    weights = (jnp.ones((2, 3)), 2 * jnp.ones((1, 2)))  # |theta|^2 = 14
    np.testing.assert_allclose(homogeneous_rate(10.0, 6).at(0, weights), 10 / 14**2, rtol=1e-15)
    np.testing.assert_allclose(homogeneous_rate(10.0, 4).at(0, weights), 10 / 14, rtol=1e-15)
    np.testing.assert_allclose(homogeneous_rate(0.1, 2).at(0, weights), 0.1, rtol=1e-15)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("killed_after", [1, 12])
def test_a_run_goes_on_to_the_same_result(tmp_path, monkeypatch, killed_after, batched):
    loss, start = _problem()
    given = {"batch": 6, "record": np.arange(0, 30, 4), "batched": batched}
    whole = _run(loss, start, **given)
    monkeypatch.setattr("saddlescope.flow.descent.loop._CHECKPOINT_EVERY", 0.0)
    monkeypatch.setattr("saddlescope.flow.descent.loop._STRETCH", 0.0)

    class KilledError(Exception):
        pass

    def kill(fraction, note):
        if fraction >= killed_after / 30:
            raise KilledError

    with pytest.raises(KilledError):
        _run(loss, start, checkpoint=tmp_path / "run.npz", report=kill, **given)
    notes = []
    resumed = _run(loss, start, checkpoint=tmp_path / "run.npz", report=lambda _, note: notes.append(note), **given)
    assert notes[0].startswith(f"step {killed_after} ")
    for name in ("weights", "observed", "steps"):
        for ours, theirs in zip(*(jax.tree.leaves(getattr(run, name)) for run in (resumed, whole)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    notes.clear()
    again = _run(loss, start, checkpoint=tmp_path / "run.npz", report=lambda *a: notes.append(a), **given)
    assert not notes  # it was finished
    np.testing.assert_array_equal(again.weights[2], whole.weights[2])
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    loss, start = _problem()
    path = tmp_path / "run.npz"
    _run(loss, start, batch=6, checkpoint=path)
    kept = path.read_bytes()
    others = (
        {"seed": 1}, {"batch": 5}, {"steps": 31}, {"record": [7]}, {"learning_rate": homogeneous_rate(0.31, 3)},
        {"start": (*start[:2], start[2] + 1e-3)}, {"loss": _problem(seed=5)[0]},
        {"observe": lambda weights: {"first": weights[0]}},
    )  # fmt: skip
    for other in others:
        given = {"batch": 6} | other
        with pytest.raises(InputError, match=r"checkpoint must be of"):
            _run(given.pop("loss", loss), given.pop("start", start), checkpoint=path, **given)
    assert path.read_bytes() == kept
    _run(loss, start, batch=6, batched=True, checkpoint=tmp_path / "two.npz")
    for other in ({"seeds": (1, 0)}, {"learning_rate": 0.11}, {"record": [5]}):
        with pytest.raises(InputError, match="checkpoint must be of the same run"):
            _run(loss, start, batched=True, checkpoint=tmp_path / "two.npz", **{"batch": 6} | other)
    path.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(InputError, match="complete checkpoint"):
        _run(loss, start, batch=6, checkpoint=path)
    damaged = bytearray(kept)
    damaged[len(kept) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="checkpoint must be"):
        _run(loss, start, batch=6, checkpoint=path)


def test_divergence_is_reported_and_what_was_seen_is_kept():
    _, start = _problem()
    given = {"learning_rate": 10.0, "record": np.arange(30)}
    with pytest.raises(FlowError, match="smaller learning rate") as raised:
        _run(lambda weights: jnp.sum(weights[0] ** 4), start, **given)
    run = _run(lambda weights: jnp.sum(weights[0] ** 4), start, throw=False, **given)
    assert not run.status.ok
    assert "infinite or NaN between steps" in run.status.sentence
    assert 1 <= len(run.steps) < 31
    seen = run.observed["weights"][0]
    assert len(seen) == len(run.steps) == len(raised.value.result.steps)
    assert np.isfinite(seen).all()


def test_a_diverged_run_is_not_taken_further(tmp_path):
    _, start = _problem()
    given = {"learning_rate": 1.0, "steps": 4000, "record": np.arange(0, 4001, 300), "throw": False}
    steps = []
    for _ in range(3):
        _run(lambda w: jnp.sum(w[0] ** 4), start, checkpoint=tmp_path / "run", **given)
        with np.load(tmp_path / "run") as stored:
            steps.append(int(stored["step"]))
    assert steps[0] == steps[1] == steps[2] < 4000


def test_few_numbers_of_records_are_compiled():
    loss, start = _problem()
    before = compilations(loop._stretch_of_one)
    for steps in range(20, 32):
        _run(loss, start, steps=steps, record=np.arange(steps + 1))
    assert compilations(loop._stretch_of_one) - before <= 1


def test_the_first_stretch_is_short_and_numbers_are_observed():
    loss, start = _problem()
    notes = []
    run = _run(
        loss, start, steps=300, record=[300], observe=lambda w: (1.0, 2, True, w[0]), report=lambda *x: notes.append(x)
    )
    assert [note for _, note in notes[:2]] == ["step 0 of 300", "step 1 of 300"]
    assert [len(leaf) for leaf in run.observed] == [2] * 4


def test_records_are_geometric_by_default():
    loss, start = _problem()
    for batched in (False, True):
        run = _run(loss, start, record=None, batched=batched, batch=6)
        np.testing.assert_array_equal(run.steps, geometric_steps(30))


def _decay(step):
    return 0.2 / jnp.asarray(1 + step, float)


@pytest.mark.parametrize("batch", [None, 6])
def test_a_schedule_is_evaluated_at_the_number_of_the_step(batch):
    """A constant one takes the steps of the number; a decaying one those of a plain loop, across epochs and records."""
    loss, start = _problem(np.float64)
    given = {"batch": batch, "seed": 3, "steps": 11, "record": [4, 5, 9]}
    number, constant = (_run(loss, start, learning_rate=rate, **given) for rate in (0.2, lambda step: 0.2))
    for ours, theirs in zip(constant.weights, number.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    run = _run(loss, start, learning_rate=_decay, **given)
    weights = tuple(start)
    for step in range(11):
        here = loss
        if batch is not None:
            epoch, place = divmod(step, 3)
            order = jax.random.permutation(jax.random.fold_in(jax.random.key(3), epoch), 20)
            here = loss.batch(order[6 * place : 6 * place + 6])
        gradient = jax.grad(here)(weights)
        weights = tuple(leaf - 0.2 / (1 + step) * slope for leaf, slope in zip(weights, gradient, strict=True))
    for ours, theirs in zip(run.weights, weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-13)


def test_a_checkpoint_of_another_schedule_is_refused(tmp_path):
    loss, start = _problem()
    given = {"checkpoint": tmp_path / "run.npz", "batch": 6}
    _run(loss, start, learning_rate=_decay, **given)
    with pytest.raises(InputError, match="checkpoint must be of the same run"):
        _run(loss, start, learning_rate=lambda step: _decay(2 * step), **given)


def test_float32_is_kept_in_either_mode_of_jax():
    loss, start = _problem()
    with jax.enable_x64(False):
        single = _run(loss, start, batch=6)
    np.testing.assert_array_equal(single.weights[0], _run(loss, start, batch=6).weights[0])


def test_steps_are_geometric_then_even():
    np.testing.assert_array_equal(geometric_steps(10, per_doubling=1), [0, 1, 2, 4, 8, 10])
    np.testing.assert_array_equal(geometric_steps(16, per_doubling=1, every=5), [0, 1, 2, 4, 5, 8, 10, 15, 16])
    np.testing.assert_array_equal(geometric_steps(0), [0])
    np.testing.assert_array_equal(geometric_steps(1), [0, 1])
    record = geometric_steps(1_000_000, per_doubling=4)
    assert record[0] == 0
    assert record[-1] == 1_000_000
    late = record[record > 100]
    assert np.all(late[1:-1] / late[:-2] < 2**0.25 * 1.01)


@pytest.mark.slow
def test_a_killed_process_leaves_a_checkpoint_that_serves(tmp_path):
    """SIGKILL at any moment, even while the checkpoint is written: it is written all the time."""
    script = textwrap.dedent(
        f"""
        import jax.numpy as jnp, numpy as np, pathlib, saddlescope.flow.descent.loop as loop
        from saddlescope.flow import sgd
        loop._CHECKPOINT_EVERY = loop._STRETCH = 0.0
        run = sgd(
            lambda w: jnp.sum(jnp.cos(w)), jnp.arange(400.0, dtype=jnp.float32), steps=5000,
            learning_rate=1e-3, record=np.arange(0, 5000, 7),
            observe=lambda w: w[:3], checkpoint=pathlib.Path({str(tmp_path / "run.npz")!r}),
        )
        np.save({str(tmp_path / "result.npy")!r}, run.observed)
        """
    )
    for delay in (0.05, 0.3, 0.5, 0.7):
        process = subprocess.Popen([sys.executable, "-c", script])
        before = (tmp_path / "run.npz").stat().st_mtime if (tmp_path / "run.npz").exists() else 0.0
        while not ((tmp_path / "run.npz").exists() and (tmp_path / "run.npz").stat().st_mtime > before):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    subprocess.run([sys.executable, "-c", script], check=True)
    resumed = np.load(tmp_path / "result.npy")
    for path in tmp_path.iterdir():
        path.unlink()
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_array_equal(resumed, np.load(tmp_path / "result.npy"))


def test_a_checkpoint_keeps_many_observables_in_their_order(tmp_path):
    """Of twelve, "record10" must not come before "record2"."""

    def run():
        return sgd(
            lambda w: jnp.sum(w**2),
            jnp.arange(1.0, 13.0),
            steps=3,
            learning_rate=0.1,
            record=np.arange(3),
            observe=lambda w: [w[n] for n in range(12)],
            checkpoint=tmp_path / "run.npz",
        )

    first, again = run(), run()
    np.testing.assert_array_equal([record[0] for record in first.observed], np.arange(1.0, 13.0))
    np.testing.assert_array_equal(again.observed, first.observed)

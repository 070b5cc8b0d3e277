"""Entries of sums of units: closed forms, null runs, and the parts of their measures."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects
from saddlescope.papers.beyond.modular_addition import plateaus
from saddlescope.papers.beyond.relu_kinks import distinct_kinks
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, slopes
from saddlescope.papers.beyond.shared.units import ConvolutionLoss, LinearKernel, context_loss
from saddlescope.reproduction import find_entry
from saddlescope.theory import low_rank_learning

SCALES = np.array([-8.0, -32.0, -128.0])


def compared(error, seeds=3):
    """Return a run of two stages whose times are off by `error` of log(1/α), and whose levels are right."""
    log = -SCALES * np.log(10)
    predicted = np.array([1.0, 2.0])
    times = predicted + error(log)[:, None] * np.array([1.0, -2.0])
    one = xr.Dataset(
        {
            "predicted_time": ("stage", predicted),
            "predicted_loss": ("stage", [0.5, 0.0]),
            "initial_loss": 1.0,
            "found_time": (("scale", "stage"), times),
            "found_loss": (("scale", "stage"), np.tile([0.5, 0.0], (3, 1))),
        },
        {"scale": SCALES, "stage": [1, 2]},
    )
    return xr.concat([one] * seeds, dim="seed")


@pytest.mark.parametrize("entry", ["beyond/diagonal-networks", "beyond/linear-networks"])
def test_errors_of_another_rate_are_not_taken_for_this_one(entry):
    (claim,) = (one for one in find_entry(entry).claims if one.name == "slope")
    assert claim.judge(compared(lambda log: 2 / log)).outcome == "agrees"
    for other in (lambda log: 2 / log**1.3, lambda log: 0.1 + 0 * log, lambda log: np.exp(-log / 20)):
        assert claim.judge(compared(other)).outcome == "differs"


def test_a_stage_that_the_flow_does_not_reach_decides_nothing(outcomes):
    run = compared(lambda log: 2 / log)
    run.found_time.values[1, -1, 1] = run.found_loss.values[1, -1, 1] = np.nan
    assert set(outcomes(find_entry("beyond/diagonal-networks"), run).values()) == {"undecided"}


def test_a_seed_with_fewer_stages_is_judged_by_its_own():
    run = compared(lambda log: 2 / log, seeds=2)
    run.predicted_time[1, 1] = run.predicted_loss[1, 1] = np.nan
    np.testing.assert_allclose(slopes(run), -1, atol=1e-9)


def test_stages_are_found_halfway_between_levels():
    learned = low_rank_learning(lambda B: 0.5 * jnp.sum((B[0] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2), [(2, 2)])
    t = np.linspace(0, 3, 3001)
    losses = 2.5 - 2 / (1 + np.exp(-200 * (t - 0.6))) - 0.5 / (1 + np.exp(-200 * (t - 1.1)))
    run = compare_stages(learned, {-8.0: SimpleNamespace(times=t, losses=losses)})
    np.testing.assert_allclose(run.found_time.values, [[0.6, 1.1]], atol=1e-6)
    np.testing.assert_allclose(run.found_loss.values, [[0.5, 0.0]], atol=1e-9)
    np.testing.assert_allclose(run.predicted_time.values, [0.5, 1.0], rtol=1e-8)


def test_the_loss_of_linear_attention_is_the_average_over_contexts():
    rng = np.random.default_rng(0)
    d, pairs, draws = 2, 5, 200_000
    covariance = np.array([[1.0, 0.3], [0.3, 0.5]])
    root = np.linalg.cholesky(covariance)
    F = np.array([[0.4, -0.2], [0.1, 0.6]])
    x, query = rng.standard_normal((draws, pairs, d)) @ root.T, rng.standard_normal((draws, d)) @ root.T
    w = rng.standard_normal((draws, d))
    beta = np.einsum("bni,bnj,bj->bi", x, x, w) / pairs
    errors = np.sum(w * query, 1) - np.einsum("bi,ij,bj->b", query, F, beta)
    sampled = errors**2 / 2
    second = covariance @ covariance * (1 + 1 / pairs) + np.trace(covariance) * covariance / pairs
    exact = context_loss(jnp.asarray(F), {"covariance": jnp.asarray(covariance), "second": jnp.asarray(second)})
    assert abs(sampled.mean() - float(exact)) < 4 * sampled.std() / np.sqrt(draws)


def test_predictions_have_their_closed_forms(quick_run):
    """Separate patches: 1 / σ; regression in context: levels; ReLU with a flat part: both sides of the teacher."""
    run = quick_run("beyond/convolution").run
    np.testing.assert_allclose(run.predicted_time, [[1 / 3, 1 / 1.5]] * 2, rtol=1e-8)
    np.testing.assert_allclose(run.predicted_loss, [[1.5**2 / 2, 0]] * 2, atol=1e-8)
    run, values = quick_run("beyond/linear-attention").run, np.array([2.0, 1.0])
    gains = values / (1 + (1 + values.sum() / values) / 16)
    np.testing.assert_allclose(run.predicted_loss, [(values.sum() - np.cumsum(gains)) / 2] * 2, rtol=1e-8)
    run = quick_run("beyond/relu-kinks").run
    for one in (run.isel(seed=k) for k in range(2)):
        x, y = one.x.values, one.target.values
        sides = np.stack([np.where(x > 0, y, 0), np.where(x < 0, y, 0)])
        rates = np.linalg.norm(sides @ np.stack([x, np.ones_like(x)], axis=1), axis=1) / len(x)
        np.testing.assert_allclose(one.predicted_time, np.sort(1 / rates), rtol=1e-7)
        np.testing.assert_allclose(one.predicted_loss, [np.mean(sides[np.argmin(rates)] ** 2) / 2, 0], atol=1e-8)


def test_features_in_any_order_are_not_taken_for_that_of_coefficients():
    def made(rng, *, ordered=False):
        times = rng.uniform(1, 50, (5, 3))
        return xr.Dataset({"half_time": (("seed", "frequency"), np.sort(times) if ordered else times)})

    assert_detects("beyond/modular-addition", "order", null=made, effect=lambda rng: made(rng, ordered=True))


def test_features_that_overlap_have_no_plateau_to_judge(quick_run, outcomes):
    run = quick_run("beyond/modular-addition").run.isel(seed=[0, 0, 0]).copy(deep=True)
    assert outcomes(find_entry("beyond/modular-addition"), run)["features"] == "agrees"
    run.found_level.values[1, 0] = np.nan
    assert outcomes(find_entry("beyond/modular-addition"), run)["features"] == "undecided"


def test_the_errors_of_the_features_add_up_to_the_loss_of_the_flow(quick_run):
    run = quick_run("beyond/modular-addition").run.isel(seed=0)
    left = ((1 - run.share) * run.coefficient**2 / 2).sum("frequency")
    np.testing.assert_allclose(left, run.whole_loss, atol=1e-8)
    np.testing.assert_allclose(run.whole_loss[0], 0.5, atol=1e-8)


def test_a_plateau_lies_between_the_end_of_a_feature_and_the_beginning_of_the_next():
    times = np.linspace(0.0, 9.0, 901)
    first, second = (np.clip(times - start, 0, 1) for start in (1.0, 5.0))
    losses = 1 - 0.75 * first - 0.25 * second
    np.testing.assert_allclose(plateaus(times, losses, np.stack([first, second])), [0.25, 0.0], atol=1e-12)
    together = plateaus(times, losses, np.stack([first, np.clip(times - 1.5, 0, 1)]))
    assert np.isnan(together[0])


def test_kinks_are_changes_of_slope_within_the_data():
    same = [[1.0, 2.0, -1.0], [-3.0, 1.0, -0.5]]  # a, w, b: both at 0.5
    outside, silent = [1.0, 1.0, 4.0], [1e-4, 1.0, 0.0]
    np.testing.assert_allclose(distinct_kinks(np.array([[1.0, -1.0, -2.0], *same, outside, silent])), [-2.0, 0.5])


def test_the_kernel_and_the_loss_of_all_kernels_are_torch_convolutions():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    kernels, length, width, stride, o = 3, 7, 3, 2, 2
    positions = (length - width) // stride + 1
    X, Y = rng.standard_normal((5, length)), rng.standard_normal((5, o))
    w, v = rng.standard_normal((kernels, width)), rng.standard_normal((kernels, o, positions))
    maps = torch.nn.functional.conv1d(torch.tensor(X)[:, None], torch.tensor(w)[:, None], stride=stride).numpy()
    expected = np.einsum("nmp,mop->no", maps, v)
    kernel = LinearKernel(stride)
    with jax.enable_x64(True):
        every = jax.vmap(jax.vmap(kernel, ({"kernel": 0, "out": 0}, None)), (None, 0))
        found = every({"kernel": jnp.asarray(w), "out": jnp.asarray(v)}, jnp.asarray(X)).sum(axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        patches = np.lib.stride_tricks.sliding_window_view(X, width, axis=1)[:, ::stride]
        loss = ConvolutionLoss(jnp.asarray(patches), jnp.asarray(Y))
        B = jnp.asarray(np.einsum("mk,mop->kop", w, v).reshape(width, -1))
        np.testing.assert_allclose(loss((B,)), 0.5 * np.mean(np.sum((expected - Y) ** 2, axis=1)), rtol=1e-12)


def _escape(power):
    scales = np.array([-1.5, -2.0, -2.5, -3.0])
    cases = [(3, 2), (4, 2), (3, 3), (4, 3)]
    times = [np.where(r == 2, -scales, 10.0 ** (-power(L, r) * scales)) for L, r in cases]
    return xr.Dataset(
        {"escape_time": (("case", "scale"), np.array(times))},
        {"scale": scales, "depth": ("case", [L for L, _ in cases]), "small": ("case", [r for _, r in cases])},
    )


def test_exponents_of_the_depth_are_not_those_of_small_layers(outcomes):
    entry = find_entry("beyond/escape-time")
    assert outcomes(entry, _escape(lambda L, r: r - 2.0)) == {"exponent": "agrees", "logarithm": "seen"}
    assert outcomes(entry, _escape(lambda L, r: L - 2.0)) == {"exponent": "differs", "logarithm": "seen"}

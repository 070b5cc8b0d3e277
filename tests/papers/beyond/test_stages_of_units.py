"""Entries of sums of units: spoilt runs refute their claims, and the loss of linear attention is an average."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond.modular_addition import _plateaus
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
            "difference": 0.0,
        },
        {"scale": SCALES, "stage": [1, 2]},
    )
    return xr.concat([one] * seeds, dim="seed")


def test_errors_that_fall_otherwise_refute_the_slope(outcomes):
    entry = find_entry("beyond/diagonal-networks")
    assert outcomes(entry, compared(lambda log: 2 / log))["slope"] == "reproduced"
    for other in (lambda log: 2 / log**1.3, lambda log: 0.1 + 0 * log, lambda log: np.exp(-log / 20)):
        assert outcomes(entry, compared(other))["slope"] == "refuted"


def test_a_stage_that_the_flow_misses_refutes_times_and_levels(outcomes):
    run = compared(lambda log: 2 / log)
    run.found_time.values[1, -1, 1] = run.found_loss.values[1, -1, 1] = np.nan
    found = outcomes(find_entry("beyond/diagonal-networks"), run)
    assert (found["slope"], found["levels"]) == ("refuted", "refuted")


def test_a_seed_with_fewer_stages_is_judged_by_its_own():
    run = compared(lambda log: 2 / log)
    run.predicted_time.values[:] = [1.0, 2.0]
    fewer = run.isel(seed=0).copy(deep=True)
    fewer.predicted_time[1] = fewer.predicted_loss[1] = np.nan
    both = xr.concat([run.isel(seed=0), fewer], dim="seed")
    np.testing.assert_allclose(slopes(both), -1, atol=1e-9)


def test_stages_are_found_halfway_between_levels():
    learned = low_rank_learning(lambda B: 0.5 * jnp.sum((B[0] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2), [(2, 2)])
    t = np.linspace(0, 3, 3001)
    losses = 2.5 - 2 / (1 + np.exp(-200 * (t - 0.6))) - 0.5 / (1 + np.exp(-200 * (t - 1.1)))
    run = compare_stages(learned, {-8.0: (t, losses)})
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


def wrong_mode(run):
    run.mode_error.values[0, 0] = 1e-6


def wrong_time(run):
    run.predicted_time.values[0, 0] *= 1 + 1e-6


def wrong_rank(run):
    run["rank"].values[0, -1, -1] += 1


def wrong_level(run):
    run.found_loss.values[0, -1, 0] += 1e-3 * float(run.initial_loss[0])


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [(wrong_mode, "modes"), (wrong_time, "closed-form"), (wrong_rank, "rank"), (wrong_level, "levels")],
)
def test_a_spoilt_run_of_linear_networks_refutes_the_claim(quick_run, outcomes, spoil, claim):
    entry = find_entry("beyond/linear-networks")
    run = quick_run("beyond/linear-networks").run.copy(deep=True)
    assert outcomes(entry, run)[claim] == "reproduced"
    spoil(run)
    assert outcomes(entry, run)[claim] == "refuted"


def wrong_kernels(run):
    run.kernels.values[1, -1, 0] += 1


def wrong_first_time(run):
    run.predicted_time.values[1, 0] *= 1 + 1e-6


def stage_too_few(run):
    run.predicted_loss.values[0, 1] = run.predicted_time.values[0, 1] = np.nan


@pytest.mark.parametrize(
    ("name", "spoil", "claim"),
    [
        ("convolution", wrong_kernels, "kernels"),
        ("convolution", wrong_time, "closed-form"),
        ("convolution", stage_too_few, "closed-form"),
        ("convolution-overlap", wrong_kernels, "kernels"),
        ("convolution-overlap", wrong_first_time, "first-time"),
        ("convolution-overlap", stage_too_few, "two-kernels"),
    ],
)
def test_a_spoilt_run_of_convolutions_refutes_the_claim(quick_run, outcomes, name, spoil, claim):
    entry = find_entry(f"beyond/{name}")
    run = quick_run(f"beyond/{name}").run.copy(deep=True)
    assert outcomes(entry, run)[claim] == "reproduced"
    spoil(run)
    assert outcomes(entry, run)[claim] == "refuted"


def features_swapped(run):
    run.half_time.values[1] = run.half_time.values[1, ::-1]


def feature_missing(run):
    run.half_time.values[1, -1] = np.nan


def no_plateau(run):
    run.found_level.values[1, 0] = np.nan


def late(run):
    run.found_time.values[1, -1, 0] *= 1.03


def other_level(run):
    run.found_loss.values[1, -1, 0] += 0.011 * float(run.initial_loss[1])


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (features_swapped, "order"),
        (feature_missing, "order"),
        (no_plateau, "features"),
        (late, "times"),
        (other_level, "levels"),
    ],
)
def test_a_spoilt_run_of_modular_addition_refutes_the_claim(quick_run, outcomes, spoil, claim):
    entry = find_entry("beyond/modular-addition")
    run = quick_run("beyond/modular-addition").run.isel(seed=[0, 0, 0]).copy(deep=True)
    assert outcomes(entry, run)[claim] == "reproduced"
    spoil(run)
    assert outcomes(entry, run)[claim] == "refuted"


def predicted_to_the_end():
    """Return the parts of a run that the claims on late stages read."""
    stage, seed = np.arange(1, 7), [0, 1, 2]
    times, losses = (np.tile(values, (3, 1)) for values in (stage.astype(float), 0.5 * (1 - stage / 6)))
    return xr.Dataset(
        {
            "predicted_time": (("seed", "stage"), times),
            "predicted_loss": (("seed", "stage"), losses),
            "found_time": (("seed", "scale", "stage"), times[:, None].copy()),
            "initial_loss": ("seed", np.full(3, 0.5)),
            "status": ("seed", np.array(["until"] * 3, dtype="<U12")),
        },
        {"stage": stage, "seed": seed, "scale": [-6.0]},
    )


def ended_early(run):
    run.predicted_loss.values[1, 2:] = run.predicted_time.values[1, 2:] = np.nan


def ended_at_no_minimum(run):
    run.status.values[1] = "no_minimum"


def later_than_late(run):
    run.found_time.values[1, 0, -1] *= 1.12


def ended_at_a_saddle(run):
    run.status.values[1] = "saddle"


@pytest.mark.parametrize(
    ("spoil", "claim", "outcome"),
    [
        (ended_early, "predicted", "refuted"),
        (ended_at_no_minimum, "predicted", "refuted"),
        (later_than_late, "later-times", "refuted"),
        (ended_at_a_saddle, "predicted", "undecided"),
    ],
)
def test_late_stages_of_modular_addition_are_judged(spoil, claim, outcome):
    (judged,) = (one for one in find_entry("beyond/modular-addition").claims if one.name == claim)
    run = predicted_to_the_end()
    assert judged.judge(run).outcome.value == "reproduced"
    spoil(run)
    assert judged.judge(run).outcome.value == outcome


def test_the_errors_of_the_features_add_up_to_the_loss_of_the_flow(quick_run):
    run = quick_run("beyond/modular-addition").run.isel(seed=0)
    left = ((1 - run.share) * run.coefficient**2 / 2).sum("frequency")
    np.testing.assert_allclose(left, run.whole_loss, atol=1e-8)
    np.testing.assert_allclose(run.whole_loss[0], 0.5, atol=1e-8)


def test_a_plateau_lies_between_the_end_of_a_feature_and_the_beginning_of_the_next():
    times = np.linspace(0.0, 9.0, 901)
    first, second = (np.clip(times - start, 0, 1) for start in (1.0, 5.0))
    losses = 1 - 0.75 * first - 0.25 * second
    np.testing.assert_allclose(_plateaus(times, losses, np.stack([first, second])), [0.25, 0.0], atol=1e-12)
    together = _plateaus(times, losses, np.stack([first, np.clip(times - 1.5, 0, 1)]))
    assert np.isnan(together[0])


def test_more_frequencies_than_there_are_is_one_sentence():
    with pytest.raises(InputError, match="coefficients must hold at most 3 values"):
        find_entry("beyond/modular-addition").configure("quick", {"coefficients": "4,3,2,1"})


def one_kink_more(run):
    run.flow_kinks.values[1, -1, 0] += 1


def kinks_astray(run):
    run.misplaced.values[0] = 1e-5


@pytest.mark.parametrize(
    ("spoil", "claim"), [(one_kink_more, "kinks"), (kinks_astray, "places"), (wrong_time, "closed-form")]
)
def test_a_spoilt_run_of_kinks_refutes_the_claim(quick_run, outcomes, spoil, claim):
    entry = find_entry("beyond/relu-kinks")
    run = quick_run("beyond/relu-kinks").run.copy(deep=True)
    assert outcomes(entry, run)[claim] == "reproduced"
    spoil(run)
    assert outcomes(entry, run)[claim] == "refuted"


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


def test_exponents_of_the_depth_refute_the_law_of_small_layers(outcomes):
    entry = find_entry("beyond/escape-time")
    assert set(outcomes(entry, _escape(lambda L, r: r - 2.0)).values()) == {"reproduced"}
    found = outcomes(entry, _escape(lambda L, r: L - 2.0))
    assert (found["exponent"], found["depth"], found["logarithm"]) == ("refuted", "refuted", "reproduced")


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("linear-networks", {"singular_values": "4,3,2,1"}, "singular_values must be at most 3"),
        ("escape-time", {"small": "6"}, "small must be at most the largest depth"),
        ("relu-neurons", {"samples": "5"}, "a multiple of 2"),
        ("relu-kinks", {"neurons": "5"}, "a multiple of 2"),
        ("convolution", {"width": "3"}, "singular_values must be at most 3"),
        ("convolution-overlap", {"width": "6"}, "positions must be at least width - 1 = 5"),
    ],
)
def test_values_out_of_range_are_refused_at_once(name, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        find_entry(f"beyond/{name}").configure("default", settings)

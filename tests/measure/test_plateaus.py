"""Plateaus: on staircases with known stages, by invariances, and on curves without stages."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from saddlescope._shared.errors import InputError
from saddlescope.measure import find_plateaus
from saddlescope.papers.deep_relu.deep_linear.synthetic_staircases import synthetic_run

SEEDS = range(50_000, 50_040)
T = np.linspace(0.0, 10.0, 401)


def found(run, losses=None):
    return find_plateaus(run.times, run.losses if losses is None else losses, run.singular_values, time_unit="t")


def steps(t, *at, rate=40.0):
    """Return logistic steps from 0 to 1, (len(t), len(at))."""
    return 1 / (1 + np.exp(-np.clip(rate * (np.asarray(t)[:, None] - np.array(at)), -500, 500)))


def of_losses(losses, t=None):
    t = np.arange(float(len(losses))) if t is None else t
    return find_plateaus(t, losses, [np.ones((len(losses), 2))] * 3, time_unit="t")


@pytest.mark.parametrize("geometric", [False, True])
@pytest.mark.parametrize(("noise", "bar"), [(0.0, 1.0), (1e-4, 0.97), (1e-3, 0.9)])
def test_synthetic_staircases_are_found(noise, bar, geometric):
    runs = [synthetic_run(seed, noise=noise, geometric=geometric) for seed in SEEDS]
    assert sum(run.matches(found(run)) for run in runs) >= bar * len(runs)


def test_a_wrong_staircase_is_not_called_right():
    run, other = (synthetic_run(seed, noise=0.0, geometric=False) for seed in (50_000, 50_001))
    assert run.matches(found(run))
    assert not run.matches(found(other))
    assert not run.matches(found(run, run.losses + 0.02 * run.range))
    wider = [np.hstack([s, s[:, -1:] + 1.0]) for s in run.singular_values]
    assert not run.matches(find_plateaus(run.times, run.losses, wider, time_unit="t"))


@pytest.mark.parametrize("seed", [50_002, 50_003, 50_004])
def test_units_of_loss_time_and_weights_do_not_matter(seed):
    run = synthetic_run(seed, noise=1e-3, geometric=False)
    one = found(run)
    other = find_plateaus(
        4.0 * run.times - 3.0,
        8.0 * run.losses + 2.0,
        [s[:, ::-1] * 2.0**k for k, s in enumerate(run.singular_values)],  # in any order
        time_unit="t",
    )
    assert other.layer_ranks == one.layer_ranks
    assert other.times == pytest.approx([4 * time - 3 for time in one.times], rel=1e-9)
    assert other.losses == pytest.approx([8 * loss + 2 for loss in one.losses], rel=1e-9)


def test_stages_have_all_attributes():
    learned = steps(T, 3.0, 6.0)
    staircase = find_plateaus(
        T, 2.0 - learned @ [1.5, 0.5], [np.hstack([learned, learned]), learned, learned], time_unit="s"
    )
    assert staircase.time_unit == "s"
    assert staircase.times == pytest.approx((3.0, 6.0), abs=1e-6)
    assert staircase.losses == pytest.approx((2.0, 0.5, 0.0), abs=1e-6)
    assert staircase.layer_ranks == ((0, 0, 0), (2, 1, 1), (4, 2, 2))
    assert staircase.ranks == (0, 1, 2)
    assert (staircase.stages[0].start, staircase.stages[-1].end) == (0.0, 10.0)
    assert all(stage.support is None for stage in staircase.stages)


def test_a_drop_between_two_samples_is_found():
    t = np.arange(40.0)
    assert of_losses(np.where(t < 20, 1.0, 0.0)).times == pytest.approx((19.5,), abs=0.5)


@pytest.mark.parametrize(
    "losses",
    [
        np.ones(200),
        np.linspace(1.0, 0.0, 200),
        np.linspace(0.0, 1.0, 200),
        np.exp(-np.arange(200.0) / 20),
        1 / (1 + np.arange(200.0)),
        np.random.default_rng(0).standard_normal(200),
    ],
)
def test_losses_without_plateaus_have_one_stage(losses):
    assert len(of_losses(losses)) == 1


def test_slow_fluctuations_are_noise():
    draw = np.random.default_rng(1)
    wander = np.zeros(400)
    for k in range(1, 400):
        wander[k] = 0.9 * wander[k - 1] + draw.standard_normal()
    assert len(of_losses(steps(-T, -5.0)[:400, 0] + 0.003 * wander)) == 2


def test_noise_of_the_later_part_counts():
    quiet, noisy = np.ones(300), 0.02 * np.random.default_rng(2).standard_normal(100)
    assert len(of_losses(np.concatenate([quiet, noisy]))) == 2


def test_single_outliers_are_ignored():
    losses = 1.0 - steps(T, 5.0)[:, 0]
    losses[[50, 120, 300]] += [3.0, 0.5, 2.0]
    staircase = of_losses(losses, T)
    assert staircase.times == pytest.approx((5.0,), abs=0.05)
    assert staircase.losses == pytest.approx((1.0, 0.0), abs=1e-6)


def test_small_drops_and_shallow_ones_are_no_stages():
    small = 1.0 - 0.99 * steps(T, 3.0)[:, 0] - 0.01 * steps(T, 7.0)[:, 0]
    assert len(of_losses(small, T)) == 2
    shallow = np.interp(T, [0, 4, 6, 10], [1.0, 0.8, 0.2, 0.0])  # six times as fast between
    assert len(of_losses(shallow, T)) == 1
    s = [np.ones((len(T), 1))]
    assert len(find_plateaus(T, small, s, time_unit="t", min_drop=0.005)) == 3
    assert len(find_plateaus(T, shallow, s, time_unit="t", contrast=2.0)) == 2


def test_a_drop_under_way_at_the_end_belongs_to_its_stage():
    early = T < 7.0
    losses = 2.0 - steps(T, 3.0, 7.0).sum(axis=1)
    assert len(of_losses(losses, T)) == 3
    assert len(of_losses(losses[early], T[early])) == 2


def ranks(values):
    """Return the ranks on the two plateaus of a loss that drops at 5."""
    staircase = find_plateaus(T, 1.0 - steps(T, 5.0)[:, 0], [values], time_unit="t")
    return tuple(rank for (rank,) in staircase.layer_ranks)


def test_growing_directions_are_not_learned_on_the_plateau():
    learned = steps(T, 5.0)[:, 0]
    growing = np.minimum(1e-3 * np.exp(0.8 * T), 1.0)  # a tenth at 5.8, a half at 7.8
    assert ranks(np.stack([learned, growing], axis=1)) == (0, 1)
    assert ranks(np.stack([learned, 0.5 * learned], axis=1)) == (0, 2)
    norm = 1.0 + np.maximum(T - 5.0, 0.0)  # all grow alike
    assert ranks(np.stack([norm * learned, 0.5 * norm * learned], axis=1)) == (0, 2)


def test_neither_the_bulk_nor_small_values_count():
    learned = steps(T, 5.0)[:, 0]
    bulk = np.full_like(T, 0.3)
    assert ranks(np.stack([0.3 + learned, bulk, bulk], axis=1)) == (0, 1)
    assert ranks(np.stack([learned, 0.05 * learned], axis=1)) == (0, 1)
    assert ranks(np.zeros((len(T), 2))) == (0, 0)


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray, torch.from_numpy, list])
def test_arrays_of_any_library(of):
    learned = steps(T, 4.0)
    staircase = find_plateaus(of(T), of(1.0 - learned[:, 0]), [of(learned)], time_unit="t")
    assert staircase.times == pytest.approx((4.0,), abs=1e-5)


t, s = np.arange(6.0), np.ones((6, 2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: find_plateaus(t[::-1], t, [s], time_unit="t"), "times must be at least 5 strictly increasing"),
        (lambda: find_plateaus(t[:4], t[:4], [s[:4]], time_unit="t"), r"at least 5 .* got shape \(4,\)"),
        (lambda: find_plateaus(t, t[:5], [s], time_unit="t"), r"losses must have the shape of times, \(6,\)"),
        (lambda: find_plateaus(t, t * np.nan, [s], time_unit="t"), "losses must be finite"),
        (lambda: find_plateaus(t, t, [], time_unit="t"), "singular_values must have one array per layer; got none"),
        (lambda: find_plateaus(t, t, [s, s[:5]], time_unit="t"), r"singular_values\[1\] must have shape \(6, r\)"),
        (lambda: find_plateaus(t, t, [s[:, 0]], time_unit="t"), r"singular_values\[0\] must have shape \(6, r\)"),
        (lambda: find_plateaus(t, t, [-s], time_unit="t"), r"singular_values\[0\] must be at least 0; got -1.0"),
        (lambda: find_plateaus(t, t, [s * np.inf], time_unit="t"), r"singular_values\[0\] must be finite"),
        (lambda: find_plateaus(t, t, [s], time_unit="t", contrast=1.0), "contrast must be greater than 1"),
        (lambda: find_plateaus(t, t, [s], time_unit="t", min_drop=0.0), "min_drop must be between 0 and 1"),
        (lambda: find_plateaus(t, t, [s], time_unit="t", share=1.0), "share must be between 0 and 1"),
        (lambda: find_plateaus(t, t, [s], time_unit="t", settled=2.0), "settled must be between 0 and 1"),
        (lambda: find_plateaus(t, t, [s], time_unit="t", margin=0.5), "margin must be at least 1"),
    ],
)
def test_invalid_input_raises(call, says):
    with pytest.raises(InputError, match=says):
        call()

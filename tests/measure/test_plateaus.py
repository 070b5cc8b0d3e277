"""Plateaus and drops: on synthetic curves with known ones and without any, and by laws of units and order."""

import runpy
from pathlib import Path

import jax.numpy as jnp
import loss_curves
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.measure import find_plateaus

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
synthetic_run = runpy.run_path(str(BENCHMARKS / "synthetic_staircases.py"))["synthetic_run"]
SEEDS = range(50_000, 50_040)
T = np.linspace(0.0, 10.0, 401)


def found(run, losses=None):
    losses = run.losses if losses is None else losses
    return find_plateaus(losses, steps=run.times, singular_values=run.singular_values).staircase


def steps(t, *at, rate=40.0):
    """Return logistic steps from 0 to 1, (len(t), len(at))."""
    return 1 / (1 + np.exp(-np.clip(rate * (np.asarray(t)[:, None] - np.array(at)), -500, 500)))


def of_losses(losses, t=None):
    """Return the staircase of a record with singular values."""
    return find_plateaus(losses, steps=t, singular_values=[np.ones((len(losses), 2))] * 3).staircase


def drops(losses, t=None):
    return [drop.step for drop in find_plateaus(losses, steps=t).drops]


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
    assert not run.matches(find_plateaus(run.losses, steps=run.times, singular_values=wider).staircase)


@pytest.mark.parametrize("seed", [50_002, 50_003, 50_004])
def test_units_of_loss_time_and_weights_do_not_matter_to_ranks(seed):
    run = synthetic_run(seed, noise=1e-3, geometric=False)
    one = found(run)
    other = find_plateaus(
        8.0 * run.losses + 2.0,
        steps=4.0 * run.times - 3.0,
        singular_values=[s[:, ::-1] * 2.0**k for k, s in enumerate(run.singular_values)],  # in any order
    ).staircase
    assert other.layer_ranks == one.layer_ranks
    assert other.times == pytest.approx([4 * time - 3 for time in one.times], rel=1e-9)
    assert other.losses == pytest.approx([8 * loss + 2 for loss in one.losses], rel=1e-9)


def false_alarms(seeds):
    curves = map(loss_curves.power_law, seeds)
    return sum(bool(find_plateaus(losses, steps=t).drops) for t, losses in curves)


def share_of_staircases_found(seeds):
    curves = [loss_curves.staircase(seed) for seed in seeds]
    return np.mean([one.is_found(find_plateaus(one.losses, steps=one.steps).drops) for one in curves])


@pytest.mark.parametrize("geometric", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_losses_alone_show_synthetic_staircases_without_noise_as_well_as_with_a_little(noise, geometric):
    """A steady fall to 0 ends these records: its logarithm falls ever faster, which is no drop."""
    runs = [synthetic_run(seed, noise=noise, geometric=geometric) for seed in SEEDS]
    times = [np.array(drops(run.losses, run.times)) for run in runs]
    right = [
        len(at) == len(run.drops) and np.all((run.early <= at) & (at <= run.late))
        for run, at in zip(runs, times, strict=True)
    ]
    assert np.mean(right) >= 0.9


def test_power_laws_in_noise_have_no_drops():
    assert false_alarms(range(1_000, 1_040)) <= 4


def test_drops_of_staircases_with_noise_slopes_and_spikes_are_found():
    assert share_of_staircases_found(range(2_000, 2_020)) >= 0.7


@pytest.mark.slow
def test_at_most_a_twentieth_of_a_thousand_power_laws_has_a_drop():
    assert false_alarms(range(10_000, 11_000)) <= 50


@pytest.mark.slow
def test_most_of_200_staircases_are_found():
    assert share_of_staircases_found(range(20_000, 20_200)) >= 0.75


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_units_of_loss_and_steps_do_not_matter(seed):
    one = loss_curves.staircase(seed)
    plain = find_plateaus(one.losses, steps=one.steps)
    other = find_plateaus(2.0**900 * one.losses, steps=2.0**-30 * one.steps)
    for mine, theirs in zip(plain.drops, other.drops, strict=True):
        assert theirs.step == pytest.approx(2.0**-30 * mine.step, rel=1e-9)
        assert theirs.size == pytest.approx(2.0**900 * mine.size, rel=1e-9)
        assert theirs.certainty == mine.certainty


def test_a_reversed_record_only_rises():
    losses = 2.0 - steps(T, 3.0, 6.0).sum(axis=1)
    assert drops(losses, T) == pytest.approx([3.0, 6.0], abs=0.05)
    back = find_plateaus(losses[::-1], steps=T)
    assert back.drops == ()
    assert {rise.kind for rise in back.rises} <= {"initial rise", "divergence", "lost progress"}
    assert back.rises


def test_drops_and_plateaus_have_all_attributes():
    result = find_plateaus(2.0 - steps(T, 3.0, 6.0) @ [1.5, 0.5], steps=T)
    first, second = result.drops
    assert first.begin < first.earliest <= first.latest < first.end
    assert (first.size, second.size) == pytest.approx((1.5, 0.5), rel=0.2)
    assert first.certainty == second.certainty == 1.0
    assert [one.loss for one in result.plateaus] == pytest.approx([2.0, 0.5, 0.0], abs=1e-3)
    assert result.plateaus[1].begin == first.end
    assert (result.plateaus[0].begin, result.plateaus[-1].end) == (0.0, 10.0)
    assert result.to_dict()["drops"][0]["step"] == first.step
    assert "drop" in str(result)
    with pytest.raises(InputError, match="pass singular_values"):
        _ = result.staircase


def test_a_drop_between_two_records_is_found():
    losses = np.where(np.arange(40) < 20, 1.0, 0.0)
    assert drops(losses) == pytest.approx([19.5], abs=0.5)
    assert of_losses(losses).times == pytest.approx((19.5,), abs=0.5)


@pytest.mark.parametrize(
    "losses",
    [
        np.ones(200),
        np.linspace(1.0, 0.0, 200),
        np.linspace(0.0, 1.0, 200),
        np.exp(-np.arange(200.0) / 20),
        1 / (1 + np.arange(200.0)),
        np.random.default_rng(0).standard_normal(200),
        1 + 0.5 * np.sin(np.arange(400) / 10),
    ],
)
def test_losses_without_plateaus_have_no_drop(losses):
    assert drops(losses) == []
    assert len(of_losses(losses)) == 1


def test_slow_fluctuations_are_noise():
    draw = np.random.default_rng(1)
    wander = np.zeros(400)
    for k in range(1, 400):
        wander[k] = 0.9 * wander[k - 1] + draw.standard_normal()
    losses = steps(-T, -5.0)[:400, 0] + 0.003 * wander
    assert len(of_losses(losses)) == 2
    assert len(drops(losses)) == 1


def test_noise_of_the_later_part_counts():
    quiet, noisy = np.ones(300), 0.02 * np.random.default_rng(2).standard_normal(100)
    losses = np.concatenate([quiet, noisy])
    assert len(of_losses(losses)) == 2
    assert len(drops(losses)) == 1


def test_single_outliers_are_ignored():
    losses = 1.0 - steps(T, 5.0)[:, 0]
    losses[[50, 120, 300]] += [3.0, 0.5, 2.0]
    staircase = of_losses(losses, T)
    assert staircase.times == pytest.approx((5.0,), abs=0.05)
    assert staircase.losses == pytest.approx((1.0, 0.0), abs=1e-6)
    assert drops(losses, T) == pytest.approx([5.0], abs=0.05)


def test_small_drops_and_shallow_ones_are_no_stages():
    small = 1.0 - 0.99 * steps(T, 3.0)[:, 0] - 0.01 * steps(T, 7.0)[:, 0]
    assert len(of_losses(small, T)) == 2
    shallow = np.interp(T, [0, 4, 6, 10], [1.0, 0.8, 0.2, 0.0])  # six times as fast between
    assert len(of_losses(shallow, T)) == 1


def test_a_drop_under_way_at_the_end_belongs_to_its_stage():
    early = T < 7.0
    losses = 2.0 - steps(T, 3.0, 7.0).sum(axis=1)
    assert len(of_losses(losses, T)) == 3
    assert len(of_losses(losses[early], T[early])) == 2


def test_decades_are_found_in_the_logarithm():
    losses = 10 ** (3 - 3 * steps(T, 2.0)[:, 0] - 4 * steps(T, 5.0)[:, 0] - 4 * steps(T, 8.0)[:, 0])
    result = find_plateaus(losses, steps=T)
    assert result.log_loss
    assert len(result.drops) == 3


def test_noise_is_local():
    """Four decades before a late oscillation."""
    t = np.arange(2000.0)
    losses = 1 - 0.9 * steps(t, 200.0, rate=0.2)[:, 0] + np.where(t > 1200, 0.06 * np.sin(t), 0.0)
    assert drops(losses, t) == pytest.approx([200.0], abs=10)


def test_spikes_are_named_and_no_stages():
    losses = 1.0 - steps(T, 5.0)[:, 0]
    for at in (50, 120, 300):
        losses[at : at + 12] += 2.0 * np.exp(-np.arange(12) / 4)
    result = find_plateaus(losses, steps=T)
    assert [drop.step for drop in result.drops] == pytest.approx([5.0], abs=0.05)
    assert [rise.kind for rise in result.rises] == ["spike"] * 3


def test_lost_progress_divergence_and_unfinished_drops_are_named():
    t = np.arange(1000.0)
    lost = find_plateaus(np.where(t < 200, 2.0, np.where(t < 500, 1.0, np.where(t < 800, 2.0, 0.5))))
    assert [drop.step for drop in lost.drops] == pytest.approx([200, 800], abs=5)
    assert [rise.kind for rise in lost.rises] == ["lost progress"]
    diverged = find_plateaus(np.where(t < 900, np.exp(-t / 300), 5.0))
    assert [rise.kind for rise in diverged.rises] == ["divergence"]
    blown_up = find_plateaus(np.where(t < 900, np.exp(-t / 300), np.nan))
    assert "diverged" in blown_up.remarks[0]
    losses = 2.0 - steps(T, 3.0, 9.95, rate=8.0).sum(axis=1)
    cut = find_plateaus(losses[T <= 10.0], steps=T)
    assert [drop.finished for drop in cut.drops] == [True, False]
    assert any("ends in a drop" in remark for remark in cut.remarks)


def test_an_initial_fall_is_no_plateau():
    losses = np.exp(-4 * T) + 1.0 - steps(T, 6.0)[:, 0]
    result = find_plateaus(losses, steps=T)
    assert len(result.drops) == 1
    assert 0.2 < result.plateaus[0].begin < 2.0


def ranks(values):
    """Return the ranks on the two plateaus of a loss that drops at 5."""
    staircase = find_plateaus(1.0 - steps(T, 5.0)[:, 0], steps=T, singular_values=[values]).staircase
    return tuple(rank for (rank,) in staircase.layer_ranks)


def test_layers_have_ranks_and_stages():
    learned = steps(T, 3.0, 6.0)
    spectra = [np.hstack([learned, learned]), learned, learned]
    result = find_plateaus(2.0 - learned @ [1.5, 0.5], steps=T, singular_values=spectra)
    staircase = result.staircase
    assert staircase.times == pytest.approx((3.0, 6.0), abs=1e-6)
    assert staircase.losses == pytest.approx((2.0, 0.5, 0.0), abs=1e-6)
    assert [one.loss for one in result.plateaus] == list(staircase.losses)
    assert staircase.layer_ranks == ((0, 0, 0), (2, 1, 1), (4, 2, 2))
    assert staircase.ranks == (0, 1, 2)
    assert (staircase.stages[0].start, staircase.stages[-1].end) == (0.0, 10.0)
    turned = find_plateaus(2.0 - learned @ [1.5, 0.5], steps=T, singular_values=[s[:, ::-1] for s in spectra])
    assert turned.staircase.layer_ranks == staircase.layer_ranks


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


@pytest.mark.parametrize(
    "of",
    [np.asarray, jnp.asarray, torch.from_numpy, list, lambda x: pd.Series(x, T), lambda x: xr.DataArray(x, {"t": T})],
)
def test_arrays_of_any_library(of):
    losses = of(1.0 - steps(T, 4.0)[:, 0])
    known = isinstance(losses, pd.Series | xr.DataArray)  # their index has the steps
    assert drops(losses, None if known else T) == pytest.approx([4.0], abs=1e-2)


def test_gaps_and_repeated_steps_are_read_as_what_they_are():
    losses = 1.0 - steps(T, 4.0)[:, 0]
    losses[::7] = np.nan
    result = find_plateaus(np.repeat(losses, 2), steps=np.repeat(T, 2))
    assert [drop.step for drop in result.drops] == pytest.approx([4.0], abs=0.05)
    assert len(result.remarks) == 2

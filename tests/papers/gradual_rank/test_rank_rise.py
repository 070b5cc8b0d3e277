"""A planted rise of rank above gradient noise is seen, and noise, shrinking ranks and single layers are not."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank.rank_rise.measures import (
    departures,
    distinct_rises,
    energy_rank,
    ranks_of,
    rises,
    upper_level,
)
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/rank-rise"
ENTRY = find_entry(NAME)
STEPS = np.unique(np.concatenate([np.geomspace(1, 1000, 20).astype(int), np.arange(1, 101) * 10]))
DIMS = ("seed", "step", "layer", "head", "product", "index")
SIZES = (2, len(STEPS), 4, 8, 2)
GRADUAL = [0.02, 0.3, 0.5, 0.7, 0.9]  # shares of training
CLAIMS = [f"rises-labels-{product}-{measure}" for product in ("KQ", "VO") for measure in ("stable", "energy")]


def walk(rng, *draws, rank=16):
    """Spectra of sums of random matrices of full rank: every singular value grows as the root of the step."""
    sizes = (*draws, *SIZES)
    top = np.sort(1 + 0.02 * rng.normal(size=(*sizes[:-4], 1, *sizes[-3:], rank)), axis=-1)[..., ::-1]
    levels = top * np.linspace(1, 0.1, rank)
    wobble = 1 + 0.01 * rng.normal(size=(*sizes, rank))
    return np.sqrt(STEPS / STEPS[-1])[:, None, None, None, None] * levels * wobble


def staircase(rng, onsets, layers=slice(None), rank=16):
    """Spectra in which, beside noise, large singular values appear one after the other at shares of training."""
    values = walk(rng, rank=rank)
    for k, onset in enumerate(onsets):
        rise = 10 / (1 + np.exp(-80 * (STEPS / STEPS[-1] - onset)))
        values[:, :, layers, ..., k] += (rise * (1 - 0.1 * k))[:, None, None, None]
    return np.sort(values, axis=-1)[..., ::-1]


def stored(spectra, noise):
    """A run as the entry stores it, of networks that learn."""
    coords = {"step": STEPS, "seed": [5, 6], "layer": [1, 2, 3, 4], "product": ["KQ", "VO"]}
    learned = xr.DataArray(spectra, coords, DIMS)
    null = xr.DataArray(noise, coords, ("draw", *DIMS))
    level = upper_level(null.isel(index=0).transpose("draw", "step", "seed", "layer", "head", "product").values)
    found = departures(STEPS.astype(float), learned.transpose("step", ...).values, level)
    counts = distinct_rises(found, float(STEPS[-1]))
    run = xr.Dataset({"labels_rank": ranks_of(learned), "noise_rank": ranks_of(null)}, attrs={"warmup": 30})
    run["labels_rises"] = (("seed", "layer", "head", "product"), counts)
    run["labels_train_loss"] = (("seed", "epoch"), [[2.3, 0.1], [2.3, 0.2]])
    return run


@pytest.fixture(scope="module")
def noise():
    return walk(np.random.default_rng(0), 20)


def judged(outcomes, spectra, noise):
    return outcomes(ENTRY, stored(spectra, noise))


def test_directions_that_appear_one_by_one_are_a_rise(noise, outcomes):
    found = judged(outcomes, staircase(np.random.default_rng(1), GRADUAL), noise)
    assert {found[claim] for claim in CLAIMS} == {"seen"}
    assert found["gradual-labels-KQ"] == found["gradual-labels-VO"] == "seen"


def half_of_the_layers_rise():
    """The median over heads has to rise whichever layer is left out."""
    half = staircase(np.random.default_rng(5), [0.02], layers=slice(0, 2))
    half[:, :, 2:] = staircase(np.random.default_rng(5), GRADUAL)[:, :, 2:]
    return half


@pytest.mark.parametrize(
    "spectra",
    [
        lambda: walk(np.random.default_rng(2)),
        lambda: staircase(np.random.default_rng(4), GRADUAL)[:, ::-1],  # the first direction outgrows the others
        half_of_the_layers_rise,
        lambda: np.broadcast_to(np.linspace(1, 0.1, 16), (*SIZES, 16)).copy(),
    ],
    ids=["noise", "fall", "half", "flat"],
)
def test_what_does_not_rise_above_noise(noise, outcomes, spectra):
    found = judged(outcomes, spectra(), noise)
    assert not {found[claim] for claim in CLAIMS} & {"seen"}


def test_directions_that_appear_at_once_are_no_gradual_rise(noise, outcomes):
    found = judged(outcomes, staircase(np.random.default_rng(3), [0.02] * 5), noise)
    assert found["gradual-labels-KQ"] == "not seen"


def test_a_rise_that_noise_has_too_does_not_count(outcomes):
    same = np.stack([staircase(np.random.default_rng(k), GRADUAL) for k in range(20, 40)])
    found = judged(outcomes, staircase(np.random.default_rng(6), GRADUAL), same)
    assert not {found[claim] for claim in CLAIMS} & {"seen"}


def test_runs_that_are_not_finished_are_undecided(noise):
    run = stored(staircase(np.random.default_rng(7), [0.02, 0.5]), noise).drop_vars("noise_rank")
    verdicts = {one.claim: one for one in ENTRY.judge(run)}
    assert verdicts["rises-labels-KQ-stable"].outcome == "undecided"
    assert verdicts["rises-labels-KQ-stable"].remark == "Runs not finished: noise."
    assert verdicts["rises-small-KQ-stable"].remark == "Runs not finished: small, small-noise."


def test_networks_that_did_not_learn_are_not_judged(noise, outcomes):
    run = stored(walk(np.random.default_rng(8)), noise)
    run.labels_train_loss.values[1, 1] = 2.0
    assert {found for claim, found in outcomes(ENTRY, run).items() if "labels" in claim} == {"not tested"}


def test_a_departure_is_the_step_of_growth_above_the_noise():
    steps = np.arange(1.0, 101.0)
    late = np.where(steps > 60, 1.0, 0.0)
    slow = 0.003 * steps  # 3 % of the largest in a tenth of training
    values = np.stack([np.ones_like(steps), late, slow], axis=-1)
    found = departures(steps, values, np.full(100, 0.2))
    np.testing.assert_array_equal(found, [1, 61, np.nan])
    assert distinct_rises(found, 100.0) == 2
    np.testing.assert_array_equal(departures(steps, values, np.full(100, 2.0)), np.full(3, np.nan))


def test_rises_within_a_tenth_of_training_are_one():
    found = np.array([[5.0, 10, 14, 40, 49, 51], [5.0, 16, 30, 41, 55, np.nan], [np.nan] * 6])
    np.testing.assert_array_equal(distinct_rises(found, 100.0), [3, 5, 0])


def test_the_energy_rank_is_interpolated():
    values = np.array([[1.0, 1, 1, 1], [3.0, 1, 0, 0], [2.0, 0, 0, 0], [0.0, 0, 0, 0]])
    np.testing.assert_allclose(energy_rank(values), [3.6, 1.0, 0.9, 0.0])


def test_the_baselines_are_warm_up_transient_and_minimum():
    rank = xr.DataArray([5.0, 2.0, 1.0, 3.0, 4.0], {"step": [1, 100, 150, 500, 1000]}, ["step"])
    assert [float(rises(rank, name, 100)) for name in ("warm-up", "transient", "minimum")] == [2, 3, 3]

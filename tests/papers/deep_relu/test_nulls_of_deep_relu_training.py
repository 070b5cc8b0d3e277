"""Statistics of trained ReLU networks do not find an effect in runs that have none."""

from functools import cache

import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects
from saddlescope.measure import find_plateaus

SEEDS = 9


def _ratio_run(draw, scale):
    """Seeds with three stages and geometric spectra, whose ratios s_(k+1) / s_k are random times `scale`."""
    ratios = np.clip(draw.uniform(0.15, 0.6, (SEEDS, 6, 9)) * scale, 0, 1)
    values = np.concatenate([np.ones((SEEDS, 6, 1)), np.cumprod(ratios, axis=2)], axis=2)
    ranks = np.array([0, 1, 2] + [-1] * 5)
    return xr.Dataset(
        {
            "singular_values": (("seed", "layer", "value", "step"), np.repeat(values[..., None], 3, axis=-1)),
            "stage_start": (("seed", "stage"), np.tile([0.0, 100.0, 200.0] + [np.nan] * 5, (SEEDS, 1))),
            "stage_layer_rank": (("seed", "stage", "layer"), np.tile(ranks[:, None], (SEEDS, 1, 6))),
            "stages_found": ("seed", np.full(SEEDS, 3)),
        },
        {"seed": range(SEEDS), "layer": 1 + np.arange(6), "value": 1 + np.arange(10), "step": [0, 150, 300]},
    )


def _scaled(layers=slice(None), value=0, factor=1.0, base=1.0):
    scale = np.full((6, 9), base)
    scale[layers, value] *= factor
    return lambda draw: _ratio_run(draw, scale)


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "null", "effect"),
    [
        ("deeper", _scaled(), _scaled(slice(3, 6), factor=0.4)),
        ("second", _scaled(), _scaled(value=1, factor=0.1)),
        ("dominant", _scaled(factor=1.6), _scaled(factor=0.5)),
    ],
)
def test_spectra_without_order(claim, null, effect):
    assert_detects("deep-relu/figure-1", claim, null=null, effect=effect)


def _path_run(draw, share, seeds):
    """Seeds of which this share, on average, passes through rank 1; the others go from 0 to 2."""
    run = _ratio_run(draw, 1.0).isel(seed=np.zeros(seeds, int)).assign_coords(seed=range(seeds))
    ranks = run.stage_layer_rank.values.copy()
    ranks[draw.random(seeds) > share, 1] = 2
    return run.assign(stage_layer_rank=(("seed", "stage", "layer"), ranks))


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(("entry", "claim", "seeds"), [("figure-1", "rise", 9), ("digits", "ranks", 9)])
def test_ranks_that_half_of_the_networks_have(entry, claim, seeds):
    assert_detects(
        f"deep-relu/{entry}",
        claim,
        null=lambda draw: _path_run(draw, 0.5, seeds),
        effect=lambda draw: _path_run(draw, 0.99, seeds),
    )


@cache
def _numbers_of_stages(drops):
    """Stages that the finder sees in noisy losses with this many smooth drops."""
    draw, step, found = np.random.default_rng(7), np.arange(1, 301.0), []
    for _ in range(40):
        at = np.sort(draw.uniform(60, 120, drops)) + 90 * np.arange(drops)
        width = draw.uniform(4, 10, drops)
        fallen = 1 / (1 + np.exp(-(step[:, None] - at) / width))
        loss = 2.3 - 2.0 * fallen.mean(axis=1) + 2e-3 * draw.standard_normal(len(step))
        spectrum = np.hstack([fallen + 0.05, np.full((len(step), 6 - drops), 0.05)])
        found.append(len(find_plateaus(loss, steps=step, singular_values=[np.sort(spectrum)[:, ::-1]] * 6).staircase))
    return np.array(found)


def _counted(drops):
    def run(draw):
        found = draw.choice(_numbers_of_stages(drops), SEEDS)
        run = _path_run(draw, 0.0, SEEDS)  # at rank 2 after the first drop, so that no seed counts as unfinished
        return run.assign(stages_found=("seed", found))

    return run


@pytest.mark.slow  # 200 draws of a long run
def test_saddles_of_a_single_drop():
    assert_detects("deep-relu/figure-1", "saddles", null=_counted(1), effect=_counted(2))


def _losses(draw, longest):
    """Losses of 8 seeds that fall at an uneven pace; the longest of 30 stretches is `longest` times as long."""
    runs = []
    for most in longest:
        stays = np.exp(0.7 * draw.standard_normal((8, 30)))
        stays[np.arange(8), draw.integers(1, 14, 8)] *= most
        time = np.hstack([np.zeros((8, 1)), np.cumsum(stays, axis=1)])
        step = np.linspace(0, 1, 301)
        runs.append([np.interp(step, one / one[-1], np.linspace(2.3, 0, 31)) for one in time])
    return step, np.array(runs)


def _depths(draw, longest, rank=None):
    step, losses = _losses(draw, longest)
    ranks = np.tile(np.array([0, 1, 2] + [-1] * 5)[:, None], (3, 8, 1, 6))
    if rank is not None:
        ranks[:, :, 1] = rank(draw)[None, :, None]
    return xr.Dataset(
        {
            "loss": (("network", "seed", "step"), losses),
            "stage_layer_rank": (("network", "seed", "stage", "layer"), ranks),
            "stage_start": (("network", "seed", "stage"), np.tile([0.0, 0.3, 0.6] + [np.nan] * 5, (3, 8, 1))),
            "stages_found": (("network", "seed"), np.full((3, 8), 3)),
        },
        {
            "network": ["depth 4, larger", "depth 4, smaller", "depth 6"],
            "depth": ("network", [4, 4, 6]),
            "seed": range(8),
            "layer": 1 + np.arange(6),
            "step": step,
        },
    )


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "effect"), [("depth", (1, 1, 60)), ("smaller-is-sharper", (1, 60, 1)), ("depth-needed", (1, 1, 1))]
)
def test_distinctness_of_losses_of_one_law(claim, effect):
    null = (1, 60, 1) if claim == "depth-needed" else (1, 1, 1)
    assert_detects(
        "deep-relu/figure-4",
        claim,
        null=lambda draw: _depths(draw, null),
        effect=lambda draw: _depths(draw, (8, 1, 1) if claim == "depth-needed" else effect),
    )


@pytest.mark.parametrize(("claim", "one", "other"), [("smaller-is-rank-one", 1, 3), ("larger-is-not", 3, 1)])
def test_first_ranks_that_half_of_the_networks_have(claim, one, other):
    def run(share):
        return lambda draw: _depths(draw, (1, 1, 1), lambda draw: np.where(draw.random(8) < share, one, other))

    assert_detects("deep-relu/figure-4", claim, null=run(0.5), effect=run(0.99))


def _passages(draw, trend):
    """Nine networks between two saddles, whose s_2 / s_1 changes by a random factor about `trend`."""
    growth = trend * np.exp(0.3 * draw.standard_normal((9, 6)))
    return xr.Dataset(
        {
            "stages_found": ("network", np.full(9, 3)),
            "stage_loss": (("network", "stage"), np.tile([2.0, 1.0, 0.0], (9, 1))),
            "loss": (("network", "mark"), np.tile([2.0, 1.8, 1.0], (9, 1))),
            "second_ratio": (
                ("network", "layer", "mark"),
                0.2 * np.stack([growth * 0 + 1, growth * 0 + 1, growth], -1),
            ),
            "depth": ("network", np.full(9, 6)),
        },
        {"layer": 1 + np.arange(6), "stage": range(3)},
    )


@pytest.mark.slow  # 200 draws of a long run
def test_ratios_without_a_trend():
    assert_detects(
        "deep-relu/conjecture-3",
        "sharper",
        null=lambda draw: _passages(draw, 1.0),
        effect=lambda draw: _passages(draw, 0.3),
    )


def _students(draw, shuffled):
    ranks = np.tile([0, 1, 2, 3], (12, 1))
    ranks = draw.permuted(ranks, axis=1) if shuffled else ranks
    loss = np.tile([2.0, 0.0], (12, 1))
    return xr.Dataset(
        {
            "stage_rank": (("network", "stage"), ranks),
            "task": ("network", ["separated"] * 12),
            "loss": (("network", "mark"), loss),
        }
    )


def test_ranks_in_random_order():
    assert_detects(
        "deep-relu/conjecture-4",
        "by-one",
        null=lambda draw: _students(draw, True),
        effect=lambda draw: _students(draw, False),
    )

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
            "accuracy": (("seed", "step"), np.ones((SEEDS, 3))),
        },
        {"seed": range(SEEDS), "layer": 1 + np.arange(6), "value": 1 + np.arange(10), "step": [0, 150, 300]},
    )


def _scaled(layers=slice(None), value=0, factor=1.0):
    scale = np.ones((6, 9))
    scale[layers, value] *= factor
    return lambda draw: _ratio_run(draw, scale)


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
        return _ratio_run(draw, 1.0).assign(stages_found=("seed", found))

    return run


def _losses(draw, longest):
    """Losses of 8 seeds that fall at an uneven pace; the longest of 30 stretches is `longest` times as long."""
    runs, step = [], np.linspace(0, 1, 301)
    for most in longest:
        stays = np.exp(0.7 * draw.standard_normal((8, 30)))
        stays[np.arange(8), draw.integers(1, 14, 8)] *= most
        time = np.hstack([np.zeros((8, 1)), np.cumsum(stays, axis=1)])
        runs.append([np.interp(step, one / one[-1], np.linspace(2.3, 0, 31)) for one in time])
    return step, np.array(runs)


def _depths(longest):
    def run(draw):
        step, losses = _losses(draw, longest)
        ranks = np.tile(np.array([0, 1, 2] + [-1] * 5)[:, None], (3, 8, 1, 6))
        axes = ("network", "seed")
        return xr.Dataset(
            {
                "loss": ((*axes, "step"), losses),
                "accuracy": ((*axes, "step"), np.ones_like(losses)),
                "stage_layer_rank": ((*axes, "stage", "layer"), ranks),
                "stage_start": ((*axes, "stage"), np.tile([0.0, 0.3, 0.6] + [np.nan] * 5, (3, 8, 1))),
                "stages_found": (axes, np.full((3, 8), 3)),
            },
            {
                "network": ["depth 4, larger", "depth 4, smaller", "depth 6"],
                "depth": ("network", [4, 4, 6]),
                "seed": range(8),
                "layer": 1 + np.arange(6),
                "step": step,
            },
        )

    return run


def _students(*, shuffled):
    def run(draw):
        ranks = np.tile([0, 1, 2, 3], (12, 1))
        ranks = draw.permuted(ranks, axis=1) if shuffled else ranks
        loss, task = np.tile([2.0, 0.0], (12, 1)), ["separated"] * 12
        return xr.Dataset({"stage_rank": (("network", "stage"), ranks), "loss": (("network", "mark"), loss)}).assign(
            task=("network", task)
        )

    return run


SLOW = pytest.mark.slow  # 200 draws of a long run


@pytest.mark.parametrize(
    ("entry", "claim", "null", "effect"),
    [
        pytest.param("figure-1", "deeper", _scaled(), _scaled(slice(3, 6), factor=0.4), marks=SLOW),
        pytest.param("figure-1", "second", _scaled(), _scaled(value=1, factor=0.1), marks=SLOW),
        pytest.param("figure-1", "dominant", _scaled(factor=1.6), _scaled(factor=0.5), marks=SLOW),
        pytest.param("figure-1", "saddles", _counted(1), _counted(2), marks=SLOW),
        pytest.param("figure-4", "depth", _depths((1, 1, 1)), _depths((1, 1, 60)), marks=SLOW),
        pytest.param("figure-4", "smaller-is-sharper", _depths((1, 1, 1)), _depths((1, 60, 1)), marks=SLOW),
        ("conjecture-4", "by-one", _students(shuffled=True), _students(shuffled=False)),
    ],
)
def test_effects_are_found_where_they_are_alone(entry, claim, null, effect):
    assert_detects(f"deep-relu/{entry}", claim, null=null, effect=effect)

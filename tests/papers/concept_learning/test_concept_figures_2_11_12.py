"""Figures 2, 11 and 12: statistics of synthetic runs."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning import figures_2_11_12 as orders


def _made(rates):
    """Runs whose progress is 1 - exp(-a t) for both concepts of each task."""
    time = np.linspace(0, 20, 401)
    mu, rates = np.array([[1.0, 2.0]] * len(rates)), np.array(rates)
    output = mu[:, None, None] * (1 - np.exp(-rates[:, None, None] * time[:, None]))
    return xr.Dataset(
        {
            "output": (("task", "seed", "step", "concept"), output),
            "mu": (("task", "concept"), mu),
            "strength": (("task", "concept"), rates),
        },
        coords={"time": ("step", time), "concept": [1, 2], "panel": ("task", [orders.SIGNAL] * len(rates))},
    )


def test_half_times_and_leads_on_exponentials():
    run = _made([(0.5, 1.0), (1.0, 1.05), (2.0, 1.0), (0.01, 1.0)])
    half = orders.half_times(run)[:, 0]
    np.testing.assert_allclose(half[:3], np.log(2) / run.strength.values[:3], atol=0.051)
    assert np.all(half[:3] >= np.log(2) / run.strength.values[:3])
    assert half[3, 0] == np.inf
    np.testing.assert_allclose(orders.leads(run).values[2, 0], (1 / 1.0 - 1 / 2.0) / 20, atol=2e-3)


def test_a_late_fall_below_one_half_counts():
    run = _made([(1.0, 1.0)])
    run.output[0, 0, 300, 0] = 0.4
    assert orders.half_times(run)[0, 0, 0] == run.time.values[301]


def test_the_panel_with_the_smaller_share_decides():
    run = _made([(0.5, 1.0), (1.0, 1.2), (2.0, 1.0), (3.0, 1.0)])
    run["panel"] = "task", [orders.SIGNAL] * 2 + [orders.DIVERSITY] * 2
    run = run.isel(seed=[0] * 6)
    assert orders.shifted_share(run).value == 1
    run["output"] = run.output.isel(task=[1, 0, 2, 3])
    assert orders.shifted_share(run).value == 0

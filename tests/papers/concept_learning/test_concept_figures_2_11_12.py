"""Figures 2, 11 and 12: their claims at the quick size, statistics of synthetic runs, and what refutes them."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import figures_2_11_12 as orders
from saddlescope.reproduction import find_entry

NAMES = {number: f"concept-learning/figure-{number}" for number in (2, 11, 12)}


@pytest.mark.parametrize("number", NAMES)
def test_orders_and_shifts_hold_at_the_quick_size(number, quick_run, inside, outcomes):
    entry, run = find_entry(NAMES[number]), quick_run(NAMES[number]).run
    outside = {claim.name for claim in entry.claims} - inside(entry, run)
    assert outside <= {"theorem-4-1-sgd", "order-diversity"}
    # So few networks neither refute the share in order of diversity nor show it.
    assert "order-diversity" not in outside or outcomes(entry, run)["order-diversity"] == "undecided"


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
        coords={
            "time": ("step", time), "concept": [1, 2], "panel": ("task", [orders.SIGNAL] * len(rates)),
            "varied": ("task", np.arange(len(rates))),
        },
    )  # fmt: skip


def test_half_times_leads_and_orders_on_exponentials():
    run = _made([(0.5, 1.0), (1.0, 1.05), (2.0, 1.0), (0.01, 1.0)])
    half = orders.half_times(run)[:, 0]
    np.testing.assert_allclose(half[:3], np.log(2) / run.strength.values[:3], atol=0.051)
    assert np.all(half[:3] >= np.log(2) / run.strength.values[:3])
    assert half[3, 0] == np.inf
    np.testing.assert_allclose(orders.leads(run).values[2, 0], (1 / 1.0 - 1 / 2.0) / 20, atol=2e-3)
    np.testing.assert_array_equal(orders.stronger_first(run)[:, 0], [1, np.nan, 1, 1])
    run["strength"] = run.strength * 0 + np.array([1.0, 0.5])
    np.testing.assert_array_equal(orders.stronger_first(run)[:, 0], [0, 0, 1, 0])


def test_a_late_fall_below_one_half_counts():
    run = _made([(1.0, 1.0)])
    run.output[0, 0, 300, 0] = 0.4
    assert orders.half_times(run)[0, 0, 0] == run.time.values[301]


def exchanged(run):
    run["strength"] = run.strength.isel(concept=[1, 0]).assign_coords(concept=[1, 2])


def unshifted(run):
    run.output.values[:] = run.output.values[:1]


def unfinished(run):
    run.test_loss.values[:, :, -1] = run.test_loss.values[:, :, 0]


def drifting(run):
    run.output.values[..., -1, :] += 5.0


def bumpy(run):
    run.test_loss.values[0, 0, 40:50] += float(run.test_loss[0, 0, 0])


def missed(run):
    run.whole_output.values[0, 0, 7, 1] += 0.1


@pytest.mark.parametrize(
    ("number", "spoil", "claims"),
    [
        (11, exchanged, ["order-signal", "order-diversity"]),
        (12, unshifted, ["shift-signal", "shift-diversity"]),
        (11, unfinished, ["arrives"]),
        (2, drifting, ["slowing"]),
        (2, bumpy, ["one-descent"]),
        (2, missed, ["theorem-4-1"]),
    ],
)
def test_a_spoilt_run_refutes_the_claim(number, spoil, claims, quick_run, outcomes):
    entry = find_entry(NAMES[number])
    run = quick_run(entry.name).run.copy(deep=True)
    spoil(run)
    found = outcomes(entry, run)
    assert [found[claim] for claim in claims] == ["refuted"] * len(claims)


def test_runs_too_short_leave_claims_undecided(quick_run, outcomes):
    entry = find_entry(NAMES[2])
    run = quick_run(entry.name).run
    assert outcomes(entry, run.isel(step=slice(0, 30)))["late"] == "undecided"
    assert outcomes(entry, run.isel(step=slice(0, 20)))["slowing"] == "undecided"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"varied_mu": "2,1"}, "varied_mu must be two or more positive numbers, increasing"),
        ({"varied_sigma": "1"}, "varied_sigma must be two or more positive numbers"),
        ({"mu": "1,2,3"}, "mu must be exactly 2 positive numbers"),
        ({"sigma": "0"}, "sigma must be positive"),
        ({"dim": "1"}, "dim must be at least 2"),
        ({"seeds": "0"}, "seeds must be at least 1"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        find_entry(NAMES[2]).configure("quick", settings)

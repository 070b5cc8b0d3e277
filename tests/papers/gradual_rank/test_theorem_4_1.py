"""Theorem 4.1: claims hold for times that follow the law, and the theory predicts the constants of the flow."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import find_entry

NAME = "gradual-rank/theorem-4-1"
ENTRY = find_entry(NAME)
SCALES = (-32.0, -64.0, -1024.0, -4096.0)


@pytest.fixture
def ideal():
    """Three heads of eight stages at T_k + C_k / log(1/alpha) up to 1e-8, with plateaus that are ever closer."""
    stages = np.arange(1, 9)
    times, constants = 50.0 + 10.0 * stages, np.where(stages % 2, 2.0, -5.0) + stages / 10
    unit = -np.array(SCALES)[:, None] * np.log(10)
    found = times + np.array([1, 1.1, 1.2])[:, None, None] * (constants / unit + 1e-6 * np.sin(stages))
    distance = np.broadcast_to(np.exp(-np.sqrt(unit) / 10 * stages), found.shape)
    axes = ("seed", "scale", "stage")
    return xr.Dataset(
        {
            "predicted_time": (("seed", "stage"), np.tile(times, (3, 1))),
            "separated": (("seed", "stage"), np.tile(stages <= 4, (3, 1))),
            "resolved": (axes, distance < 0.05),
            "found_time": (axes, found),
            "coarse_time": (axes, found + 1e-6),
            "beta_distance": (axes, distance.copy()),
            "theta_distance": (axes, distance.copy()),
        },
        coords={"scale": list(SCALES), "stage": stages, "seed": range(3)},
    )


def test_all_claims_hold_for_times_that_follow_the_law(ideal, outcomes):
    assert set(outcomes(ENTRY, ideal).values()) == {"holds", "agrees", "seen"}


def test_the_theory_predicts_the_constants_of_the_flow(run):
    """C_k of the flow, at the smallest scale where its tolerance still shows it, without any common code."""
    unit = 64 * np.log(10)
    measured = ((run.found_time.sel(scale=-64) - run.predicted_time) * unit).transpose("seed", "stage").values
    chosen = run.separated.transpose("seed", "stage").values == 1
    assert chosen.sum() >= 2
    expected = run.predicted_constant.transpose("seed", "stage").values[chosen]
    np.testing.assert_allclose(measured[chosen], expected, rtol=1e-2)


def test_a_run_that_does_not_resolve_a_claim_leaves_it_undecided(ideal, outcomes):
    without = outcomes(ENTRY, ideal.isel(scale=[0, 1]).assign_coords(scale=[-8.0, -16.0]))
    assert {without[claim] for claim in ("order", "rate", "constants")} == {"undecided"}
    assert outcomes(ENTRY, ideal.assign(separated=0 * ideal.separated))["constants"] == "undecided"
    assert outcomes(ENTRY, ideal.assign(theta_distance=0 * ideal.theta_distance))["weights-converge"] == "undecided"
    # A difference to the coarser run as large as the distance to the bound decides nothing.
    assert outcomes(ENTRY, ideal.assign(coarse_time=ideal.found_time + 0.1))["constants"] == "undecided"

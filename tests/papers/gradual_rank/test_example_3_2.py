"""Example 3.2: claims hold at the quick size, one wrong product is seen, and what did not happen is undecided."""

import numpy as np
import pytest

from saddlescope.reproduction import find_entry

NAME = "gradual-rank/example-3-2"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"holds", "agrees"}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_wrong_product_on_one_plateau_is_seen(run, outcomes, value):
    """The one that enters is missing, or all are learned at once."""
    stage = int(run.stage[run.resolved.isel(network=0, scale=-1).values.astype(bool)][0])
    place = {"stage": stage, "network": run.network.values[0]}
    if value == 0:
        place |= {"coordinate": int(run.predicted_coordinate.sel(place))}
    run.plateau_beta.loc[place] = value
    assert outcomes(ENTRY, run)["support"] == "differs"


def test_errors_that_do_not_fall_are_seen(run, outcomes):
    worse = run.predicted_time * (1 + 1e-4 * abs(run.scale))
    run.found_time[:] = worse.transpose(*run.found_time.dims).values
    assert outcomes(ENTRY, run)["converges"] == "differs"


def test_networks_of_two_heads_do_not_count(run, outcomes):
    run.plateau_beta[{"network": 1}] = 1.0
    run.found_time[{"network": 1}] = np.nan
    one = run.isel(network=[0, 0, 1]).assign_coords(heads=("network", [1, 1, 2]), network=["a", "b", "c"])
    assert set(outcomes(ENTRY, one).values()) == {"holds", "agrees"}


def test_what_did_not_happen_is_undecided(run, outcomes):
    assert outcomes(ENTRY, run.assign(resolved=run.resolved & False))["support"] == "undecided"
    assert outcomes(ENTRY, run.isel(scale=[-1]))["converges"] == "undecided"
    assert outcomes(ENTRY, run.assign(found_time=run.found_time.where(False)))["converges"] == "undecided"

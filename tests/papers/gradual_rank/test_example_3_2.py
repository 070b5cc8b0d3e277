"""Example 3.2: every claim can fail, each on a run that was made wrong in the way it guards against."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/example-3-2"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("median-limit") == "undecided"  # a mean over two seeds
    assert found.pop("support-tied") == "not tested"  # one head only
    assert set(found.values()) == {"reproduced"}


def other_weights_same_products(run):
    run.product_error[:] = 1e-3


def two_enter_at_once(run):
    stage = first_resolved(run)
    run.plateau_beta.loc[{"stage": stage}] = 1.0


def one_too_few(run):
    stage = first_resolved(run)
    place = {"stage": stage, "coordinate": int(run.predicted_coordinate.isel(network=0).sel(stage=stage))}
    run.plateau_beta.loc[place | {"network": run.network.values[0]}] = 0.0


def first_resolved(run):
    return int(run.stage[run.resolved.isel(network=0, scale=-1).values.astype(bool)][0])


def missed(order):
    def spoil(run):
        run.found_time.loc[{"order": order, "stage": 2}] = np.nan

    return spoil


def late(order):
    def spoil(run):
        factor = xr.DataArray(1.003 + 1e-5 * np.arange(2), dims="network")
        run.found_time.loc[{"order": order}] = (factor * run.told_time.sel(order=order)).transpose(
            *run.found_time.sel(order=order).dims
        )

    return spoil


def no_better_at_smaller_scales(run):
    worse = run.told_time.sel(order="limit") * (1 + 1e-4 * abs(run.scale))
    run.found_time.loc[{"order": "limit"}] = worse.transpose(*run.found_time.sel(order="limit").dims)


def correction_makes_it_worse(run):
    run.found_time.loc[{"order": "finite"}] = 1.2 * run.told_time.sel(order="finite")


def something_left(run):
    run.predicted_loss[:] = 1e-3


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_weights_same_products, "products"),
        (two_enter_at_once, "rank"),
        (two_enter_at_once, "support"),
        (one_too_few, "support"),
        (missed("limit"), "window-limit"),
        (late("limit"), "median-limit"),
        (missed("finite"), "window-finite"),
        (late("finite"), "median-finite"),
        (no_better_at_smaller_scales, "converges"),
        (correction_makes_it_worse, "correction"),
        (something_left, "end"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_what_did_not_happen_is_undecided(run, outcomes):
    assert outcomes(ENTRY, run.assign(converged=run.converged & False))["end"] == "undecided"
    unresolved = outcomes(ENTRY, run.assign(resolved=run.resolved & False))
    assert unresolved["support"] == unresolved["rank"] == "undecided"
    smallest = outcomes(ENTRY, run.isel(scale=[-1]))
    assert smallest["converges"] == smallest["correction"] == "undecided"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scales": "-8,-2"}, "log10_scales must be one or more negative numbers, decreasing"),
        ({"layers": "0,1"}, "layers must be one or more integers, each at least 1, each once"),
        ({"heads": "2,2"}, "heads must be one or more integers, each at least 1, each once"),
        ({"dim": "0"}, "dim must be at least 1"),
        ({"stages": "0"}, "stages must be at least 1"),
        ({"horizon": "1"}, "horizon must be above 1"),
        ({"tolerance": "1"}, "tolerance must be between"),
        ({"level": "1"}, "level must be above 0 and below 1"),
        ({"points": "1"}, "points must be at least 2"),
        ({"seeds": "-1"}, "seeds must be one or more integers, each at least 0, each once"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)

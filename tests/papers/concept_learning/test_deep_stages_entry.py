"""The claims on deeper networks hold at the quick size, and a spoilt run refutes them."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import find_entry

NAME = "concept-learning/deep-stages"
ENTRY = find_entry(NAME)


SEEDS = {"median", "leading-order", "power-law", "largest", "order"}  # one seed cannot decide them


@pytest.fixture
def run(quick_run):
    """Return the quick run with eight seeds made from its one start, with errors of a higher power of the scale."""
    one, seed = quick_run(NAME).run, xr.DataArray(np.arange(8), dims="start")
    found = one.found.isel(start=0, drop=True) * (1 + 0.01 * seed * (one.scale < 0.1))
    errors = 0.02 * (one.scale / 0.1) ** 1.5 * (1 + 0.05 * seed * (one.scale < 0.1))
    dims = one.found.dims
    return one.drop_dims("start").assign(
        found=found.transpose(*dims), predicted=(found * (1 + errors)).transpose(*dims)
    )


def test_what_one_seed_decides_holds_at_the_quick_size(quick_run, outcomes):
    found = outcomes(ENTRY, quick_run(NAME).run)
    assert {found[name] for name in SEEDS} == {"undecided"}
    assert {found[name] for name in set(found) - SEEDS} == {"reproduced"}


def test_all_claims_hold_with_seeds(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def late(run):
    run.predicted.values[0, -1] *= 1.1


def no_better_at_small_scales(run):
    run.found.values[0, 0] = run.predicted.values[0, 0] * (1 + 1e-5)


def swapped(run):
    run.found.values[0, -1] = run.found.values[0, -1, :, ::-1]


def steeper(run):
    run.found.values[0, 0] /= 2


def other_closed_form(run):
    run.diagonal_predicted.values *= 1.001


def no_flip(run):
    run.diagonal_found.values[0] = run.diagonal_found.values[0][:, ::-1]


def slower(run):
    run.noisy_found.values[:, 1, 1] *= 1.01


def remembered(run):
    run.noisy_w.values[..., 0] = 1.0


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (late, ("median", "largest")),
        (no_better_at_small_scales, ("leading-order",)),
        (swapped, ("order",)),
        (steeper, ("power-law",)),
        (other_closed_form, ("balanced",)),
        (no_flip, ("flip",)),
        (slower, ("turning-rate",)),
        (remembered, ("forgotten",)),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_a_stage_that_never_came_leaves_the_error_undecided(run, outcomes):
    run.found.values[0, -1, 0, 0] = float("nan")
    assert outcomes(ENTRY, run)["median"] == "undecided"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"depths": "1,3"}, "depths must be one or more integers, each at least 2, increasing"),
        ({"depths": "4,3"}, "depths must be one or more integers, each at least 2, increasing"),
        ({"depths": "2"}, "depths must end with 3 or more"),
        ({"scales": "0.01,0.1"}, "scales must be two or more positive numbers, decreasing"),
        ({"noises": "3,2"}, "noises must end below 1"),
        ({"noisy_depth": "2"}, "noisy_depth must be at least 3"),
    )

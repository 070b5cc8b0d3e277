"""Figures 2 and 6: the claims that the quick size decides hold; a spoilt run is refuted."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/figure-2"
ENTRY = find_entry(NAME)


def test_decided_claims_hold(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found["narrow"] == found["ceiling"] == "reproduced"
    assert {found[name] for name in ("width-32", "width-64", "conjecture-1-harder")} == {"undecided"}


def test_faster_than_the_certificate_or_rank_one_is_refuted(run, outcomes):
    run.speed.values[0, 0, 0] = 0.5 + 2e-6
    found = outcomes(ENTRY, run)
    assert found["narrow"] == found["ceiling"] == "refuted"


def test_shares_of_wide_networks_are_compared_with_the_bars(run, outcomes):
    wide = run.isel(width=[1, 1]).assign_coords(width=[32, 64])
    wide.speed.values[:] = 0.5
    assert outcomes(ENTRY, wide)["width-32"] == "undecided"  # six of six runs leave room for 60 %
    wide = wide.isel(start=np.zeros(400, int))
    found = outcomes(ENTRY, wide)
    assert found["width-32"] == found["width-64"] == found["conjecture-1"] == "reproduced"
    wide.speed.values[:] = 2**0.5 - 1
    found = outcomes(ENTRY, wide)
    assert found["width-32"] == found["width-64"] == found["conjecture-1"] == "refuted"


def test_a_share_that_falls_with_width_is_refuted(run, outcomes):
    some = run.isel(width=[0, 0, 0], start=np.zeros(400, int)).assign_coords(width=[1, 32, 64])
    some.speed.values[0] = np.where(np.arange(400) < np.array([0, 390, 300])[:, None], 0.5, 0.3)
    assert outcomes(ENTRY, some)["rises"] == "refuted"


def test_ends_that_are_not_exact_refute_the_refinement(run, outcomes):
    some = run.isel(width=[0, 1], start=np.zeros(400, int)).assign_coords(width=[1, 8])
    some.speed.values[:] = some.descended.values[:] = 0.5
    some.residual.values[:] = 1e-14
    assert outcomes(ENTRY, some)["polished"] == "reproduced"
    some.residual.values[0, 1, :100] = 1e-6
    assert outcomes(ENTRY, some)["polished"] == "refuted"


@pytest.mark.parametrize("changed", [{"widths": "8,4"}, {"widths": "0"}, {"circles": "6"}, {"starts": "0"}])
def test_bad_parameters_are_refused(changed):
    with pytest.raises(InputError):
        ENTRY.configure("quick", changed)

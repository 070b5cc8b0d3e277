"""Lines from labelled data."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import lines

LOSS = xr.DataArray(
    [[4.0, 1.0, 0.0], [4.0, 2.0, 1.0]], dims=("scale", "time"), coords={"scale": [-1.0, -8.0], "time": [0.0, 2.0, 5.0]}
)


def test_each_value_of_the_hue_is_a_line_with_its_own_colour():
    first, second = lines(LOSS, x="time", hue="scale", label="alpha = 1e{:g}", color=3, style="dashed")
    assert (first.label, second.label) == ("alpha = 1e-1", "alpha = 1e-8")
    assert (first.color, second.color, second.style) == (3, 4, "dashed")
    np.testing.assert_array_equal(second.x, [0.0, 2.0, 5.0])
    np.testing.assert_array_equal(second.y, [4.0, 2.0, 1.0])


def test_groups_share_their_legend_entry():
    first, _ = lines(LOSS.T, x="time", hue="scale", label=lambda scale: f"{scale:g}", grouped=True)
    assert (first.label, first.group) == ("", "-1")


def test_a_single_line_needs_no_hue():
    (only,) = lines(LOSS.isel(scale=0, drop=True), x="time", label="loss", color=None)
    assert (only.label, only.color) == ("loss", None)


@pytest.mark.parametrize(
    ("data", "options"), [(LOSS, {"x": "time"}), (LOSS.isel(scale=0), {"x": "time", "hue": "scale"})]
)
def test_other_dimensions_are_refused(data, options):
    with pytest.raises(InputError, match="must be over time"):
        lines(data, **options)

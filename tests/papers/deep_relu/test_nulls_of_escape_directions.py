"""Statistics of escape speeds, ranks and widths that detect an effect find none where there is none."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit

from null_runs import assert_detects

WIDTHS, DEPTHS, UNEQUAL = np.array([3, 4, 6, 8, 12, 16, 24, 32]), [3, 4, 6], [4, 8, 16, 32]
CUBE = expit(-7 + 3 * np.log(WIDTHS))
FIGURE_2 = np.array([0, 0, 0.025, 0.3, 0.7, 0.95, 0.995])  # shares of success at widths 1, 2, 4, ..., 64


def searches(rng, shares, wide=(0.05, 0.05, 0.05)):
    """Searches of Figure 2 that succeed with these shares: on 8 points by width, and on 16 at widths 16, 64, 256."""
    speed = np.where(rng.random((2, 7, 600)) < np.array(shares)[:, None], 0.5, 0.4)
    late = np.where(rng.random((3, 192)) < np.array(wide)[:, None], 0.5, 0.4)
    return xr.Dataset(
        {
            "speed": (("circle", "width", "start"), speed),
            "wide_speed": (("wide", "wide_start"), late),
            "rank_one": ("circle", [0.414, 0.414]),
            "optimum": ("circle", [0.5, 0.5]),
        },
        {"circle": [8, 16], "width": 2 ** np.arange(7), "wide": [16, 64, 256]},
    )


def descents(rng, faster=(CUBE, CUBE), optimal=0.5, powers=(1.0, 1.0)):
    """512 descents per network, faster with these shares at depth 3 and deeper, some of those optimal.

    At unequal widths the odds of a faster descent grow with these powers.
    """
    shares = np.stack([faster[0], faster[1], faster[1]])
    u = rng.random((3, len(WIDTHS), 512))
    speed = np.where(u < (optimal * shares)[..., None], 0.5, np.where(u < shares[..., None], 0.45, 0.4))
    odds = np.array([[-4 + powers[0] * np.log(a) + powers[1] * np.log(b) for b in UNEQUAL] for a in UNEQUAL])
    oblong = np.where(rng.random((4, 4, 512)) < expit(odds)[..., None], 0.45, 0.4)
    return xr.Dataset(
        {"speed": (("depth", "width", "start"), speed), "unequal_speed": (("first", "second", "start"), oblong)},
        {"depth": DEPTHS, "width": WIDTHS, "first": UNEQUAL, "second": UNEQUAL},
    )


SQUARE = expit(-4.7 + 2 * np.log(WIDTHS))


DEEP_FAILS = {"faster": (CUBE, 0.3 * CUBE), "optimal": 0.95}
LEVEL = np.where(np.arange(7) == 4, FIGURE_2[3], FIGURE_2)  # a share that stays level once
CASES = [
    ("figure-2", "rises", searches, {"shares": LEVEL}, {"shares": FIGURE_2}),
    ("figure-2", "conjecture-1-harder", searches, {"shares": FIGURE_2}, {"shares": FIGURE_2, "wide": (0.05, 0.1, 0.2)}),
    ("escape-width", "cube", descents, {"faster": (SQUARE, SQUARE)}, {}),
    ("escape-width", "first-layer", descents, {}, {"powers": (1.7, 0.9)}),
    (
        "escape-width",
        "depth-optimal",
        descents,
        {"faster": (CUBE, 0.5 * CUBE)},
        {"faster": (CUBE, 0.3 * CUBE), "optimal": 0.95},
    ),
    ("escape-width", "conjecture-1-deep", descents, {"faster": (CUBE, 0 * CUBE + 0.9)}, {}),
]


@pytest.mark.parametrize(("entry", "claim", "draw", "null", "effect"), CASES)
def test_effects_are_found_where_they_are_alone(entry, claim, draw, null, effect):
    assert_detects(f"deep-relu/{entry}", claim, null=partial(draw, **null), effect=partial(draw, **effect))

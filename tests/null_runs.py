"""Runs without an effect, on which a statistic that detects the effect must not find it."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction import find_entry

DRAWS = 200
MOST = 0.05
"""Largest share of runs without an effect in which a claim of that effect may hold."""

Draw = Callable[[np.random.Generator], xr.Dataset]


def share_that_holds(entry: str, claim: str, draw: Draw, draws: int = DRAWS, seed: int = 0) -> float:
    """Return the share of random runs on which a claim is inside its bounds."""
    (judged,) = (one for one in find_entry(entry).claims if one.name == claim)
    found = (judged.judge(draw(np.random.default_rng([seed, k]))).outcome for k in range(draws))
    return sum(one.inside is True for one in found) / draws


def assert_detects(entry: str, claim: str, *, null: Draw, effect: Draw) -> None:
    """Fail if the claim holds on more than 5 % of 200 runs without the effect, or not on nearly all of 20 with it."""
    assert share_that_holds(entry, claim, null) <= MOST, f"{claim} is found where there is none"
    assert share_that_holds(entry, claim, effect, draws=20) >= 0.9, f"{claim} is not found where it is"

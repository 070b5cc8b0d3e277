"""The lemmas' claims can fail, and the loss made for Lemma D.4 meets the assumptions."""

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

from saddlescope.papers.gradual_rank.lemmas import _ordered, made_loss
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/lemmas"
ENTRY = find_entry(NAME)


@pytest.fixture
def ideal():
    """Two seeds with one judged plateau and one that is not, at three scales, as the lemmas say."""
    rates = np.array([1.0, 0.5, 0.25])
    judged = {
        **dict.fromkeys(("log_error", "time_error"), rates),
        **dict.fromkeys(("wrong_signs", "wrong_winner", "zeros_of_v", "d3"), np.zeros(3)),
        **{
            name: np.full(3, value)
            for name, value in {"distance": 0.1, "others": 0.5, "winner": 2.0, "d1": 0.1}.items()
        },
        "transition": [20.0, 20.1, 20.0],
        "largest_weight": [1.5, 1.501, 1.5],
    }
    plateaus = {
        name: (("seed", "scale", "plateau"), np.tile(np.stack([values, np.full(3, np.nan)], 1), (2, 1, 1)))
        for name, values in judged.items()
    }
    moments = np.array([4.0, 16.0, 64.0, 256.0])
    return xr.Dataset(
        plateaus
        | {
            "exceptions": (("seed", "plateau"), np.zeros((2, 2))),
            "d2": (("seed", "scale"), np.full((2, 3), 30.0)),
            "tail_norm": (("seed", "moment"), np.tile(np.log(moments), (2, 1))),
            **{"made_before": 0.1, "made_peak": 1.0, "made_after": 0.0, "made_b": 0.0, "made_first": 3.0},
        },
        coords={"seed": [0, 1], "scale": [-32.0, -64.0, -128.0], "plateau": [0, 1], "moment": moments},
    )


def test_all_claims_hold_where_the_lemmas_do(ideal, outcomes):
    assert set(outcomes(ENTRY, ideal).values()) == {"holds", "agrees"}


@pytest.mark.parametrize(("name", "value", "claim"), [("wrong_winner", 1.0, "c-9"), ("zeros_of_v", 1.0, "c-10-ratio")])
def test_one_plateau_decides(ideal, outcomes, name, value, claim):
    ideal[name].values[0, -1, 0] = value
    assert outcomes(ENTRY, ideal)[claim] == "fails"


def test_no_judged_plateau_decides_nothing(ideal, outcomes):
    names = ("distance", "log_error", "d1", "transition", "d3", "largest_weight")
    found = outcomes(ENTRY, ideal.assign({name: np.nan * ideal[name] for name in names}))
    assert {found[claim] for claim in ("c-5", "c-6", "d-1", "c-10", "d-3", "existence")} == {"undecided"}
    assert outcomes(ENTRY, ideal.assign(made_peak=0.0))["d-4"] == "undecided"


def test_weights_are_ordered_as_in_appendix_c_3():
    u0, v0 = np.random.default_rng(0).standard_normal((2, 50))
    u, v = _ordered(u0, v0)
    assert (u > abs(v)).all()
    np.testing.assert_allclose(u * v, u0 * v0)


def test_the_made_loss_is_positive_and_its_second_entry_returns_without_this_packages_flow():
    """Positive, so that it is a squared error of a smooth h; from near (1, 0) an explicit solver ends at (3, 0)."""
    x, y = np.meshgrid(np.linspace(-30, 30, 601), np.linspace(-3000, 3000, 601))
    assert np.asarray(made_loss(np.stack([x, y]))).min() > 0

    def slope(t, state):
        (x, y), u, v = state[:2] * state[2:], state[:2], state[2:]
        g = -np.array([20 * (x - 1) * (x - 1.5) * (x - 3) + y * (6 * x - 11), 3 * x**2 - 11 * x + 7 + y])
        return np.concatenate([v * g, u * g])

    start = np.tile(np.sqrt([1.0, 1e-6]), 2)
    path = solve_ivp(slope, (0, 60), start, "DOP853", rtol=1e-10, atol=1e-14)
    beta = path.y[:2] * path.y[2:]
    assert beta[1].max() > 1
    np.testing.assert_allclose(beta[:, -1], [3, 0], atol=1e-6)

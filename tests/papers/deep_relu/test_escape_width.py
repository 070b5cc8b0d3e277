"""Escape and width: the law of the odds against known ones, and the claims against wrong runs."""

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize
from scipy.special import expit

from saddlescope.papers.deep_relu.extensions.escape_width import OddsLaw, fit_odds, follows_a_power_law, succeeds
from saddlescope.reproduction import find_entry

NAME = "deep-relu/escape-width"
ENTRY = find_entry(NAME)
WIDTHS = np.array([3.0, 4.0, 8.0, 16.0, 32.0])[:, None]


def law_of(widths, count, runs) -> OddsLaw:
    law = fit_odds(widths, count, runs)
    assert law is not None
    return law


def test_a_law_that_shares_keep_to_is_found_exactly():
    runs = np.full(5, 1_000_000)
    law = law_of(WIDTHS, runs * expit(-6 + 2.5 * np.log(WIDTHS[:, 0])), runs)
    assert law.constant == pytest.approx(-6, abs=1e-9)
    np.testing.assert_allclose(law.powers, 2.5, atol=1e-9)
    np.testing.assert_allclose(law.shares(WIDTHS), expit(-6 + 2.5 * np.log(WIDTHS[:, 0])), atol=1e-12)


def test_the_likelihood_is_largest_there_and_as_curved_as_the_errors_say():
    widths = np.array([[4.0, 4.0], [4.0, 16.0], [16.0, 4.0], [16.0, 16.0], [8.0, 32.0]])
    count, runs = np.array([2, 9, 21, 33, 30]), np.array([40, 40, 40, 40, 50])

    def minus_log_likelihood(beta):
        p = expit(beta[0] + np.log(widths) @ beta[1:])
        return -float(count @ np.log(p) + (runs - count) @ np.log1p(-p))

    best = minimize(minus_log_likelihood, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    law = law_of(widths, count, runs)
    np.testing.assert_allclose([law.constant, *law.powers], best.x, atol=1e-5)
    # Samples of the fitted law scatter by the errors.
    rng = np.random.default_rng(0)
    again = np.array([law_of(widths, rng.binomial(runs, law.shares(widths)), runs).powers for _ in range(300)])
    np.testing.assert_allclose(1.96 * again.std(axis=0), law.errors, rtol=0.2)


@pytest.mark.parametrize("count", [[0, 0, 0, 0, 0], [9, 9, 9, 9, 9], [0, 0, 0, 9, 9]])
def test_no_law_is_fitted_where_none_exists(count):
    assert fit_odds(WIDTHS, np.array(count), np.full(5, 9)) is None


def test_a_quick_run_finds_rank_one_and_fixes_no_law_where_all_succeed(run, outcomes):
    assert 0.41 < float(run.speed.max()) < 0.5 + 1e-6
    assert int(succeeds(run.speed, "faster").sum()) >= int(succeeds(run.speed, "optimal").sum())
    assert outcomes(ENTRY, run.assign(speed=0 * run.speed + 0.5))["cube"] == "not tested"
    widths = np.array([3, 6, 12, 24])
    sudden = np.where(np.arange(400) < 400 * np.where(widths < 10, 0.02, 0.55)[:, None], 0.5, 0.3)
    made = {"speed": (("depth", "width", "start"), np.tile(sudden, (2, 1, 1)))}
    assert not follows_a_power_law(xr.Dataset(made, {"depth": [3, 4], "width": widths}))

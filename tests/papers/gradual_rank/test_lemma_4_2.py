"""Lemma 4.2's claims are refuted by weights that do not conserve, and by descent that loses at another rate."""

import dataclasses

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/lemma-4-2"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_all_claims_but_the_fitted_power_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("descent-power") == "refuted"  # higher orders of three coarse rates exceed its bar
    assert set(found.values()) == {"reproduced"}


def test_a_step_of_descent_multiplies_kappa_by_what_the_heading_says():
    u, v, g, eta = 0.7, -0.2, 1.3, 0.05
    after = (u + eta * v * g) ** 2 - (v + eta * u * g) ** 2
    assert after == pytest.approx((u**2 - v**2) * (1 - eta**2 * g**2), rel=1e-14)


def explicit_weights_drift(run):
    run.u.values[-1, 0] += 1e-8


def flow_drifts(run):
    run.flow_u.values[-1, np.abs(run.flow_u.values[-1]).argmax()] += 1e-8


def flow_is_elsewhere(run):
    run.flow_u.values[-1] *= -1
    run.flow_v.values[-1] *= -1  # conserved all the same


def gradient_is_off(run):
    run.integral_of_g.values[-1] *= 1 + 1e-6


def sign_of_kappa(run):
    run.u.values[:], run.v.values[:] = run.v.values.copy(), -run.u.values.copy()


def square_law(run):
    kappa = (run.u**2 - run.v**2).isel(time=0).values
    run.descent_kappa.values[:, -1] = kappa * np.exp(-(run.rate.values[:, None] ** 2))


def twice_the_loss(run):
    kappa = (run.u**2 - run.v**2).isel(time=0).values
    run.descent_kappa.values[:] *= run.descent_kappa.values / kappa


def float64_loses_early(run):
    run.rounded_error.sel(scale=-2.0).values[:] = 1e-3


def float64_holds(run):
    run.rounded_error.sel(scale=-16.0).values[:] = 1e-3


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (explicit_weights_drift, "conserved"),
        (flow_drifts, "flow-conserves"),
        (flow_is_elsewhere, "flow-agrees"),
        (gradient_is_off, "equation-6"),
        (gradient_is_off, "equation-7"),
        (sign_of_kappa, "equation-7"),
        (square_law, "descent-power"),
        (twice_the_loss, "descent-law"),
        (float64_loses_early, "held-by-float64"),
        (float64_holds, "lost-by-float64"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_what_did_not_happen_is_undecided(run, outcomes):
    run.rounded_beta.values[:] = 0
    run.descent_kappa.values[-1, -1] *= -1
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in ("lost-by-float64", "descent-power", "descent-law")} == {"undecided"}
    assert outcomes(ENTRY, run.isel(scale=[1]))["held-by-float64"] == "undecided"


def test_a_killed_run_keeps_its_finished_parts(tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if "gradient descent" in note:
            raise KilledError

    params = dataclasses.replace(
        ENTRY.configure("quick"), log10_scales=(-2.0,), samples=6, dim=2, until=2.0, records=3, tolerance=1e-3
    )
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert set(kept) == {"explicit.nc", "flow.nc"}
    ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scale": "-8"}, "log10_scale must be between -4 and -0.1"),
        (
            {"log10_scales": "-200"},
            "log10_scales must be .* each at least -150 and below 0, decreasing",
        ),
        ({"learning_rates": "1"}, "learning_rates must be two or more"),
        ({"records": "1"}, "records must be at least 2"),
        ({"until": "0"}, "until must be positive"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)

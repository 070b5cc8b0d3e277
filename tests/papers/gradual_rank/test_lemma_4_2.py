"""Lemma 4.2: another solver conserves as well, one step of descent does not, and wrong weights are seen."""

import jax
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, gradient_flow
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/lemma-4-2"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"holds"}


def test_a_step_of_descent_multiplies_kappa_by_what_the_heading_says():
    u, v, g, eta = 0.7, -0.2, 1.3, 0.05
    after = (u + eta * v * g) ** 2 - (v + eta * u * g) ** 2
    assert after == pytest.approx((u**2 - v**2) * (1 - eta**2 * g**2), rel=1e-14)


def test_this_packages_flow_has_the_same_weights(run):
    params = ENTRY.configure("quick")
    with jax.enable_x64(True):
        task = params.task()
        start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
        times = run.time.values
        flow = gradient_flow(task.network, start, until=params.until, tolerance=1e-8, record=times)
    u, v = flow.parameters(times)
    np.testing.assert_allclose(u, run.u, atol=1e-6)
    np.testing.assert_allclose(v, run.v, atol=1e-6)
    kappa = (u - v) * (u + v)
    assert abs(kappa - kappa[0]).max() < 1e-10


def weights_drift(run):
    run.u.values[-1, 0] += 1e-8


def gradient_is_off(run):
    run.integral_of_g.values[-1] *= 1 + 1e-6


def sign_of_kappa(run):
    run.u.values[:], run.v.values[:] = run.v.values.copy(), -run.u.values.copy()


@pytest.mark.parametrize(
    ("spoil", "failing"),
    [
        (weights_drift, {"conserved", "equation-6", "equation-7"}),
        (gradient_is_off, {"equation-6", "equation-7"}),
        (sign_of_kappa, {"equation-6", "equation-7"}),
    ],
)
def test_wrong_weights_are_seen(run, outcomes, spoil, failing):
    spoil(run)
    assert {name for name, outcome in outcomes(ENTRY, run).items() if outcome == "fails"} == failing

"""Assumptions D.1 to D.5, and the lemmas as printed at a start that meets them."""

import math

import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope._shared.errors import InputError
from saddlescope.models import StructuredIdentityTask, symmetric_factor
from saddlescope.theory.concepts import (
    check_assumptions,
    concept_stages,
    largest_start,
    lemma_d2_time,
    lemma_d3_time,
)

A = np.array([0.1, 1.0])
CONSTANTS = {"K": 20.0, "kappa": 1.11, "C": 2.0}
START = np.array([[2.0, 1.0], [1.0, 2.0]])


def _check(start=START, strengths=A, **changes):
    return check_assumptions(strengths, start, **{**CONSTANTS, **changes})


def test_the_largest_start_is_the_largest():
    largest = largest_start(A, beta=2.0)
    assert -157 < largest.log_omega < -156  # 1e-68: nothing that float32 holds, and 1e-136 is omega^2
    at = _check(log_P=largest.log_P + 2e-5, log_scale=largest.log_omega - 2.1e-5)
    assert at.hold
    assert (at.alpha, at.gamma) == (0.1, 10.0)
    np.testing.assert_allclose([at.beta, at.log_omega], [2.0, largest.log_omega - 2.1e-5], rtol=1e-13)
    for log_P in largest.log_P + np.linspace(-60.0, 60.0, 241):
        assert not _check(log_P=log_P, log_scale=largest.log_omega + 1e-3).hold
    assert {c.assumption for c in _check(log_P=largest.log_P, log_scale=largest.log_omega + 1e-3).violated} == {"D.4"}


@pytest.mark.slow
def test_no_start_meets_the_corrected_assumptions():
    for ratio in (3.5, 10.0, 1e3):
        for log_omega in -np.geomspace(1.0, 1e5, 25):
            for log_P in np.linspace(0.7, -2 * log_omega, 25):
                for kappa in (1.11, 2.0):
                    found = _check(
                        strengths=[1 / ratio, 1.0], log_P=log_P, log_scale=log_omega, kappa=kappa, corrected=True
                    )
                    assert not found.hold
    both = {"D.4", "D.5"}
    largest = largest_start(A, beta=2.0)
    for shift in (0.0, 200.0, 2000.0):  # smaller starts and larger P do not help
        found = _check(log_P=largest.log_P + shift, log_scale=largest.log_omega - 2 * shift, corrected=True)
        assert {c.assumption for c in found.violated} & both


def test_figures_8_and_9_violate_the_difference_of_strengths():
    for mu, sigma in (((1.0, 1.5, 2.2), (0.05,) * 3), ((1.0, 1.5, 2.2, 2.7), (0.05, 0.05, 0.05, 0.5))):
        a = StructuredIdentityTask(mu, sigma, 10, len(mu)).strengths
        found = _check(np.eye(len(a)) + 0.5, a, log_P=1e6, log_scale=-1e7)
        assert any(c.assumption == "D.5" and c.says.startswith("alpha / C") for c in found.violated)
        with pytest.raises(InputError, match="each above three times the next weaker one"):
            largest_start(a, beta=1.0)


def test_each_number():
    found = {c.says.split(" ")[0] + c.assumption: c for c in _check(log_P=3.0, log_scale=-9.0, step=0.01).conditions}
    assert found["etaD.2"].bound == 1 / (9 * 20 * 1.0)
    assert not found["etaD.2"].holds
    np.testing.assert_allclose(found["log(PD.3"].value, 3 - 9 + math.log(2))
    omega, beta = math.exp(-9.0), 2.0
    D4 = found["log(omegaD.4"]
    np.testing.assert_allclose(math.exp(D4.value), omega * math.exp(3) * 20 * 10 * 2 * beta**2, rtol=1e-12)
    np.testing.assert_allclose(math.exp(D4.bound), min(0.11, 1 - 1.11**-0.5), rtol=1e-12)
    D5 = found["(a_iD.5"]
    phase = math.exp(3) * beta * omega
    needed = 1.1 / 2 * (10 * 1.11**2 * math.log(1 / phase) + math.log(math.exp(3) * beta))
    np.testing.assert_allclose([D5.value, D5.bound], [needed, 3.0], rtol=1e-12)
    np.testing.assert_allclose([found["alphaD.5"].value, found["alphaD.5"].bound], [0.05, 0.7])


def test_a_direction_without_strength_or_an_entry_zero():
    assert {c.assumption for c in _check(strengths=[0.0, 1.0], log_P=200.0, log_scale=-300.0).violated} >= {"D.1"}
    zero = _check(np.eye(2), log_P=200.0, log_scale=-300.0)
    assert {c.assumption for c in zero.violated} >= {"D.1"}
    assert not any(math.isnan(c.value) for c in zero.conditions)


# The lemmas


def test_the_lemmas_that_hold_as_printed():
    """Where they fail, the entry of the lemmas finds it."""
    largest = largest_start(A, beta=2.0, K=CONSTANTS["K"], kappa=CONSTANTS["kappa"])
    log_P, log_scale = largest.log_P + 2e-5, largest.log_omega - 2.1e-5 - math.log(START.min())
    assert _check(log_P=log_P, log_scale=log_scale).hold
    U0 = symmetric_factor(START) * math.exp(log_scale / 2)
    times = np.linspace(0.0, concept_stages(A, U0).times.max() * 1.3, 4000)
    U = symmetric_network_flow(A, U0, times, rtol=1e-12)
    W, log_phase = U @ U.swapaxes(1, 2), log_P + log_scale + math.log(START.max())
    kappa, rates = CONSTANTS["kappa"], A[:, None] + A
    t = times[:, None, None]
    assert np.all(np.log(np.abs(W)) <= np.log(np.abs(W[0])) + 2 * rates * kappa * t)  # D.1
    early = times <= lemma_d2_time(1.0, log_P=log_P, kappa=kappa)  # D.2
    assert 10 < early.sum() < len(times)
    assert np.all(np.abs(W[early]) <= math.exp(log_phase))
    assert np.all(np.abs(W[early]) >= np.abs(W[0]) * np.exp(2 * rates * t[early] / kappa) * (1 - 1e-7))
    assert np.all(np.einsum("tkk->tk", W) <= 1 + 1e-8)  # D.5; the dense output of DOP853 is of a lower order
    assert np.all(np.abs(W[:, 0, 1]) <= math.exp(log_phase))  # D.8
    for k in range(2):
        first = lemma_d3_time(math.log(W[0, k, k]), A[k], log_phase=log_phase, kappa=kappa)
        end = first + kappa * (math.log(0.8) - log_phase) / (0.6 * A[k])  # t* of the proof
        assert W[np.searchsorted(times, min(end, times[-1])) - 1, k, k] >= 0.8

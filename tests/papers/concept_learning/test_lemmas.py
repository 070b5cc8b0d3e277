"""The lemmas on runs: each check finds violations of its lemma, and the map D.2 is the paper's."""

import dataclasses
from pathlib import Path

import numpy as np

from saddlescope.papers.concept_learning.lemmas import allowed_starts, flows, maps
from saddlescope.papers.concept_learning.lemmas.violations import K, Runs, Starts, excesses
from saddlescope.reproduction import RunContext
from saddlescope.theory.concepts import update_terms

A = np.array([0.25, 1.0])


def test_the_map_is_d2():
    """W + eta (G - S - N), of equation 4.3, for as many steps; it loses the flow by O(eta)."""
    factors, some = 0.1 * np.random.default_rng(0).standard_normal((3, 2, 2)), np.zeros(3)
    starts = Starts(A, factors, some, some + 30 - 0.5 / 1.3, some, some)
    np.testing.assert_allclose(starts.until, 0.5)
    runs = maps(starts, 180, RunContext(Path()))
    eta = 1 / (9 * K)
    W = factors[1] @ factors[1].T
    for _ in range(180):
        terms = update_terms(A, W)
        W = W + eta * (terms.growth - terms.suppression - terms.noise)
    np.testing.assert_allclose(runs.times[-1], 0.5, rtol=1e-12)
    np.testing.assert_allclose(runs.W[1, -1], W, rtol=1e-9)
    np.testing.assert_allclose(flows(starts, 11).W[:, -1], runs.W[:, -1], rtol=0.02)


def test_allowed_starts_are_allowed_and_the_last_nearly_singular():
    starts = allowed_starts(10.0, 3, np.random.default_rng(1))
    assert starts.hold.all()
    assert np.all(starts.log_omega < -60 * np.log(10))
    W = starts.factors @ starts.factors.mT * np.exp(-starts.log_omega)[:, None, None]
    np.testing.assert_allclose(np.abs(W).min(axis=(1, 2)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(np.log(np.abs(W).max(axis=(1, 2))), starts.log_beta, atol=1e-3)
    assert np.all(starts.log_beta[3:] < 1e-8)
    assert np.all(starts.log_beta[:3] > 1e-3)


def _diagonal(phase=1e-3):
    """The flow of a diagonal start, which is logistic and violates nothing, with a minor entry put in by hand."""
    s, times = np.array([1e-6, 2e-6]), np.linspace(0, 30, 6001)
    growth = s * np.exp(4 * A * times[:, None])
    W = np.zeros((1, len(times), 2, 2))
    W[0, :, [0, 1], [0, 1]] = (growth / (1 - s + growth)).T
    W[0, :, 0, 1] = W[0, :, 1, 0] = 1e-7 * np.exp(2.5 * times - 2.6 * np.maximum(times - 2, 0))
    one, omega = np.zeros(1), 1e-7
    starts = Starts(A, one, one + np.log(phase / 2e-6), one + np.log(omega), one + np.log(20.0), one)
    return Runs(starts, times, W, lowest=one + 1e-6, highest=one + 1, fastest=one)


def _excess(runs, lemma):
    return float(excesses(runs)[lemma][0])


def test_what_violates_nothing():
    found = excesses(_diagonal())
    assert {lemma for lemma, excess in found.items() if excess[0] > 1e-6} <= {"Corollary D.1"}


def _changed(place, value):
    runs = _diagonal()
    W, (marks, i, j) = runs.W.copy(), place
    W[0, marks, i, j] = W[0, marks, j, i] = value
    return dataclasses.replace(runs, W=W)


def test_each_check_sees_its_violation():
    runs = _diagonal()
    late, middle = slice(4000, None), slice(2000, 2010)
    assert _excess(_changed((slice(100, None), 0, 1), 1e-5), "D.1") > 1
    assert _excess(_changed((slice(5, None), 0, 1), -1e-7), "D.2") == np.inf
    assert _excess(_changed((slice(0, 1200), 0, 0), 1e-6), "D.3") > 1
    assert _excess(_changed((slice(320, 900), 1, 1), 1.2e-3), "D.4") > 1
    assert _excess(dataclasses.replace(runs, highest=runs.highest + 0.2), "D.5") > 0
    assert _excess(dataclasses.replace(runs, lowest=-1e-8 * np.ones(1)), "D.5") > 0
    assert _excess(dataclasses.replace(runs, fastest=0.1 * np.ones(1)), "Corollary D.2") > 0
    assert _excess(_changed((late, 1, 1), 0.85), "D.6") > 0
    assert _excess(_changed((middle, 0, 1), 1.0), "D.7") > 1
    assert _excess(_changed((middle, 0, 1), 0.01), "D.8") > 1
    assert _excess(_changed((middle, 0, 1), 0.5), "Corollary D.1") > 1

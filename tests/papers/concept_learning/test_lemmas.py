"""The lemmas on runs: each check finds violations of its lemma, and the map D.2 is the paper's."""

import dataclasses

import numpy as np

from saddlescope.papers.concept_learning.lemmas import K, allowed_starts, flows, maps, ordinary_starts
from saddlescope.papers.concept_learning.lemmas.violations import Runs, excesses
from saddlescope.reproduction import find_entry
from saddlescope.theory.concepts import update_terms

NAME = "concept-learning/lemmas"
ENTRY = find_entry(NAME)
A = np.array([0.25, 1.0])


def test_the_map_is_d2():
    """W + eta (G - S - N), of equation 4.3, for as many steps; it loses the flow by O(eta)."""
    starts = ordinary_starts(A, 0.1 * np.random.default_rng(0).standard_normal((3, 2, 2)))
    (runs,) = maps(starts, 0.5, 180, lambda fraction, note: None)
    eta = 1 / (9 * K)
    W = starts.factors[1] @ starts.factors[1].T
    for _ in range(180):
        terms = update_terms(A, W)
        W = W + eta * (terms.growth - terms.suppression - terms.noise)
    np.testing.assert_allclose(runs.times[-1], 0.5, rtol=1e-12)
    np.testing.assert_allclose(runs.W[1, -1], W, rtol=1e-9)
    (flow,) = flows(starts, 0.5, 11)
    np.testing.assert_allclose(flow.W[:, -1], runs.W[:, -1], rtol=0.02)


def test_allowed_starts_are_allowed_and_the_last_nearly_singular():
    starts = allowed_starts(6, 2, np.random.default_rng(1))
    assert starts.hold.all()
    assert np.all(starts.log_omega < -60 * np.log(10))
    W = starts.factors @ starts.factors.mT * np.exp(-starts.log_omega)[:, None, None]
    np.testing.assert_allclose(np.abs(W).min(axis=(1, 2)), 1.0, rtol=1e-3)
    np.testing.assert_allclose(np.log(np.abs(W).max(axis=(1, 2))), starts.log_beta, atol=1e-3)
    assert np.all(starts.log_beta[-2:] < 1e-8)
    assert np.all(starts.log_beta[:-2] > 1e-3)


def _diagonal(phase=1e-3):
    """The flow of a diagonal start, which is logistic and violates nothing, with a minor entry put in by hand."""
    s, times = np.array([1e-6, 2e-6]), np.linspace(0, 30, 6001)
    growth = s * np.exp(4 * A * times[:, None])
    W = np.zeros((1, len(times), 2, 2))
    W[0, :, [0, 1], [0, 1]] = (growth / (1 - s + growth)).T
    W[0, :, 0, 1] = W[0, :, 1, 0] = 1e-7 * np.exp(2.5 * times - 2.6 * np.maximum(times - 2, 0))
    one, omega = np.zeros(1), 1e-7
    return Runs(
        strengths=A, times=times, W=W, lowest=one + 1e-6, highest=one + 1, fastest=one, kappa=1.11, K=20.0,
        log_P=one + np.log(phase / 2e-6), log_omega=one + np.log(omega), log_beta=one + np.log(20.0),
    )  # fmt: skip


def _excess(runs, lemma):
    return float(excesses(runs)[lemma][0])


def test_what_violates_nothing():
    found = excesses(_diagonal())
    quiet = {"Corollary D.1, P²", "D.1", "D.2", "D.3", "D.4", "D.5, upper", "D.5, lower", "Corollary D.2", "D.6"}
    for lemma in (*quiet, "D.7", "D.8", "D.8, t*"):
        assert found[lemma][0] <= 1e-6, lemma
    assert found["D.8, step"][0] > 0  # t_0 is when the ceiling gets to P beta omega: kappa too early


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
    assert _excess(dataclasses.replace(runs, highest=runs.highest + 0.2), "D.5, upper") > 0
    assert _excess(dataclasses.replace(runs, lowest=-1e-8 * np.ones(1)), "D.5, lower") > 0
    assert _excess(dataclasses.replace(runs, fastest=0.1 * np.ones(1)), "Corollary D.2") > 0
    assert _excess(_changed((late, 1, 1), 0.85), "D.6") > 0
    assert _excess(_changed((middle, 0, 1), 1.0), "D.7") > 1
    assert _excess(_changed((middle, 0, 1), 0.01), "D.8") > 1
    assert _excess(_changed((slice(None), 1, 1), 2e-6), "D.8, t*") > 1
    assert _excess(_changed((middle, 0, 1), 0.5), "Corollary D.1, P²") > 1
    assert _excess(_changed((middle, 0, 0), 0.9), "ceiling") > 0.01
    assert _excess(_changed((slice(100, 110), 0, 0), 2e-6), "growth") > 0


def test_the_flow_is_within_all_bounds_that_hold_from_any_start():
    starts = ordinary_starts(
        A, np.random.default_rng(2).standard_normal((20, 2, 2)) * np.geomspace(1e-3, 0.3, 20)[:, None, None]
    )
    for runs in flows(starts, 20.0, 400):
        found = excesses(runs)
        assert np.all(found["ceiling"] < 1e-6)
        assert np.all(found["growth"] < 0)


def test_outcomes_at_the_quick_size(run, outcomes):
    refuted = {name for name, verdict in outcomes(ENTRY, run).items() if verdict == "refuted"}
    assert refuted == {"corollary-d1", "d3", "d5-lower", "d8-step"}


def test_a_violation_refutes_its_own_claim_alone(run, outcomes):
    before = outcomes(ENTRY, run)
    for claim, lemma in (("d1", "D.1"), ("d7", "D.7"), ("ceiling", "ceiling"), ("d5-lower-flow", "D.5, lower")):
        spoilt = run.copy(deep=True)
        spoilt.violations.loc[{"group": "allowed, flow", "lemma": lemma}] = 1
        after = outcomes(ENTRY, spoilt)
        changed = {name for name in after if after[name] != before[name]}
        assert claim in changed <= {claim, claim.removesuffix("-flow")}
    run["hold"] = run.hold - 1
    assert outcomes(ENTRY, run)["allowed"] == "refuted"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"allowed": "2"}, "allowed must be greater than near=2"),
        ({"allowed": "1"}, "allowed must be at least 2"),
        ({"scales": "2"}, "scales must be one or more numbers, each above 0 and at most 1"),
        ({"marks": "3"}, "marks must be at least 100"),
        ({"until": "0"}, "until must be positive"),
    )

"""Outcomes of quick runs, and claims whose preconditions fail."""

import numpy as np
import pytest

OUTCOMES = {
    "assumptions": {"in-practice": "differs", "largest-omega": "seen"},
    "early-alignment": {"aligned": "seen", "linear-outside": "seen", "every-neuron": "seen", "too-large": "seen"},
    "equation-4-3": {"noise-omitted": "agrees"},
    "figure-4": {"initial-growth": "agrees", "irrelevant-later": "seen"},
    "figure-5": {"two-descents": "agrees", "rise": "agrees", "reversal-often": "agrees"},
    "figure-7": {"strictly": "not seen", "order": "agrees"},
    "figure-8": dict.fromkeys(("authors-descents", "descents", "stages", "learned-after-suppression"), "agrees"),
    "figure-9": dict.fromkeys(("authors-descents", "descents", "stages", "order"), "agrees"),
    "figure-10": {"never": "differs", "suppressed-first": "agrees", "authors-negative": "seen"},
    "figure-13": {"sooner": "seen", "easier": "undecided"},  # no networks at d = 64
    "lemmas": dict.fromkeys(("corollary-d1", "d3", "d5"), "fails"),
    "theorem-4-1": {"at-the-test-point": "holds", "monotone-default": "agrees"},
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_at_the_quick_size(name, quick_run, outcomes):
    found = quick_run(f"concept-learning/{name}")
    assert outcomes(found.entry, found.run).items() >= OUTCOMES[name].items()


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("atlas", {"conjecture", "wide"}),
        ("figure-2", {"shift", "one-descent"}),
        ("figure-11", {"shift"}),
        ("figure-12", {"shift"}),
        ("figure-4", {"faster-most", "groups", "suppression"}),
        ("generalisation-map", {"border", "diversity-hides"}),
        ("order-flip", {"two-layers"}),
    ],
)
def test_values_within_bounds_that_few_trials_cannot_decide(name, claims, quick_run, inside):
    found = quick_run(f"concept-learning/{name}")
    assert claims <= inside(found.entry, found.run)


def _one_descent(run):
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]


def _no_flips(run):
    run.half.values[:, :5, :, 1] = 100.0


@pytest.mark.parametrize(
    ("name", "claim", "change", "outcome"),
    [
        ("figure-5", "rise", _one_descent, "not tested"),
        ("figure-8", "stages", _one_descent, "not tested"),
        ("order-flip", "two-layers", _no_flips, "undecided"),
    ],
)
def test_claims_whose_preconditions_fail_are_not_judged(name, claim, change, outcome, quick_run):
    found = quick_run(f"concept-learning/{name}")
    run = found.run.copy(deep=True)
    change(run)
    (judged,) = (one for one in found.entry.claims if one.name == claim)
    assert judged.judge(run).outcome == outcome

"""Outcomes of quick runs of three papers, and what leaves them open."""

import numpy as np
import pytest

from saddlescope.reproduction import entry_names, find_entry

OPEN = {
    "beyond/escape-time": {"logarithm": "undecided"},  # of two scales
    "deep-relu/conjecture-4": {"digits": "undecided"},
    "deep-relu/figure-2": dict.fromkeys(("rises", "conjecture-1", "conjecture-1-harder"), "undecided"),
    "deep-relu/proposition-2-2": {"growth-printed": "fails"},
    "softmax-attention/assumption-3": {"not-necessary": "undecided"},  # of two draws
    "softmax-attention/digits": {"ranks": "undecided"},  # of one pair
    "softmax-attention/initial-scale": {"smaller-is-not-better": "undecided"},
    "softmax-attention/lemma-4-2": {"as-printed": "fails"},
    "softmax-attention/narrow-heads": {"rank-is-enough": "undecided", "one-column": "not seen"},  # of two draws
    "softmax-attention/section-4-2": {"nuclear-rate": "undecided", "low-rank": "undecided"},  # of four draws
    "softmax-attention/separability": {"diagonal-w-above-n-and-l": "undecided"},  # of twenty draws
    "softmax-attention/theorem-4-1": {"raw-rate": "undecided", "raw-is-far": "undecided"},
}
"""Outcomes other than holds, agrees and seen at the quick size."""
LONGER = {"beyond/modular-addition", *(f"deep-relu/{name}" for name in ("figure-1", "figure-4", "escape-width"))}
"""Entries whose quick runs are too short for their claims."""
PAPERS = ("beyond/", "deep-relu/", "softmax-attention/")


@pytest.mark.parametrize("name", sorted({name for name in entry_names() if name.startswith(PAPERS)} - LONGER))
def test_quick_runs(quick_run, outcomes, name):
    found = outcomes(find_entry(name), quick_run(name).run)
    assert {k: v for k, v in found.items() if v not in ("holds", "agrees", "seen")} == OPEN.get(name, {})


@pytest.mark.parametrize(
    ("name", "variable", "value", "claims", "word"),
    [
        ("deep-relu/conjecture-2", "best", 0.49, {"none-faster", "rank-one"}, "not tested"),
        ("deep-relu/example-1", "upper", 0.6, {"optimum"}, "undecided"),  # bounds too far apart
        ("deep-relu/figure-5", "speed", 0.4, {"where"}, "undecided"),  # angles that miss the maxima
        ("deep-relu/proposition-2-2", "definition_error", 1e-3, {"direction", "growth-printed"}, "not tested"),
        ("deep-relu/proposition-3-3", "share", 0.5, {"holds"}, "undecided"),
        ("softmax-attention/assumption-3", "log_lost", np.nan, {"sufficient", "not-necessary"}, "undecided"),
        ("softmax-attention/initial-scale", "spread", 0.0, {"least-entropy"}, "not tested"),
        ("softmax-attention/kkt-residuals", "tolerance", 1e-8, {"conditions", "incremental-rate"}, "not tested"),
        ("softmax-attention/lemma-4-2", "size", np.nan, {"gradient-vanishes"}, "not tested"),
        ("softmax-attention/narrow-heads", "rank", 8, {"rank-is-enough"}, "undecided"),
        ("softmax-attention/separability", "worst_proof", 1e-9, {"diagonal-w-above-n-and-l"}, "not tested"),
        ("softmax-attention/theorem-4-1", "assumptions_hold", False, {"theorem-4-1"}, "not tested"),
        ("softmax-attention/theorem-5-1", "assumptions", False, {"theorem-5-1", "quadrature"}, "not tested"),
    ],
)
def test_what_leaves_claims_open(quick_run, outcomes, name, variable, value, claims, word):
    run = quick_run(name).run
    if variable in run.attrs:
        run = run.assign_attrs({variable: value})
    else:
        run = run.assign({variable: (run[variable].dims, np.full(run[variable].shape, value))})
    assert claims <= {claim for claim, outcome in outcomes(find_entry(name), run).items() if outcome == word}

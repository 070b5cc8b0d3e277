"""Softmax attention: outcomes of the quick runs, and what leaves them open."""

import numpy as np
import pytest

from saddlescope.reproduction import entry_names, find_entry

OPEN = {
    "assumption-3": {"not-necessary": "undecided"},  # of two draws
    "digits": {"own-norm": "undecided", "ranks": "undecided"},  # of one pair
    "initial-scale": {"smaller-is-not-better": "undecided"},
    "lemma-4-2": {"as-printed": "fails"},
    "narrow-heads": {"rank-is-enough": "undecided", "one-column": "undecided"},
    "section-4-2": {"nuclear-rate": "undecided", "low-rank": "undecided"},  # four draws have no interval of the median
    "separability": {"diagonal-w-above-n-and-l": "undecided"},  # of twenty draws
    "theorem-4-1": {"raw-rate": "undecided", "raw-is-far": "undecided"},
}
"""Outcomes other than holds, agrees and seen at the quick size."""


@pytest.mark.parametrize("name", [name for name in entry_names() if name.startswith("softmax-attention/")])
def test_quick_runs(quick_run, outcomes, name):
    found = outcomes(find_entry(name), quick_run(name).run)
    expected = OPEN.get(name.partition("/")[2], {})
    assert {claim: word for claim, word in found.items() if word not in ("holds", "agrees", "seen")} == expected


@pytest.mark.parametrize(
    ("name", "unmet", "claims"),
    [
        ("initial-scale", {"spread": 0.0}, {"least-entropy"}),
        ("kkt-residuals", {"tolerance": 1e-8}, {"conditions", "incremental-rate"}),
        ("lemma-4-2", {"size": np.nan}, {"with-diagonal-separability", "gradient-vanishes"}),
        ("separability", {"worst_proof": 1e-9}, {"any-w-above-n-and-l", "diagonal-w-above-n-and-l"}),
        ("theorem-4-1", {"assumptions_hold": False}, {"theorem-4-1", "raw-rate", "raw-is-far"}),
        ("theorem-5-1", {"assumptions": False}, {"theorem-5-1", "quadrature", "equations-40-to-44"}),
    ],
)
def test_what_claims_require(quick_run, outcomes, name, unmet, claims):
    entry, run = find_entry(f"softmax-attention/{name}"), quick_run(f"softmax-attention/{name}").run
    spoilt = run.assign({key: run[key] * 0 + value if key in run else value for key, value in unmet.items()})
    found = outcomes(entry, spoilt.assign_attrs({key: value for key, value in unmet.items() if key in run.attrs}))
    assert {claim for claim, word in found.items() if word == "not tested"} == claims


@pytest.mark.parametrize(
    ("name", "variable", "claims"),
    [
        ("assumption-3", "log_lost", {"sufficient", "not-necessary"}),
        ("narrow-heads", "rank", {"rank-is-enough"}),
        ("unequal-scores", "lost", {"w-alone-loses-none"}),
    ],
)
def test_flows_that_did_not_end_and_heads_that_are_too_narrow_decide_nothing(
    quick_run, outcomes, name, variable, claims
):
    entry, run = find_entry(f"softmax-attention/{name}"), quick_run(f"softmax-attention/{name}").run
    found = outcomes(entry, run.assign({variable: run[variable] * 0 + (8 if variable == "rank" else np.nan)}))
    assert claims <= {claim for claim, word in found.items() if word == "undecided"}

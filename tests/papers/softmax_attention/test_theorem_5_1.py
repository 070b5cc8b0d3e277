"""Theorem 5.1's claims hold, and spoilt runs refute them."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.assumptions import alignment_residual, check_token_assumptions
from saddlescope.papers.softmax_attention.shared.aligned import KINDS, draw_aligned_start, draw_instance
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/theorem-5-1"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("variable", "value", "claims"),
    [
        ("error", 2e-8, ["quadrature", "quadrature-alone", "without-ii"]),
        ("excess", 2e-4, ["theorem-5-1", "alone"]),
        ("assumptions", False, ["assumptions"]),
        ("coincidence", 1e-8, ["coincide"]),
        ("closed_form", 1e-8, ["closed-form"]),
        ("second_distance", 1e-3, ["not-unique"]),
        ("loss_law", 0.05, ["loss"]),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, value, claims):
    run[variable] = run[variable] * 0 + value
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_a_second_solution_that_is_none_decides_nothing(run, outcomes):
    run["second_defect"] = run.second_defect + 1e-6
    assert outcomes(ENTRY, run)["not-unique"] == "undecided"


@pytest.mark.parametrize(("kind", "broken"), list(zip(KINDS, (None, "parallel", "paired"), strict=True)))
def test_each_kind_breaks_what_it_says_and_no_more(kind, broken):
    data = draw_instance(kind, 3, 5, 6, seed=4)
    start = draw_aligned_start(data, 7, (0.1, 0.2), seed=4)
    found = check_token_assumptions(data, start.weights)
    for name in ("equal_scores", "small_initial_loss", "orthogonal", "parallel", "paired", "aligned"):
        assert getattr(found, name).holds == (name != broken), name
    K, Q = start.weights
    assert np.abs(K @ Q.T).max() < 1e-15
    sizes = np.linalg.svd(K, compute_uv=False)[:6] ** 2 + np.linalg.svd(Q, compute_uv=False)[:6][::-1] ** 2
    assert np.all(sizes > 2 * 0.1**2 * (1 - 1e-9))
    assert np.all(sizes < 2 * 0.2**2 * (1 + 1e-9))
    keys, queries = start.coordinates(K, Q)
    assert keys == pytest.approx(np.eye(6, 7) * np.append(start.keys, 0), abs=1e-14)
    assert queries == pytest.approx(np.eye(6, 7) * np.append(start.queries, 0), abs=1e-14)
    assert alignment_residual(data, K + 1e-3, Q) > 1e-4


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"tokens": "4"}, "tokens must be odd"),
        ({"dim": "1"}, "dim must be at least 3"),
        ({"columns": "2"}, "columns must be at least 3"),
        ({"dim": "4"}, "dim must be between samples=2 and columns=3"),
        ({"smallest": "1"}, "smallest must be at most largest"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)

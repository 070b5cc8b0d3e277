"""Theorem 3.1's claims hold, and spoilt runs are refuted."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.theorem_3_1 import leading_vectors
from saddlescope.reproduction import find_entry

NAME = "deep-relu/theorem-3-1"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def other_formula(run):
    run.first_layer.values[:] *= 0.9


def content_early(run):
    run.first_layer.values[np.argmax(run.excess.values)] = 300.0


def two_neurons(run):
    run.excess.values[-1] = 1e-6


def exceeds(run):
    run.activations.values[-1, 3] = 0.9


def exceeds_in_the_first_weights(run):
    run.weights.values[-1, 0] = 0.9


def spends_too_much(run):
    run.spent.values[0] = run.budget.values[0] + 1e-6


def no_content(run):
    run.budget.values[:] *= 2


def negative_entry(run):
    run.least_entry.values[3] = -1e-3


def no_singular_vector(run):
    run.vector_error.values[3] = 1e-3


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_formula, "first-layer"),
        (content_early, "several-neurons"),
        (two_neurons, "one-neuron"),
        (exceeds, "holds"),
        (exceeds_in_the_first_weights, "holds"),
        (spends_too_much, "budget"),
        (no_content, "content"),
        (negative_entry, "lemma-a-6"),
        (no_singular_vector, "lemma-a-6"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_the_data_have_optima_of_several_neurons_and_relus_that_cut(run):
    assert int((run.excess > 1e-6).sum()) >= 3
    cut = run.relu.where((run.bound < 1) & (run.ratio < 2)) > 0
    assert int(cut.any("layer").sum()) >= 2


def test_optima_of_several_neurons_do_not_count_as_known_beyond_depth_three(run, outcomes):
    run.weights.values[np.argmax(run.excess.values), 0] = 0.9  # its bound is far above 1
    assert outcomes(ENTRY, run)["holds"] == "reproduced"


def test_vectors_of_matrices_of_both_signs_may_be_negative():
    """And those of non-negative ones are singular vectors, where the largest singular value is repeated, too."""
    rng = np.random.default_rng(0)
    signed = [leading_vectors(rng.normal(size=(4, 3))) for _ in range(20)]
    assert sum(min(u.min(), v.min()) < -1e-3 for u, v in signed) >= 15
    for A in (np.eye(3), np.diag([2.0, 2.0, 1.0]), np.zeros((2, 3))):
        u, v = leading_vectors(A)
        np.testing.assert_allclose(A @ u, np.linalg.norm(A, 2) * v, atol=1e-14)
        assert min(u.min(), v.min()) > -1e-14


def test_bounds_without_content_leave_it_undecided(run, outcomes):
    run.bound.values[:] = 2.0
    assert outcomes(ENTRY, run)["holds"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"circles": "4"}, "circles must contain 8"),
        ({"circles": "8,9"}, "circles must be one or more integers, each a multiple of 2 and at least 4"),
        (
            {"log10_distances": "-2,-1"},
            "log10_distances must be two or more numbers, each between -7 and 0, dec",
        ),
        ({"depth": "2"}, "depth must be at least 3"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)

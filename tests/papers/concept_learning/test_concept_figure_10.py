"""Figure 10: what fails and what explains it, and the authors' run against their formula."""

import numpy as np

from saddlescope.papers.concept_learning.shared.authors_programs import PROGRAMS
from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-10"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("never") == "differs"
    assert set(found.values()) <= {"seen", "agrees", "not tested", "undecided"}
    run["never"] = run.never + 3
    assert outcomes(ENTRY, run)["never"] == "agrees"


def test_the_plateau_shown_is_the_longest_of_the_batch(run):
    half = float(run.top[entry_index(run, 0, 0)])
    np.testing.assert_allclose(half, run.learned_at.max(), atol=1e-6)  # the batch is followed coarsely
    assert half > float(run.horizon)


def test_the_authors_run_is_that_of_their_program(run):
    """Forty steps of their formula, in the order and the precision of their program."""
    program, A = PROGRAMS["Figure 10"], np.diag(PROGRAMS["Figure 10"].strengths).astype(np.float32)
    A2, U = A @ A, program.start.astype(np.float32)
    W, lost = U @ U.T, 0
    for step in range(1, 41):
        W = W + np.float32(0.01) * (W @ A2 + A2 @ W - W @ A2 @ W - (A2 @ W @ W + W @ W @ A2) / 2)
        lost = lost or step * (np.linalg.eigvalsh(W.astype(float))[0] < -1e-12)
    one = run.sel(map="D.2", moment="A^2")
    assert lost == int(one.theirs_lost) == 32
    np.testing.assert_allclose(one.theirs.sel(theirs_step=40), W[0, 0], rtol=1e-4)


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "3,1,2"}, "mu must be in ascending order"),
        ({"horizon": "500"}, "horizon must be below until"),
    )

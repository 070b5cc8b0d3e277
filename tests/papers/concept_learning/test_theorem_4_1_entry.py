"""Theorem 4.1 at the quick size, and a run of SGD that diverged."""

import numpy as np

from saddlescope.models import StructuredIdentityTask
from saddlescope.reproduction import find_entry

NAME = "concept-learning/theorem-4-1"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert (found["at-the-test-point"], found["monotone-default"]) == ("holds", "agrees")
    run["flow_error"] = run.flow_error + 1e-10
    assert outcomes(ENTRY, run)["at-the-test-point"] == "fails"


def test_moments_are_those_of_the_samples(run):
    X = StructuredIdentityTask((1.0, 1.5, 2.2), (0.05, 0.3, 0.1), 1000, 5).draw(1001)
    limit = np.diag([1 / 3 + 0.05**2, 1.5**2 / 3 + 0.3**2, 2.2**2 / 3 + 0.1**2, 0, 0])
    off = np.abs(sum(np.outer(x, x) for x in X) / 3000 - limit).max()
    np.testing.assert_allclose(run.moment_error.sel(samples=1000)[1], off, rtol=1e-12)


def test_a_run_that_diverged_is_not_judged(run, outcomes):
    run.diverged.values[0, 0] = True
    assert outcomes(ENTRY, run)["sgd"] == "not tested"

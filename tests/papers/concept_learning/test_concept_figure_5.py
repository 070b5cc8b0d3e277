"""Figure 5 at the quick size: laws of the starts, and runs without its effects."""

import numpy as np

from saddlescope.papers.concept_learning.shared.two_layer_runs import entry_index, of_authors
from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-5"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) <= {"agrees", "seen", "not tested", "undecided"}


def test_random_starts_are_of_their_law(run):
    assert bool(run.positive.sel(law="positive").all())
    assert 0.4 < float(run.positive.sel(law="normal").mean()) < 0.6


def test_a_rise_by_a_major_entry_is_not_that_of_the_paper(run, outcomes):
    rise = int(np.argmax(np.diff(run.authors_turning_loss.values)))
    run.authors_push[rise, entry_index(of_authors(run), 1, 1), 0] = 10.0
    assert outcomes(ENTRY, run)["rise"] == "differs"


def test_without_two_descents_the_rise_is_not_tested(run, outcomes):
    run.authors_turning_loss[1:-1] = np.linspace(1.0, 0.0, run.sizes["authors_turn"])[1:-1]
    found = outcomes(ENTRY, run)
    assert (found["two-descents"], found["rise"]) == ("differs", "not tested")

"""Early alignment at the quick size, and networks that align in other ways."""

import numpy as np

from saddlescope.reproduction import find_entry

NAME = "concept-learning/early-alignment"
ENTRY = find_entry(NAME)


def test_outcomes_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"agrees", "seen"}


def test_turned_neurons_and_those_that_align_at_once(run, outcomes):
    at_once = run.copy(deep=True)
    at_once.first.values[0], at_once.second.values[0] = run.first.values[1], run.second.values[1]
    assert outcomes(ENTRY, at_once)["too-large"] == "not seen"
    run.first.values[-1] = run.first.values[-1] @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    found = outcomes(ENTRY, run)
    assert (found["aligned"], found["every-neuron"]) == ("differs", "not seen")

"""Figures 13 and 14: statistics on runs whose answer is known."""

import numpy as np

from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-13"
ENTRY = find_entry(NAME)
DEEP = "three layers, d = 3"


def value(run, name):
    (claim,) = (claim for claim in ENTRY.claims if claim.name == name)
    return claim.judge(run).value


def test_networks_at_the_test_point_do_not_memorize(run, outcomes):
    run.descents.loc[{"kind": DEEP}] = 2
    mu = run.mu.transpose("task", "concept").values
    run.peak_output.values[:] = (mu * [0.1, 0.9])[None, :, None]
    run.learned.loc[{"kind": DEEP}] = 100.0
    assert value(run, "memorizing") == 1
    run.learned.loc[{"kind": DEEP, "task": "large"}] = np.nan
    assert value(run, "memorizing") == 0.5
    run.peak_output.values[:] = mu[None, :, None]
    assert value(run, "memorizing") == 0
    run.descents.loc[{"kind": DEEP}] = 1
    assert outcomes(ENTRY, run)["memorizing"] == "not tested"

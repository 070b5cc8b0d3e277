"""The assumptions' numbers agree with other computations."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank.assumptions import NEAR, noisy_ends
from saddlescope.reproduction import find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/assumptions"
ENTRY = find_entry(NAME)


@pytest.fixture(scope="module")
def instance():
    params = ENTRY.configure("quick")
    network = params.task_of(params.seeds[-1]).network
    return network, incremental_learning(network, 2 * params.dim, max_stages=5).stages


def test_an_end_elsewhere_is_seen(instance):
    """The second pair is not one of Algorithm 1: from stage 1 with what enters stage 3, to stage 3."""
    network, stages = instance
    pairs = [(stages[1], stages[2]), (stages[1], stages[3])]
    right, wrong = noisy_ends(network, pairs, 1e-3, 2, 1e-4, np.random.default_rng(0), lambda fraction, note: None)
    assert (right < NEAR / 10).all()
    assert (wrong > NEAR).all()


def test_one_that_leaves_needs_a_push(run):
    (leaving,) = (claim for claim in ENTRY.claims if claim.name == "leaving")
    for gradient, outcome in ((0.1, "seen"), (0.0, "not seen")):
        run.left_gradient.values[:, 5] = gradient
        assert str(leaving.judge(run).outcome) == outcome


def test_instances_of_different_length_are_judged_together(run, outcomes):
    shorter = run.isel(seed=[0], stage=slice(0, 10))
    together = xr.concat([shorter, run.isel(seed=[1])], dim="seed", join="outer")
    assert outcomes(ENTRY, together)["noise-robust"] == "seen"
    together.end_distance.values[0, 9, 0] = 1.0
    assert outcomes(ENTRY, together)["noise-robust"] == "not seen"

"""Softmax heads: spoilt runs refute their claims, and values that fall dormant return when Algorithm 1 says so."""

import jax
import numpy as np
import pytest

from saddlescope.papers.beyond.attention_heads import _learned, _network
from saddlescope.reproduction import find_entry
from saddlescope.theory import incremental_learning

PARAMS = find_entry("beyond/attention-heads").configure("default", {})


def other_algorithm(run):
    run.difference.values[1] = np.inf


def other_product(run):
    run.product_error.values[1, 0] = 0.1


def key_first(run):
    run["first"].loc[{"weights": "KQ"}].values[1, 0] = 1e-3


def no_tie(run):
    run.tied.values[1] = False


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [(other_algorithm, "algorithm-1"), (other_product, "products"), (key_first, "values-first"), (no_tie, "ties")],
)
def test_a_spoilt_run_of_softmax_heads_refutes_the_claim(quick_run, outcomes, spoil, claim):
    entry = find_entry("beyond/attention-heads")
    run = quick_run("beyond/attention-heads").run.copy(deep=True)
    run.product_error.values[:], run.resolved.values[:] = 1e-6, 1.0  # a quick run separates less
    assert outcomes(entry, run)[claim] == "reproduced"
    spoil(run)
    assert outcomes(entry, run)[claim] == "refuted"


def test_products_that_fall_dormant_return_as_in_algorithm_1():
    with jax.enable_x64(True):
        network = _network(PARAMS, np.random.default_rng(1))
        learned = _learned(network, 9)
        greedy = incremental_learning(network, 8, max_stages=9)
    assert [stage.left for stage in learned.stages[8:]] == [1, 2]  # the product that left is the next to enter
    assert learned.staircase.supports == greedy.staircase.supports
    np.testing.assert_allclose(learned.staircase.times, greedy.staircase.times, rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, greedy.staircase.losses, rtol=1e-9)

"""Softmax heads: values that fall dormant return when Algorithm 1 says so."""

import jax
import numpy as np

from saddlescope.papers.beyond.extensions.attention_heads import Params, learn_products, teacher_network
from saddlescope.theory import incremental_learning


def test_products_that_fall_dormant_return_as_in_algorithm_1():
    with jax.enable_x64(True):
        network = teacher_network(Params(), np.random.default_rng(1))
        learned = learn_products(network, 9)
        greedy = incremental_learning(network, 8, max_stages=9)
    assert [stage.left for stage in learned.stages[8:]] == [1, 2]  # the product that left is the next to enter
    assert learned.staircase.supports == greedy.staircase.supports
    np.testing.assert_allclose(learned.staircase.times, greedy.staircase.times, rtol=1e-9)
    np.testing.assert_allclose(learned.staircase.losses, greedy.staircase.losses, rtol=1e-9)

"""Theorem 4.1: its rate where it has time to converge, and the rival solution."""

import numpy as np

from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.papers.softmax_attention.theorem_4_1 import least_square

NAME = "softmax-attention/theorem-4-1"


def test_errors_of_conditioned_data_fall_like_one_over_ln_t(run):
    time, error = run.log_time.values, run.error.values[run.group.values == "conditioned"]
    late = (time > 1e3) & (time < 1e6)
    slopes = [np.polyfit(np.log(time[late]), np.log(row[late]), 1)[0] for row in error]
    np.testing.assert_allclose(slopes, -1, atol=0.02)


def test_the_least_square_is_feasible_and_a_combination_of_active_features():
    np.testing.assert_allclose(least_square(np.array([[2.0, 1.0]])), [0.4, 0.2], rtol=1e-12)
    B = gaussian_tokens(4, 5, 30, seed=1).features.reshape(-1, 30)
    beta = least_square(B)
    active = B[B @ beta < 1 + 1e-9]
    multipliers = np.linalg.lstsq(active.T, beta, rcond=None)[0]
    np.testing.assert_allclose(active.T @ multipliers, beta, atol=1e-10)
    assert (B @ beta).min() > 1 - 1e-9
    assert multipliers.min() > 0

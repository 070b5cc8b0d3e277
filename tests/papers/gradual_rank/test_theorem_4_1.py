"""Theorem 4.1: the theory predicts the constants of the flow."""

import numpy as np

NAME = "gradual-rank/theorem-4-1"


def test_the_theory_predicts_the_constants_of_the_flow(run):
    """C_k of the flow, at the smallest scale where its tolerance still shows it, without any common code."""
    unit = 64 * np.log(10)
    measured = ((run.found_time.sel(scale=-64) - run.predicted_time) * unit).transpose("seed", "stage").values
    chosen = run.separated.transpose("seed", "stage").values == 1
    assert chosen.sum() >= 2
    expected = run.predicted_constant.transpose("seed", "stage").values[chosen]
    np.testing.assert_allclose(measured[chosen], expected, rtol=1e-2)

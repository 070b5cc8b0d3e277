"""The solver of Lemmas 4.1 and A.1 against conserved quantities and the softmax itself."""

import numpy as np
import pytest

from saddlescope.models import SelectionLoss, attention_loss, gaussian_tokens
from saddlescope.papers.softmax_attention.shared.parameter_flow import (
    KEYS_AND_QUERIES,
    SQUARES,
    draw_cases,
    parameter_flow,
)


def test_squares_are_conserved_and_unequal_sums_of_squares_part():
    """Equations 10 to 17: xi_k^2 - xi_q^2 and w+ w- are conserved; equation 4 is needed."""
    case = next(draw_cases([(4, 5, 8)], 1, 0.3, seed=2, from_zero=False))
    (k, q), (plus, minus), times = case.keys, case.squares, np.log([1e3])
    keys = parameter_flow(case.data, case.loss, KEYS_AND_QUERIES, case.keys, times)
    squares = parameter_flow(case.data, case.loss, SQUARES, case.squares, times)
    np.testing.assert_allclose(keys.first**2 - keys.second**2, [k**2 - q**2], rtol=0, atol=1e-10)
    np.testing.assert_allclose(squares.first * squares.second, [plus * minus], rtol=1e-10)
    other = parameter_flow(case.data, case.loss, KEYS_AND_QUERIES, (2 * k, q / 2), times)  # from the same beta(0)
    assert np.abs(other.beta - squares.beta).max() > 1e-3 * np.abs(squares.beta).max()


@pytest.mark.parametrize("parametrisation", [KEYS_AND_QUERIES, SQUARES])
def test_the_parameter_flow_is_that_of_the_softmax_in_plain_time(parametrisation):
    """Small steps of Euler in raw time with the softmax's own gradient, extrapolated: no code is shared."""
    import jax

    data = gaussian_tokens(2, 3, 4, seed=3, gap=1.0)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    rng = np.random.default_rng(0)
    start = rng.normal(size=4), rng.normal(size=4)
    gradient = jax.jit(jax.grad(lambda parts: attention_loss(data)(parametrisation.beta(*parts)), allow_int=False))

    def euler(steps, until=0.5):
        parts = start
        for _ in range(steps):
            parts = tuple(part - until / steps * g for part, g in zip(parts, gradient(parts), strict=True))
        return np.array(parametrisation.beta(*parts))

    flow = parameter_flow(data, loss, parametrisation, start, np.log([0.5]))
    coarse, fine, finest = (euler(steps) for steps in (64, 128, 256))
    twice = 2 * fine - coarse
    extrapolated = (4 * (2 * finest - fine) - twice) / 3
    np.testing.assert_allclose(flow.beta[0], extrapolated, rtol=1e-5, atol=1e-6)

"""Logistic regression by the protocol of a margin loss: a foreign solver, and the direction that it converges to."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit, logsumexp

from saddlescope.flow import MarginLoss, diagonal_margin_flow, matrix_margin_flow


class Logistic:
    """The mean of ln(1 + e^-u) over margins u (n, 1)."""

    def log_rates(self, margins):
        return -np.logaddexp(0, margins) - np.log(len(margins)), np.ones_like(margins)

    def rate_jacobian(self, margins, log_factor=0.0):
        rates = np.exp(self.log_rates(margins)[0] + log_factor)
        return rates, -(rates * expit(margins))[:, :, None]

    def log_excess(self, margins):
        u = margins[:, 0]
        small = np.log1p(-np.exp(-np.maximum(u, 1)) / 2) - u  # ln ln(1 + e^-u) where u is large
        each = np.where(u > 30, small, np.log(np.logaddexp(0, -np.minimum(u, 30))))
        return float(logsumexp(each) - np.log(len(u)))


LABELLED = np.array([[2.0, 0.3, 0.0], [1.0, 1.5, 0.2], [0.5, -0.2, 1.0], [3.0, 1.0, -0.5]])  # rows y x


def test_plain_weights_are_the_first_column_of_a_matrix():
    """w' = mean_i y_i x_i / (1 + e^(u_i)) from w = 0 to t = 1e3, against SciPy, and at ln t = 1e6 the hard margin."""
    assert isinstance(Logistic(), MarginLoss)
    features, queries = LABELLED[:, None, :], np.tile([1.0, 0.0, 0.0], (4, 1))
    times = np.log([10.0, 1e3])
    flow = matrix_margin_flow(Logistic(), features, queries, log_until=1e6, tolerance=1e-8, record=times)

    def slope(_, w):
        return LABELLED.T @ expit(-LABELLED @ w) / 4

    exact = solve_ivp(slope, (0, 1e3), np.zeros(3), "DOP853", np.exp(times), rtol=1e-12, atol=1e-14).y.T
    np.testing.assert_allclose(flow.margins[:2, :, 0], exact @ LABELLED.T, rtol=1e-6)
    w = flow.direction(-1)[:, 0]
    margins, normal = LABELLED @ w, w / np.linalg.norm(w)
    support = margins < margins.min() * (1 + 1e-3)
    dual = np.linalg.lstsq(LABELLED[support].T, normal, rcond=None)[0]  # Karush-Kuhn-Tucker: w is a sum of supports
    assert dual.min() > 0
    np.testing.assert_allclose(LABELLED[support].T @ dual, normal, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-2, 1.0])
def test_diagonal_weights_are_followed_as_by_a_foreign_solver(scale):
    flow = diagonal_margin_flow(
        Logistic(), LABELLED[:, None, :], scale, log_until=np.log(50.0), tolerance=1e-8, record=[np.log(5.0)]
    )

    def slope(_, w):
        beta = (w[:3] ** 2 - w[3:] ** 2) / 2
        g = LABELLED.T @ expit(-LABELLED @ beta) / 4
        return np.concatenate([g * w[:3], -g * w[3:]])

    start = np.concatenate([flow.start.plus, flow.start.minus])
    w = solve_ivp(slope, (0, 50.0), start, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    np.testing.assert_allclose(flow.margins[-1, :, 0], LABELLED @ (w[:3] ** 2 - w[3:] ** 2) / 2, rtol=1e-6)

"""The explicit flow in any weights: against gradient flow of the plain loss in raw time, and against naive rates."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss, attention_loss
from weight_flow import CutShortError, weight_flow

DATA = gaussian_tokens(4, 5, 8, seed=1)
LOSS = SelectionLoss(DATA.optimal_scores + 1.0, DATA.gaps)


def _margins(weights):
    return DATA.features @ (weights["k"] * weights["q"])


def _start():
    return {"k": np.linspace(0.1, 0.3, 8), "q": np.linspace(0.2, -0.1, 8)}


def test_follows_plain_gradient_flow_in_raw_time():
    gradient = jax.jit(jax.grad(lambda w: attention_loss(DATA)(w[0] * w[1])))
    start = np.stack(list(_start().values()))
    plain = solve_ivp(
        lambda _, w: -np.asarray(gradient(w.reshape(2, 8))).ravel(),
        (0, 20),
        start.ravel(),
        "DOP853",
        rtol=1e-10,
        atol=1e-12,
    )
    loss = SelectionLoss(DATA.optimal_scores, DATA.gaps)
    flow = weight_flow(loss, _margins, _start(), record=[np.log(20.0)], tolerance=1e-11)
    np.testing.assert_allclose(np.concatenate([flow.weights["k"][0], flow.weights["q"][0]]), plain.y[:, -1], rtol=1e-7)
    assert flow.energy_defects[0] < 1e-9


class _Naive(SelectionLoss):
    """Rates as the paper writes them, in float64: sigma_l (delta_l - sum delta sigma), with a separate softmax."""

    def log_rates(self, margins):
        scores = np.concatenate([np.zeros((len(margins), 1)), -margins], axis=1)
        sigma = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        gamma = self.optimal_scores[:, None] - np.concatenate([np.zeros((len(margins), 1)), self.gaps], axis=1)
        f = np.sum(gamma * sigma, axis=1, keepdims=True)
        total = sigma[:, :1] * (gamma[:, :1] - f)  # the push on the optimal token is all rounding beyond margins of 36
        rates = np.exp(-f) / len(margins) * total * sigma[:, 1:] / sigma[:, 1:].sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return np.log(np.abs(rates)), np.sign(rates)


@pytest.mark.slow
def test_naive_rates_are_not_returned_as_a_success():
    naive = _Naive(LOSS.optimal_scores, DATA.gaps)
    early, true = (weight_flow(loss, _margins, _start(), record=[1.0], tolerance=1e-8) for loss in (naive, LOSS))
    np.testing.assert_allclose(early.margins, true.margins, rtol=1e-6)
    given = {"tolerance": 1e-6, "max_evaluations": 3000}
    with pytest.raises(CutShortError) as raised:
        weight_flow(naive, _margins, _start(), record=[115.0], **given)
    weight_flow(LOSS, _margins, _start(), record=[raised.value.log_time], **given)

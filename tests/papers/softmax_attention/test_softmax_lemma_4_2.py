"""Lemma 4.2: the minimum that contradicts it as printed is one of the softmax loss."""

import numpy as np
from scipy.optimize import minimize

from saddlescope.models import SelectionLoss, attention_loss, gaussian_tokens, separability
from saddlescope.papers.softmax_attention.lemma_4_2 import strict_minimum


def test_the_minimum_is_one_of_the_softmax_loss():
    import jax

    seed = next(s for s in range(100) if not separability(gaussian_tokens(4, 5, 3, seed=s), diagonal=True).separable)
    data = gaussian_tokens(4, 5, 3, seed=seed)
    loss, naive = SelectionLoss(data.optimal_scores, data.gaps), attention_loss(data)
    gradient = jax.jit(jax.grad(naive))
    beta = minimize(lambda x: float(naive(x)), np.zeros(3), jac=lambda x: np.asarray(gradient(x)), method="BFGS").x
    found = strict_minimum(loss, data.features, beta)
    assert found is not None
    assert np.abs(np.asarray(gradient(found))).max() < 1e-12
    assert np.linalg.eigvalsh(np.asarray(jax.hessian(naive)(found)))[0] > 0
    assert strict_minimum(loss, data.features, beta * 1.001) is None  # not there yet


def test_no_minimum_is_found_where_there_is_none():
    data = gaussian_tokens(3, 4, 12, seed=0)
    assert separability(data, diagonal=True).separable
    assert strict_minimum(SelectionLoss(data.optimal_scores, data.gaps), data.features, np.zeros(12)) is None

"""Losses of many flows: the forms of their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.loss.abstract_loss import as_loss
from saddlescope.loss.batched import gradients, with_fewest_products
from saddlescope.loss.stacked import StackedRuns
from saddlescope.models import diagonal_linear_network


def _losses(count, samples, p):
    rng = np.random.default_rng(samples)
    return [
        diagonal_linear_network(rng.standard_normal((samples, p)), rng.standard_normal(samples)) for _ in range(count)
    ]


@pytest.mark.parametrize("samples", [2, 4, 5, 40])
@pytest.mark.parametrize("shared", [False, True])
def test_fewer_products_give_the_same_gradients(samples, shared):
    losses, points = _losses(3, samples, 8), np.random.default_rng(1).standard_normal((3, 8))
    batch = StackedRuns.of("loss", losses[0] if shared else losses, 3)
    fewer = with_fewest_products(batch)
    for loss, point, gradient in zip(
        [losses[0]] * 3 if shared else losses, points, gradients(fewer, points), strict=True
    ):
        X, y = np.asarray(loss.inputs), np.asarray(loss.targets)
        np.testing.assert_allclose(gradient, 2 / samples * X.T @ (X @ point - y), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gradients(fewer, points), gradients(batch, points), rtol=1e-12, atol=1e-13)
    numbers = sum(array.size for array in jax.tree.leaves(fewer)) // (1 if shared else 3)
    assert numbers == (samples * 8 + samples if samples <= 4 else 8 * 8 + 8)


def test_other_losses_are_left_as_they_are():
    batch = StackedRuns.of("loss", as_loss(lambda beta: jnp.sum(beta**4)), 2)
    assert with_fewest_products(batch) is batch


def test_a_quadratic_form_has_the_loss_up_to_its_value_at_zero():
    (loss,) = _losses(1, 12, 4)
    form, at = loss.with_fewest_products(), jnp.asarray([0.3, -2.0, 1.0, 0.5])
    np.testing.assert_allclose(form(at), loss(at) - loss(jnp.zeros(4)), rtol=1e-12)
    value, gradient = form.value_and_gradient(at)
    assert value == form(at)
    np.testing.assert_allclose(gradient, loss.value_and_gradient(at)[1], rtol=1e-12)

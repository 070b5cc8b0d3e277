"""The numbers of a policy may be three times as large or small: results stay within their tolerance."""

from dataclasses import fields, replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, FactorInit
from saddlescope.flow.diagonal.surrogate_stepper import SurrogateStepper, WindowPolicy
from saddlescope.flow.factored.exponential_integrator import FactoredPolicy, FactoredStepper
from saddlescope.flow.status import LOCAL_SHARE
from saddlescope.loss.compiled import CompiledLoss
from saddlescope.numerics.ndf import AbstractSystem, StepControl, Stepper
from saddlescope.numerics.tree_layout import TreeLayout

TOLERANCE = 1e-5
TARGET = np.diag([2.0, 1.0])


def distance(products):
    return 0.5 * jnp.sum((products[0] - TARGET) ** 2)


def coupled(beta):
    a, b = jnp.array([1.0, 0.6, 0.8]), jnp.array([1.0, -0.5, 0.7])
    return 0.5 * jnp.sum(a * (b - beta) ** 2) + 0.1 * jnp.prod(jnp.cos(beta))


def _varied(policy):
    """Return all policies with one number changed; whole numbers stay at least 1, pairs are left out."""
    varied = []
    for field in fields(policy):
        value = getattr(policy, field.name)
        for factor in (1 / 3, 3.0):
            if isinstance(value, int):
                value = max(1, round(factor * getattr(policy, field.name)))
            elif isinstance(value, float):
                value = factor * getattr(policy, field.name)
            if value != getattr(policy, field.name):
                varied.append(pytest.param(replace(policy, **{field.name: value}), id=f"{field.name}={value:.3g}"))
    return varied


@cache
def _log_products(policy):
    """Logarithm of the second mode before it is learned, in a flow of two factors after the first stage."""
    origin = FactorInit([(np.array([[1.0, 0.3], [0.2, 0.9]]), np.array([[0.8, -0.2], [0.1, 1.1]]))], -60.0).state()
    layout = TreeLayout.of((TARGET,))
    loss = CompiledLoss(distance, layout)
    stepper = FactoredStepper(
        loss, origin, 0.9 * 60, symmetries=(), tolerance=TOLERANCE, local=TOLERANCE * LOCAL_SHARE, policy=policy
    )
    while stepper.t < stepper.until:
        stepper.step()
    return stepper.state[0].log_singular_values()


@pytest.mark.parametrize("policy", _varied(FactoredPolicy()))
def test_factored_flows(policy):
    found, usual = _log_products(policy), _log_products(FactoredPolicy())
    assert usual[1] < -5  # not yet learned: a shift of its time by dt is one of 120 dt here
    np.testing.assert_allclose(found, usual, atol=120 * 3 * TOLERANCE)


@cache
def _integrals(policy):
    """Integrals of the gradient when one of three coordinates is learned, in e-folds."""
    start = DiagonalInit(np.array([1.0, 0.4, -0.3]), np.array([0.5, -0.7, 0.9]), -40.0)
    coordinates = start.flow_coordinates()
    loss = CompiledLoss(coupled, coordinates.layout)
    stepper = SurrogateStepper(
        loss, coordinates, start.origin(), 1.4, tolerance=TOLERANCE, local=TOLERANCE * LOCAL_SHARE, policy=policy
    )
    while stepper.t < 1.4:
        stepper.step()
    return stepper.y


@pytest.mark.parametrize("policy", _varied(WindowPolicy()))
def test_windows_of_a_surrogate(policy):
    usual = _integrals(WindowPolicy())
    np.testing.assert_allclose(_integrals(policy), usual, atol=3 * TOLERANCE * float(1 + np.abs(usual).max()))


class _VanDerPol(AbstractSystem):
    def slope(self, y):
        return np.array([y[1], 100 * ((1 - y[0] ** 2) * y[1] - y[0])])

    def jacobian(self, y):
        return np.arange(2), np.array([[0, 1], [-200 * y[0] * y[1] - 100, 100 * (1 - y[0] ** 2)]])


@cache
def _end(control):
    stepper = Stepper(_VanDerPol(), np.array([2.0, 0.0]), 0.5, rtol=1e-7, atol=1e-7, control=control)
    while stepper.t < 0.5:
        stepper.step()
    return stepper.y


@pytest.mark.parametrize("control", [given for given in _varied(StepControl()) if given.values[0].safety <= 1])
def test_steps_of_ndf(control):
    """A safety factor above 1 would ask for steps that fail."""
    np.testing.assert_allclose(_end(control), _end(StepControl()), atol=1e-5)

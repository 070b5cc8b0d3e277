"""Lemma 4.2: another solver conserves as well, one step of descent does not, and wrong weights are seen."""

import jax
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, gradient_flow
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/lemma-4-2"
ENTRY = find_entry(NAME)


def test_a_step_of_descent_multiplies_kappa_by_what_the_heading_says():
    u, v, g, eta = 0.7, -0.2, 1.3, 0.05
    after = (u + eta * v * g) ** 2 - (v + eta * u * g) ** 2
    assert after == pytest.approx((u**2 - v**2) * (1 - eta**2 * g**2), rel=1e-14)


def test_this_packages_flow_has_the_same_weights(run):
    params = ENTRY.configure("quick")
    with jax.enable_x64(True):
        task = params.task()
        start = DiagonalInit(task.u0, task.v0, log_scale=params.log10_scale * np.log(10))
        times = run.time.values
        flow = gradient_flow(task.network, start, until=params.until, tolerance=1e-8, record=times)
    u, v = flow.parameters(times)
    np.testing.assert_allclose(u, run.u, atol=1e-6)
    np.testing.assert_allclose(v, run.v, atol=1e-6)
    kappa = (u - v) * (u + v)
    assert abs(kappa - kappa[0]).max() < 1e-10

"""Weights given by logarithms: they are those of the run they were taken from, at any size, and noise adds to them."""

import numpy as np
import pytest
from tests import problems

from saddlescope.flow import DiagonalInit, LogDiagonalInit, ParameterInit, ResumeFrom, gradient_flow
from saddlescope.models import diagonal_linear_network

LOG_ALPHA = -32 * float(np.log(10))
UNTIL = 60.0


@pytest.fixture(scope="module")
def loss():
    features = np.array(problems.RETURNING_FEATURES)
    return diagonal_linear_network(features, features @ np.array(problems.RETURNING_TEACHER))


@pytest.fixture(scope="module")
def start():
    u, v = np.random.default_rng(0).standard_normal((2, 3))
    return DiagonalInit(u, v, LOG_ALPHA)


@pytest.fixture(scope="module")
def whole(loss, start):
    return gradient_flow(loss, start, until=UNTIL, tolerance=1e-6, level=0.1)


@pytest.mark.parametrize("cut", [0.0, 1.0, 15.0])
def test_a_run_goes_on_as_if_it_had_not_been_cut(loss, start, whole, cut):
    """Also where a coordinate that is learned now leaves later, and returns with the other sign."""
    middle = LogDiagonalInit.of(ResumeFrom(start, whole.path(np.array([cut]))[0]))
    rest = gradient_flow(loss, middle, until=UNTIL - cut, tolerance=1e-6, level=0.1)
    expected = [c for c in whole.crossings if c.time > cut]
    assert [(c.index, c.rising, c.sign) for c in rest.crossings] == [(c.index, c.rising, c.sign) for c in expected]
    np.testing.assert_allclose([c.time + cut for c in rest.crossings], [c.time for c in expected], rtol=1e-5)


def test_noise_adds_to_the_weights_it_names_and_leaves_the_others_alone(start, whole):
    middle = LogDiagonalInit.of(ResumeFrom(start, whole.end.origin()))
    u, v = middle.parameters()
    du, dv = np.array([0.1, 0.0, 0.0]), np.array([-0.2, 0.05, 0.0])
    noisy = middle.shifted(du, dv)
    np.testing.assert_allclose(noisy.parameters(), (u + du, v + dv), rtol=1e-12, atol=1e-15)
    for name in ("log_sum", "log_difference", "sum_sign", "difference_sign"):
        assert getattr(noisy, name)[2] == getattr(middle, name)[2]
    assert min(middle.log_sum[2], middle.log_difference[2]) < -100  # what float64 weights would have lost
    np.testing.assert_allclose(
        noisy.log_sum[0] + noisy.log_difference[0], np.log(abs((u + du) ** 2 - (v + dv) ** 2)[0]), rtol=1e-12
    )


@pytest.mark.parametrize(("u", "v"), [(0.5, 0.25), (-0.5, 0.25), (0.25, -0.5), (-0.25, -0.5), (0.3, 0.3), (0.3, -0.3)])
def test_all_signs_of_weights(u, v):
    start = LogDiagonalInit.at_weights(np.array([u, 1.0]), np.array([v, 0.0]), log_scale=-1.0)
    np.testing.assert_allclose(start.parameters(), ([u, 1.0], [v, 0.0]), rtol=1e-14, atol=1e-16)
    assert start.flow_coordinates().point(start.origin())[0] == pytest.approx(u * v, rel=1e-14)
    assert start.at(start.parameters()).log_sum[0] == pytest.approx(start.log_sum[0], rel=1e-13)


def test_plain_time_is_that_of_the_weights_own_flow(loss):
    u, v = np.array([0.5, -0.2, 0.1]), np.array([0.1, 0.3, -0.4])
    logs = gradient_flow(loss, LogDiagonalInit.at_weights(u, v, log_scale=-1.0), until=0.5, tolerance=1e-7)
    plain = gradient_flow(lambda w: loss(w[0] * w[1]), ParameterInit((u, v)), until=0.5, tolerance=1e-7)
    np.testing.assert_allclose(logs.values[-1], np.prod(plain.values[-1].reshape(2, 3), axis=0), atol=1e-6)


def test_what_is_not_kept_stays_zero(loss, start):
    only = LogDiagonalInit.of(start).only(np.array([True, False, True]))
    run = gradient_flow(loss, only, until=3.0, tolerance=1e-4)
    assert (run.values[:, 1] == 0).all()
    assert np.abs(run.values[-1, [0, 2]]).max() > 0.1

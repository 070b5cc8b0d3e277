"""The stiff solver alone, on systems with known solutions."""

import numpy as np
import pytest
from scipy.linalg import expm

from saddlescope.numerics.ndf import AbstractSystem, StepError, Stepper

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)  # exact for the polynomials of all orders
STIFF = np.array([[-1000.0, 999.0], [0.0, -1.0]])


class Linear(AbstractSystem):
    def __init__(self, matrix):
        self.matrix, self.slopes = matrix, 0

    def slope(self, y):
        self.slopes += 1
        return self.matrix @ y

    def jacobian(self, y):
        return np.arange(len(y)), self.matrix


def _run(system, start, until, tolerance):
    stepper = Stepper(system, start, until, rtol=tolerance, atol=tolerance)
    return stepper, _finish(stepper)


def _finish(stepper):
    pieces = []
    while stepper.t < stepper.until:
        pieces.append(stepper.step())
    return pieces


def test_stiff_linear_system_against_the_matrix_exponential():
    start = np.array([3.0, 1.0])
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        system = Linear(STIFF)
        stepper, pieces = _run(system, start, 2.0, tolerance)
        times = np.linspace(0, 2, 41)[1:]
        states = [next(piece for piece in pieces if time <= piece.end)(time) for time in times]
        errors.append(max(np.abs(y - expm(STIFF * t) @ start).max() for t, y in zip(times, states, strict=True)))
        assert stepper.t == 2.0
        assert system.slopes < 500  # an explicit method needs more than 1000 for stability alone
    assert errors[0] < 30e-4
    assert errors[1] < 30e-6
    assert errors[2] < 30e-8


def test_a_piece_ends_in_the_accepted_states_and_its_slope_is_its_derivative():
    system = Linear(STIFF)
    stepper = Stepper(system, np.array([3.0, 1.0]), 2.0, rtol=1e-6, atol=1e-6)
    for _ in range(30):
        before, (start, piece) = stepper.y, (stepper.t, stepper.step())
        assert (piece.start, piece.end) == (start, stepper.t)
        np.testing.assert_allclose(piece(piece.start), before, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(piece(piece.end), stepper.y, rtol=1e-15)
        for end in (piece.end, (piece.start + piece.end) / 2):
            half = (end - piece.start) / 2
            gauss = piece.slopes(piece.start + half * (1 + NODES))
            np.testing.assert_allclose(half * WEIGHTS @ gauss, piece(end) - before, rtol=1e-6, atol=1e-13)


def test_a_wrong_jacobian_costs_steps_but_no_accuracy():
    system = Linear(STIFF)
    system.jacobian = lambda y: (np.arange(2), 0.7 * STIFF)
    stepper, _ = _run(system, np.array([3.0, 1.0]), 1.0, 1e-6)
    np.testing.assert_allclose(stepper.y, expm(STIFF) @ np.array([3.0, 1.0]), atol=3e-5)


def test_columns_that_are_0_need_not_be_named():
    """y' = A y with A = [[0, 0, 7], [0, 0, 0], [0, 0, -900]]: only the last column matters."""
    matrix = np.zeros((3, 3))
    matrix[:, 2] = 7, 0, -900

    class Named(Linear):
        def jacobian(self, y):
            return np.array([2]), self.matrix[:, 2:]

    runs = [_run(system(matrix), np.ones(3), 1.0, 1e-7)[1] for system in (Linear, Named)]
    np.testing.assert_array_equal([piece.end for piece in runs[0]], [piece.end for piece in runs[1]])
    np.testing.assert_allclose(runs[1][-1](1.0), runs[0][-1](1.0), rtol=1e-13)
    np.testing.assert_allclose(runs[1][-1](1.0), expm(matrix) @ np.ones(3), atol=1e-6)


def test_going_back_repeats_the_steps_to_the_last_bit():
    stepper = Stepper(Linear(STIFF), np.array([3.0, 1.0]), 2.0, rtol=1e-6, atol=1e-6)
    for _ in range(25):
        stepper.step()
    stepper.limit(0.9 * stepper.h)  # the step size has just changed, so nothing is remembered of the last Jacobian
    saved = stepper.save()
    first = [stepper.step() for _ in range(9)]
    stepper.restore(saved)
    for piece in first:
        again = stepper.step()
        assert (again.start, again.end) == (piece.start, piece.end)
        np.testing.assert_array_equal(again.differences, piece.differences)


def test_nan_beyond_a_wall_is_reported_as_such():
    class Wall(Linear):
        def slope(self, y):
            return np.where(y < 0.5, 1.0, np.nan)

    stepper = Stepper(Wall(np.zeros((1, 1))), np.zeros(1), 1.0, rtol=1e-6, atol=1e-6)
    with pytest.raises(StepError) as failure:
        _finish(stepper)
    assert not failure.value.finite
    np.testing.assert_allclose(stepper.t, 0.5, rtol=1e-6)

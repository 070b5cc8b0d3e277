"""The stiff solver for many systems alone, on systems with known solutions, and its formulas against polynomials."""

import numpy as np
import pytest
from scipy.linalg import expm

from saddlescope.numerics import ndf_coefficients
from saddlescope.numerics.interpolants import DifferenceInterpolants
from saddlescope.numerics.ndf import Interpolant
from saddlescope.numerics.ndf_batched import AbstractSystems, BatchStepper

STIFF = np.array([[[-1000.0, 999.0], [0.0, -1.0]], [[-5.0, 2.0], [1.0, -3.0]], [[-1e6, 0.0], [3.0, -0.1]]])
START = np.array([[3.0, 1.0], [1.0, -1.0], [2.0, 1.0]])


class Linear(AbstractSystems):
    def __init__(self, matrices, error=1.0):
        self.matrices, self.error, self.slopes = matrices, error, 0

    def slope(self, y):
        self.slopes += 1
        return np.einsum("nij,nj->ni", self.matrices, y)

    def refresh(self, rows, y):
        pass

    def newton_inverse(self, rows, y, c):
        return np.linalg.inv(np.eye(2) - self.error * c[:, None, None] * self.matrices[rows])

    def shorten(self, rows, y, moved, slope):
        return np.ones(len(rows))

    def keep(self, rows):
        self.matrices = self.matrices[rows]


def _finish(systems, tolerance, until=2.0):
    stepper = BatchStepper(systems, START, until, rtol=tolerance, atol=tolerance)
    parts = []
    while len(stepper.running):
        parts.append(stepper.tick())
    return stepper, DifferenceInterpolants.join(parts)


def test_stiff_linear_systems_against_the_matrix_exponential():
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        systems = Linear(STIFF)
        stepper, pieces = _finish(systems, tolerance)
        assert systems.slopes < 500  # an explicit method needs a million for stability alone
        assert stepper.stuck == {}
        worst = 0.0
        for number, (matrix, start) in enumerate(zip(STIFF, START, strict=True)):
            own = pieces[pieces.system == number]
            np.testing.assert_array_equal(own.start[1:], own.end[:-1])
            assert (own.start[0], own.end[-1]) == (0, 2)
            np.testing.assert_array_equal(own.before[1:], own.after[:-1])
            np.testing.assert_allclose(own.at(-np.ones(len(own.end))), own.before, rtol=1e-9, atol=1e-12)
            for s in (-0.5, 0.0):
                states = own.at(np.full(len(own.end), s))
                exact = [expm(matrix * time) @ start for time in own.end + s * own.step]
                worst = max(worst, float(np.abs(states - exact).max()))
        errors.append(worst)
    assert errors[0] < 30e-4
    assert errors[1] < 30e-6
    assert errors[2] < 30e-8


def test_wrong_jacobians_cost_steps_but_no_accuracy():
    right, wrong = Linear(STIFF), Linear(STIFF, error=0.7)
    _finish(right, 1e-6)
    _, pieces = _finish(wrong, 1e-6)
    ends = pieces[pieces.end == 2.0]
    exact = [expm(2 * STIFF[number]) @ START[number] for number in ends.system]
    np.testing.assert_allclose(ends.after, exact, atol=3e-5)
    assert wrong.slopes > right.slopes


def test_a_system_behind_a_wall_is_stuck_there_and_others_go_on():
    class Wall(Linear):
        def slope(self, y):
            return np.where((self.matrices[:, 0] == 0) & (y >= 0.5), np.nan, 1.0)

        def newton_inverse(self, rows, y, c):
            return np.tile(np.eye(2), (len(rows), 1, 1))

    walls = Wall(np.stack([np.ones((2, 2)), np.zeros((2, 2)), np.ones((2, 2))]))
    stepper = BatchStepper(walls, np.zeros((3, 2)), 1.0, rtol=1e-6, atol=1e-6)
    last = np.zeros(3)
    while len(stepper.running):
        pieces = stepper.tick()
        last[pieces.system] = pieces.end
    assert stepper.stuck == {1: False}
    np.testing.assert_allclose(last, [1, 0.5, 1], rtol=1e-6)


def test_a_stopped_system_takes_no_more_steps():
    stepper = BatchStepper(Linear(STIFF), START, 2.0, rtol=1e-6, atol=1e-6)
    stepper.tick()
    stepper.stop(np.array([1]))
    seen = set()
    while len(stepper.running):
        seen |= set(stepper.tick().system)
    assert seen == {0, 2}


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_formulas_are_exact_on_polynomials_of_their_order(order):
    """Differences of t^order at t = 1 with the spacing 0.1, against the tables."""
    h, k = 0.1, np.array([order])

    def differences(h):
        samples, rows = (1 - h * np.arange(ndf_coefficients.ROWS)) ** order, np.zeros(ndf_coefficients.ROWS)
        for j in range(order + 1):
            rows[j] = samples[0]
            samples = samples[:-1] - samples[1:]
        return rows

    d = differences(h)
    s = np.array([-0.7])
    np.testing.assert_allclose(d[0] + ndf_coefficients.basis(s, k) @ d[1:6], (1 - 0.07) ** order, rtol=1e-12)
    np.testing.assert_allclose(
        ndf_coefficients.slope_basis(s, k) @ d[1:6] / h, order * (1 - 0.07) ** (order - 1), rtol=1e-11
    )
    predicted, past = ndf_coefficients.PREDICT_AND_PAST[order] @ d
    np.testing.assert_allclose(predicted, 1.1**order, rtol=1e-12)
    np.testing.assert_allclose(
        ndf_coefficients.respacing(np.array([1.7]), k)[0] @ d[:6], differences(1.7 * h)[:6], rtol=1e-9, atol=1e-14
    )
    # the implicit equation h f(y) / ALPHA = past + (y - prediction), with y = 1.1^order exactly predicted
    np.testing.assert_allclose(past, h / ndf_coefficients.ALPHA[order] * order * 1.1 ** (order - 1), rtol=1e-11)
    after = ndf_coefficients.ADVANCE[order] @ np.append(d, 0.0)
    shifted = [(1.1 - h * np.arange(3)) ** order, d[0]]
    np.testing.assert_allclose(after[0], shifted[0][0], rtol=1e-12)
    np.testing.assert_allclose(after[1], shifted[0][0] - shifted[0][1], rtol=1e-11)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_the_formulas_of_one_order_are_those_of_many(order):
    s = np.array([-1.0, -0.3, 0.0])
    many, table = np.full(3, order), ndf_coefficients
    np.testing.assert_array_equal(table.basis_of_order(s, order), table.basis(s, many)[:, :order])
    np.testing.assert_array_equal(table.basis_of_order(-0.3, order), table.basis(s, many)[1, :order])
    np.testing.assert_array_equal(table.slope_basis_of_order(s, order), table.slope_basis(s, many)[:, :order])
    whole = table.respacing(np.array([0.4]), np.array([order]))[0, : order + 1, : order + 1]
    np.testing.assert_allclose(table.respacing_of_order(0.4, order), whole, rtol=1e-14)


def test_the_steps_of_one_stepper_are_the_same_one_by_one_and_together():
    rng = np.random.default_rng(0)
    steps = [
        Interpolant(1.0, 1.25, 0.25, rng.standard_normal((order + 1, 3)), np.zeros(3)) for order in (1, 4, 2, 5, 3)
    ]
    together = DifferenceInterpolants.of(steps)
    for s in (-1.0, -0.3, 0.0):
        times = np.array([1.25 + 0.25 * s])
        at = np.full(5, s)
        np.testing.assert_allclose(together.at(at), [step.states(times)[0] for step in steps], rtol=1e-12)
        np.testing.assert_allclose(together.slope(at), [step.slopes(times)[0] for step in steps], rtol=1e-12)
    np.testing.assert_allclose(together.before, together.at(np.full(5, -1.0)), rtol=1e-12)
    constant = together.dissipated(lambda states: np.ones_like(states))
    nodes, weights = np.polynomial.legendre.leggauss(12)  # exact for these polynomials, as are four nodes
    exact = [weights @ np.sum(step.slopes(1.125 + 0.125 * nodes) ** 2, axis=1) / 8 for step in steps[:3]]
    np.testing.assert_allclose(constant[:3], exact, rtol=1e-12)

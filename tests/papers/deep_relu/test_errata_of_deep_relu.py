"""Errata of the paper, each in exact arithmetic where it can be, else to the last digits."""

from fractions import Fraction
from math import exp, isclose, prod, sqrt

import numpy as np
import pytest

from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle
from saddlescope.papers.deep_relu.statements import ERRATA
from saddlescope.theory.escape.speed import escape_speed


def relu(x):
    return max(x, 0)


@pytest.mark.parametrize(("L", "factor"), [(2, 2), (4, 16), (6, 216), (8, 4096)])
def test_the_growth_law_of_proposition_2_2(L, factor):
    """A chain of one weight per layer at x = 1, G = -1: L_0 = -w_1 ... w_L, and rho = (1, ..., 1) has the speed 1."""
    rho = [Fraction(1)] * L
    slope = [-prod(rho[:k] + rho[k + 1 :]) for k in range(L)]
    assert slope == [-w for w in rho]  # -s rho with s = 1, and |rho|^2 = L
    true = sum(g**2 for g in slope)  # squares: d|theta|/dt = |grad L_0| along rho,
    printed = Fraction(L) ** 2 * Fraction(L) ** (L - 1)  # and L s |theta|^(L-1)
    assert printed / true == factor**2 == L**L


@pytest.mark.parametrize("L", [3, 4, 7])
def test_the_escape_time_has_a_minus(L):
    """d r/dt = s r^(L-1) has dt/dr = r^(1-L)/s, the derivative of (r0^(2-L) - r^(2-L))/((L-2) s)."""
    r0, s = Fraction(1, 3), Fraction(2)

    def time(r):
        return (r0 ** (2 - L) - r ** (2 - L)) / ((L - 2) * s)

    assert time(r0) == 0
    h = Fraction(1, 10**9)
    assert abs((time(r0 + h) - time(r0)) / h * s * r0 ** (L - 1) - 1) < Fraction(1, 10**6)


@pytest.mark.parametrize("L", [3, 4])
def test_the_exponents_of_section_2_1_have_a_factor_l(L):
    """At a constant direction, L_0 = -c: only with L do |theta(s)| and t(s) obey d|theta|/dt = L c |theta|^(L-1)."""
    c, s = 0.7, 0.3
    for factor in (L, 1):
        norm = exp(factor * c * s)
        t = (1 - exp(-factor * (L - 2) * c * s)) / (factor * (L - 2) * c)
        assert isclose(1 - (L - 2) * L * c * t, norm ** (2 - L)) == (factor == L)


def test_the_speed_of_equation_2_and_its_ranks():
    """The eight points lie on the axes (G = 1 at even j) and the diagonals: exact in Q(sqrt 2), here x^2 + y^2 = 1."""
    W1 = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]) / 2
    W2, X, G = np.array([[1, -1, 1, -1]]) / 2, *alternating_circle(8)
    assert isclose(escape_speed((W1, W2, np.eye(1)), X, G), -1 / 2)
    assert isclose(escape_speed((W1, W2, -np.eye(1)), X, G), 1 / 2)
    assert [np.linalg.matrix_rank(W) for W in (W1, W2)] == [2, 1]
    half, on_axis = Fraction(1, 2), [(1, 0), (0, 1), (-1, 0), (0, -1)]
    output = [relu(half * half * (relu(x) - relu(y) + relu(-x) - relu(-y))) for x, y in on_axis]
    assert sum(output) == Fraction(1, 2)  # on diagonals |x| = |y|, and the output is 0


def test_proposition_3_2_needs_depth_two():
    """X = (1, -1), G = (-1, 1): -Tr[G^T f] is 2 for f(x) = x; with two layers a c + b d <= (a^2+b^2+c^2+d^2)/2 = 1."""
    assert -(-1 * 1 + 1 * -1) == 2
    X, G = np.array([[1.0], [-1.0]]), np.array([[-1.0], [1.0]])
    draw = np.random.default_rng(0)
    for _ in range(200):
        weights = [draw.normal(size=(4, 1)), draw.normal(size=(1, 4))]
        scale = sqrt(2 / sum(np.sum(W**2) for W in weights))
        assert escape_speed([W * scale for W in weights], X, G) <= 1 + 1e-12


def test_the_proof_of_theorem_3_1_says_nothing_of_the_weights_before():
    W = np.diag([3.0, 4.0]) / 5
    activation = np.maximum(W @ np.array([[1.0], [1.0]]), 0)
    assert (np.linalg.matrix_rank(activation), np.linalg.matrix_rank(W)) == (1, 2)


def test_slips_by_hand():
    half, a, b, y, e = Fraction(1, 2), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10), Fraction(1, 20)
    for x in (Fraction(3), Fraction(-5), Fraction(0)):  # rank one is not one neuron: W_1 = [v; -v]/√2, W_2 = [1, 1]/√2
        assert half * (relu(x) + relu(-x)) == abs(x) / 2
    assert 2 * a * b < a**2 + b**2  # the deeper network's norm is less than its depth, with rows and columns a and b
    L, p = 2, Fraction(3, 4)  # Proposition 3.4 counts the input
    assert L - 1 - int(p * L) == 0 < (1 - p) * L
    assert (y - e) / (1 + e) == 1 - ((1 - y) + 2 * e) / (1 + e) != 1 - ((1 - y) - 2 * e) / (1 + e)  # A.5
    A, u, s = Fraction(2), Fraction(1), Fraction(2)  # Lemma A.6
    assert A * A * u == s**2 * u != s * u


def test_weights_of_errata():
    """What is false as printed has a claim that fails; there is one such."""
    assert [erratum.place.partition(",")[0] for erratum in ERRATA if erratum.weight == "statement"] == [
        "Proposition 2.2"
    ]

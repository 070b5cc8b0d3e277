"""Errata of sections 2 and 3 and of appendices B, E.1, E.2 and F: in exact arithmetic, and by the authors' programs."""

from fractions import Fraction
from itertools import product

import pytest
import sympy

from saddlescope.measure import find_descents
from saddlescope.papers.concept_learning.shared.authors_programs import PROGRAMS, STEP
from saddlescope.papers.concept_learning.shared.discrete_maps import printed_runs
from saddlescope.papers.concept_learning.shared.random_starts import VISIBLE


def test_the_printed_rate_is_above_the_edge_of_equation_2_1():
    """L linear layers w along one concept: the loss is a (w_1 ... w_L - 1)^2 / 2, least sharp where all w are 1."""
    a, w = sympy.symbols("a", positive=True), sympy.symbols("w1:4", positive=True)
    loss = a * (w[0] * w[1] * w[2] - 1) ** 2 / 2
    free = sympy.hessian(loss, w).subs(w[2], 1 / (w[0] * w[1]))  # any minimum
    trace = sympy.simplify(free.trace())  # of rank one, so the sharpness is the trace
    assert free.rank() == 1
    assert trace.subs({w[0]: 1, w[1]: 1}) == 3 * a
    gradient = [sympy.diff(trace, one).subs({w[0]: 1, w[1]: 1}) for one in w[:2]]
    assert gradient == [0, 0]
    strength = Fraction(5, 100) ** 2 + Fraction(4**2, 2)
    assert Fraction(1, 10) * 3 * strength > 2


def test_the_variance_of_minor_entries_grows_with_the_width():
    """Exact over all signs, which have the second moments of normal entries of variance 1."""
    for width in (1, 2, 3, 4):
        signs = list(product((-1, 1), repeat=width))
        squares = [sum(u * v for u, v in zip(one, two, strict=True)) ** 2 for one in signs for two in signs]
        assert Fraction(sum(squares), len(squares)) == width


@pytest.mark.parametrize(("figure", "plain", "squared"), [("5", 1, 2), ("8", 1, 3), ("9", 2, 4), ("10", 2, 2)])
def test_the_authors_programs_need_the_squared_matrix_for_the_descents_of_their_figures(figure, plain, squared):
    program = PROGRAMS[f"Figure {figure}"]
    for a, descents in ((program.strengths, plain), (program.strengths**2, squared)):
        run = printed_runs(a, program.start[None], step=STEP, steps=program.steps, keep=program.steps)
        assert find_descents(run.losses(program.test_point), hysteresis=VISIBLE).counts == descents

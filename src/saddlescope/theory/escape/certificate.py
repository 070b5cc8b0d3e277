"""Certified largest escape speed at depth 3, for one output and inputs in a plane, by branch and bound.

At an optimum the last layer reads one neuron (the argument of Proposition 3.2), so that f = +-relu(g) with

    g(x) = sum_i a_i relu(u_i.x),    |u_i| = 1,    sum_i |a_i| <= 1,

and the speed is F(g) = sum_j c_j relu(g(x_j)) with c = -G or c = G. Where c_j > 0 this is convex in g: branch and bound
over the signs of those g_j, with a cone program at each node (`cone_program`), finds the largest value. The upper bound
is evaluated in closed form from the programs' multipliers, the lower one is the speed of a network on the data.
"""

import heapq
import itertools

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.theory.escape.cone_program import IN, OUT, UNDECIDED, ConeSolution, Programs
from saddlescope.theory.escape.plane_inputs import Arcs, PlaneSaddle
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import CertifiedSpeed, Matrix, Network, on_sphere, speed_of, validate_saddle

_SHARPEN = 1e-7  # gaps below this, in units of the largest c_j, are the cone solver's error: sharpen, do not branch


@validate_arguments
def certified_escape_speed(
    inputs: ArrayLike,
    gradients: ArrayLike,
    *,
    tolerance: float = 1e-12,
    max_programs: int = 20_000,
    report: Report = silent,
) -> CertifiedSpeed:
    """Bound the largest escape speed at depth 3 over all widths, with a network that attains the lower bound.

    Args:
        inputs: (N, d_in), any d_in, but the inputs must span at most a plane.
        gradients: (N, 1), the loss gradients at the zero output.
        tolerance: largest difference of the bounds, relative to the upper one, beyond rounding.
        max_programs: largest number of cone programs; where it is reached, the bounds hold, but may differ by more.
        report: called with the fraction of `max_programs` solved, and the bounds.

    Raises:
        InputError: invalid inputs or gradients, see `validate_saddle`; more than one output; inputs that span more than
            a plane; a tolerance or a number of programs that is not positive.
    """
    X, G = validate_saddle(inputs, gradients)
    if len(G) != 1:
        raise InputError(f"gradients must have one column, one output, for a certificate at depth 3; got {len(G)!r}.")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1; got {tolerance!r}.")
    if max_programs < 1:
        raise InputError(f"max_programs must be at least 1; got {max_programs!r}.")
    start = rank_one_escape_speed(inputs, gradients, depth=3)
    plane = PlaneSaddle.of(X, G)
    c = plane.gradients[0]
    scale = float(np.abs(c).max())
    if scale == 0:  # the gradients of inputs that are alike cancel
        return start
    search = _Search(c / scale, Arcs.of(plane.inputs), start.lower / scale, tolerance)
    upper, solved = scale * search.run(max_programs, report), search.solved
    weights = start.weights if search.best is None else _network(*search.best, plane.basis)
    lower = speed_of(weights, X, G)
    report(1.0, f"{solved} cone programs")
    return CertifiedSpeed(lower, max(upper, lower) + plane.slack, weights, solved)


class _Search:
    """Branch and bound over both signs of the output, best bound first."""

    def __init__(self, gradients: np.ndarray, arcs: Arcs, value: float, tolerance: float) -> None:
        self.outputs = (1.0, -1.0)
        self.programs = tuple(Programs(-sign * gradients, arcs) for sign in self.outputs)
        self.value, self.best = value, None  # of the best network so far: its F(g), and itself with its output's sign
        self.tolerance = tolerance
        self.closed = value  # the largest bound of nodes that need no further branching
        self.solved = 0
        self._open: list[tuple[float, int, int, np.ndarray, ConeSolution, bool]] = []
        self._count = itertools.count()

    def run(self, max_programs: int, report: Report) -> float:
        """Return the upper bound after at most that many programs."""
        size = len(self.programs[0].c)
        for output in range(2):
            self._solve(output, np.full(size, UNDECIDED))
        while self._open:
            _, _, output, signs, answer, sharp = heapq.heappop(self._open)
            if answer.bound <= self.value + self.tolerance * answer.bound:
                self.closed = max(self.closed, answer.bound)
                continue
            if self.solved >= max_programs:
                return max(self.closed, answer.bound)
            report(self.solved / max_programs, f"{self.solved} cone programs")
            programs = self.programs[output]
            undecided = programs.positive[signs[programs.positive] == UNDECIDED]
            gaps = programs.gaps(answer)[undecided]
            if not sharp and gaps.max(initial=0.0) < _SHARPEN:
                self._consider(output, signs, programs.sharpen(signs, answer), True)
            elif len(undecided):
                for sign in (IN, OUT):
                    child = signs.copy()
                    child[undecided[np.argmax(gaps)]] = sign
                    self._solve(output, child)
            else:
                self.closed = max(self.closed, answer.bound)
        return self.closed

    def _solve(self, output: int, signs: np.ndarray) -> None:
        self.solved += 1
        self._consider(output, signs, self.programs[output].solve(signs), False)

    def _consider(self, output: int, signs: np.ndarray, answer: ConeSolution, sharp: bool) -> None:
        value = self.programs[output].value(answer)
        if value > self.value:
            self.value, self.best = value, (answer, self.outputs[output])
        heapq.heappush(self._open, (-answer.bound, next(self._count), output, signs, answer, sharp))


def _network(answer: ConeSolution, output: float, basis: Matrix) -> Network:
    """Return W_1, W_2, W_3 with |W_l| = 1 of +-relu(g): weights into and out of neuron i have norm sqrt|a_i|."""
    roots = np.sqrt(answer.masses.sum(axis=0))
    signs = np.where(answer.masses[0] > answer.masses[1], 1.0, -1.0)
    return on_sphere((roots[:, None] * answer.directions @ basis.T, (roots * signs)[None], np.array([[output]])))

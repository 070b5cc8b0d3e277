"""The largest escape speed at depth 3, for one output and inputs in a plane, between two bounds that meet.

At an optimum the last layer reads one neuron (the argument of Proposition 3.2), so that f = +-relu(g) with

    g(x) = sum_i a_i relu(u_i.x),    |u_i| = 1,    sum_i |a_i| <= 1,

and the speed is F(g) = sum_j c_j relu(g(x_j)) with c = -G or c = G. Where c_j > 0 this is convex in g: branch and bound
over the signs of those g_j, each node a cone programme (`programme`), leads to the largest value. The upper bound is
evaluated in closed form from the programmes' multipliers, the lower one is the speed of a network on the data.
"""

import heapq
import itertools

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.theory.escape.cone_program import IN, OUT, UNDECIDED, ConeSolution, Programmes
from saddlescope.theory.escape.plane_inputs import Arcs, PlaneSaddle
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import CertifiedSpeed, Matrix, Network, checked_saddle, escape_speed, on_sphere

_SETTLED = (
    1e-7  # in units of the largest c_j: smaller gaps are the cone solver's, and sharpening comes before branching
)


@validate_arguments
def certified_escape_speed(
    inputs: ArrayLike, gradients: ArrayLike, *, tolerance: float = 1e-12, most: int = 20_000
) -> CertifiedSpeed:
    """Bounds on the largest escape speed at depth 3 over all widths, with a network that attains the lower one.

    Args:
        inputs: X (d_in, N), any d_in, but the inputs must span at most a plane.
        gradients: G (1, N).
        tolerance: the bounds are brought together to this difference, relative to the upper one, beyond rounding.
        most: stop after so many cone programmes; the bounds then hold all the same, but may lie apart.

    Raises:
        InputError: what `checked_saddle` refuses; more than one output; inputs that span more than a plane; a
            tolerance or a number of programmes that is not positive.
    """
    X, G = checked_saddle(inputs, gradients)
    if len(G) != 1:
        raise InputError(f"gradients must have one row, one output, for a certificate at depth 3; got {len(G)!r}.")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1; got {tolerance!r}.")
    if most < 1:
        raise InputError(f"most must be at least 1 cone programme; got {most!r}.")
    start = rank_one_escape_speed(X, G, depth=3)
    plane = PlaneSaddle.of(X, G)
    c = plane.gradients[0]
    scale = float(np.abs(c).max())
    if scale == 0:  # the gradients of inputs that are alike cancel
        return start
    search = _Search(c / scale, Arcs.of(plane.inputs), start.lower / scale, tolerance)
    upper, solved = scale * search.run(most), search.solved
    weights = start.weights if search.best is None else _network(*search.best, plane.basis)
    lower = escape_speed(weights, X, G)
    return CertifiedSpeed(lower, max(upper, lower) + plane.slack, weights, solved)


class _Search:
    """Branch and bound over both signs of the output, the node of the largest bound first."""

    def __init__(self, gradients: np.ndarray, arcs: Arcs, value: float, tolerance: float) -> None:
        self.outputs = (1.0, -1.0)
        self.programmes = tuple(Programmes(-sign * gradients, arcs) for sign in self.outputs)
        self.value, self.best = value, None  # of the best network so far: its F(g), and itself with its output's sign
        self.tolerance = tolerance
        self.closed = value  # the largest bound of what was left unexplored for being good enough
        self.solved = 0
        self._open: list[tuple[float, int, int, np.ndarray, ConeSolution, bool]] = []
        self._count = itertools.count()

    def run(self, most: int) -> float:
        """The upper bound after at most so many programmes."""
        size = len(self.programmes[0].c)
        for output in range(2):
            self._solve(output, np.full(size, UNDECIDED))
        while self._open:
            _, _, output, signs, answer, sharp = heapq.heappop(self._open)
            if answer.bound <= self.value + self.tolerance * answer.bound:
                self.closed = max(self.closed, answer.bound)
                continue
            if self.solved >= most:
                return max(self.closed, answer.bound)
            programmes = self.programmes[output]
            undecided = programmes.positive[signs[programmes.positive] == UNDECIDED]
            gaps = programmes.gaps(answer)[undecided]
            if not sharp and gaps.max(initial=0.0) < _SETTLED:
                self._consider(output, signs, programmes.sharpen(signs, answer), True)
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
        self._consider(output, signs, self.programmes[output].solve(signs), False)

    def _consider(self, output: int, signs: np.ndarray, answer: ConeSolution, sharp: bool) -> None:
        value = self.programmes[output].value(answer)
        if value > self.value:
            self.value, self.best = value, (answer, self.outputs[output])
        heapq.heappush(self._open, (-answer.bound, next(self._count), output, signs, answer, sharp))


def _network(answer: ConeSolution, output: float, basis: Matrix) -> Network:
    """W_1, W_2, W_3 with |W_l| = 1 of +-relu(g): neuron i has incoming and outgoing weights of norm sqrt|a_i|."""
    roots = np.sqrt(answer.masses.sum(axis=0))
    signs = np.where(answer.masses[0] > answer.masses[1], 1.0, -1.0)
    return on_sphere((roots[:, None] * answer.directions @ basis.T, (roots * signs)[None], np.array([[output]])))

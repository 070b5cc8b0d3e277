"""Cone programs of the certificate at depth 3: the largest F(g), given the signs of some outputs g_j.

    g       sum_i a_i relu(u_i.x) with unit vectors u_i and sum |a_i| <= 1, at unit inputs x_j of the plane
    F(g)    sum_j c_j relu(g_j)
    p, q    the parts of g with a_i > 0 and with a_i < 0: g = p - q, and p_j, q_j >= 0
    h_j(u)  relu(u.x_j)

Where c_j < 0, c_j relu(g_j) is at most lambda_j c_j g_j for every lambda_j in [0, 1]. Where c_j > 0 and the sign of g_j
is decided, it is linear, and a multiplier nu_j >= 0 imposes the sign; where it is not, relu(p - q) <= p. So

    F(g) <= max over u of the larger of  sum_j mu_j h_j(u)  and  -sum_j mu'_j h_j(u),

              c_j < 0          g_j >= 0       g_j <= 0     undecided
    mu_j      lambda_j c_j     c_j + nu_j     -nu_j        c_j
    mu'_j     lambda_j c_j     c_j + nu_j     -nu_j        0

The least such bound over lambda and nu is a second-order cone program over the arcs of directions u: on an arc with
the ends e and e' the maximum of a sum is the least |v| with v.e and v.e' at least the sum's values at e and e'. It is
exact once all signs are decided, by duality, and its dual is a network. The bound is evaluated in closed form from the
multipliers, so it does not depend on the solver's accuracy.
"""

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.optimize import linprog

from saddlescope.theory.escape.plane_inputs import Arcs

_clarabel: Any = clarabel  # its names are not declared to type checkers

OUT, UNDECIDED, IN = -1, 0, 1
_ACCURACY = 1e-10  # tolerance of both solvers, in units of the largest c_j
_NEW = 1e-7  # radians: a sum at its maximum changes by the square of that


@dataclass(frozen=True)
class ConeSolution:
    """Solution of a cone program, with its bound.

    Attributes:
        bound: no g with the decided signs has a larger F(g), up to rounding.
        free: lambda, then nu, of the bound.
        multipliers: mu and mu' computed from them, (2, n).
        masses: |a_i| of the neurons of p and of q, (2, m), with sum 1.
        directions: u_i, (m, 2).
    """

    bound: float
    free: Float[np.ndarray, "free"]
    multipliers: Float[np.ndarray, "2 n"]
    masses: Float[np.ndarray, "2 m"]
    directions: Float[np.ndarray, "m 2"]


class Programs:
    """All programs of one c (n,); signs are OUT, UNDECIDED or IN for every input, and used where c_j > 0."""

    def __init__(self, c: Float[np.ndarray, "n"], arcs: Arcs) -> None:
        self.c, self.arcs = c, arcs
        self.positive, self.negative = np.flatnonzero(c > 0), np.flatnonzero(c < 0)
        arc = np.arange(len(arcs.ends))
        self._ends = np.stack([arc, np.roll(arc, -1)], axis=1)  # of every arc
        # Columns: t, then v of every part (p, q) and arc. Rows: |v| <= t, then v.e and v.e' of every part and arc.
        blocks, columns = 2 * len(arc), 1 + 4 * len(arc)
        self._cones, self._reach = np.zeros((blocks, 3, columns)), np.zeros((blocks, 2, columns))
        self._cones[:, 0, 0] = -1.0
        for block in range(blocks):
            v = slice(1 + 2 * block, 3 + 2 * block)
            self._cones[block, 1:, v] = -np.eye(2)
            self._reach[block, :, v] = -arcs.ends[self._ends[block % len(arc)]]

    def value(self, answer: ConeSolution) -> float:
        """Return F(g) of the answer's network."""
        p, q = answer.masses @ self.arcs.activations(answer.directions)
        return float(self.c @ np.maximum(p - q, 0.0))

    def gaps(self, answer: ConeSolution) -> Float[np.ndarray, "n"]:
        """Return the slack of the bound at undecided signs: c_j (p_j - relu(p_j - q_j)), 0 where c_j < 0."""
        p, q = answer.masses @ self.arcs.activations(answer.directions)
        return np.maximum(self.c, 0.0) * np.minimum(p, q)

    def solve(self, signs: Int[np.ndarray, "n"]) -> ConeSolution:
        """Solve the cone program."""
        constant, slope = self._table(signs)
        free, bounded, arcs = slope.shape[2], len(self.negative), len(self._ends)
        at_ends = self.arcs.at_ends[self._ends.ravel()]
        reach = self._reach.reshape(4 * arcs, -1)
        cones = self._cones.reshape(6 * arcs, -1)
        columns = cones.shape[1]
        matrix = np.block(
            [
                [cones, np.zeros((len(cones), free))],
                [reach, _both(at_ends, slope)],
                [np.zeros((free, columns)), -np.eye(free)],
                [np.zeros((bounded, columns)), np.eye(free)[:bounded]],
            ]
        )
        limits = np.concatenate([np.zeros(len(cones)), -_both(at_ends, constant), np.zeros(free), np.ones(bounded)])
        settings = _clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _ACCURACY
        solution = _clarabel.DefaultSolver(
            sparse.csc_matrix((columns + free, columns + free)),
            np.eye(columns + free)[0],
            sparse.csc_matrix(matrix),
            limits,
            [_clarabel.SecondOrderConeT(3)] * (2 * arcs) + [_clarabel.NonnegativeConeT(len(limits) - len(cones))],
            settings,
        ).solve()
        pulls = np.asarray(solution.z)[len(cones) : len(cones) + len(reach)].reshape(2, arcs, 2)
        neurons = np.einsum("pae,aed->pad", pulls, self.arcs.ends[self._ends])
        return self._answer(signs, np.asarray(solution.x)[columns:], neurons)

    def sharpen(self, signs: Int[np.ndarray, "n"], answer: ConeSolution, rounds: int = 8) -> ConeSolution:
        """Solve the same program as linear ones over the directions found so far, until no other direction matters.

        A vertex of a linear program is exact to rounding, which an interior point is not. The first program gives the
        network. Its multipliers are a corner of the optimal set, where other directions may matter: the second program
        takes those nearest to the interior point, where they do not.
        """
        constant, slope = self._table(signs)
        free, box = slope.shape[2], [(0, 1)] * len(self.negative)
        box += [(0, None)] * (free - len(box))
        best, directions = answer, _extended(self.arcs.ends, self._bound(answer.multipliers)[1])
        for _ in range(rounds):
            h = self.arcs.activations(directions)
            rows, limits, one = _both(h, slope), -_both(h, constant), np.ones((2 * len(h), 1))
            level = _least_first(np.block([-one, rows]), limits, box)
            if level is None:
                break
            unit, column = np.eye(free), np.ones((free, 1))
            near = _least_first(
                np.block([[np.zeros_like(one), rows], [-column, unit], [-column, -unit]]),
                np.concatenate([limits + level.x[0], answer.free, -answer.free]),
                box,
            )
            if near is None:
                break
            masses = np.maximum(-level.ineqlin.marginals, 0.0).reshape(2, -1, 1)
            found = self._answer(signs, near.x[1:], masses * directions)
            best = min(best, found, key=lambda one: one.bound - self.value(one))
            further = _extended(directions, self._bound(found.multipliers)[1])
            if found.bound - level.x[0] <= 1e-14 or len(further) == len(directions):
                break
            directions = further
        return best

    def _table(self, signs: np.ndarray) -> tuple[Float[np.ndarray, "2 n"], Float[np.ndarray, "2 n free"]]:
        """Return mu and mu' as affine functions of (lambda, nu): constants and slopes."""
        decided = self.positive[signs[self.positive] != UNDECIDED]
        constant, slope = np.zeros((2, len(self.c))), np.zeros((2, len(self.c), len(self.negative) + len(decided)))
        constant[0, self.positive] = np.where(signs[self.positive] == OUT, 0.0, self.c[self.positive])
        constant[1, self.positive] = np.where(signs[self.positive] == IN, self.c[self.positive], 0.0)
        slope[:, self.negative, np.arange(len(self.negative))] = self.c[self.negative]
        slope[:, decided, len(self.negative) + np.arange(len(decided))] = signs[decided]
        return constant, slope

    def _bound(self, multipliers: Float[np.ndarray, "2 n"]) -> tuple[float, Float[np.ndarray, "m 2"]]:
        """Return the bound, and the directions u at which the sums are largest."""
        (over, u), (under, v) = self.arcs.maxima(multipliers[0]), self.arcs.maxima(-multipliers[1])
        return max(0.0, float(over.max()), float(under.max())), np.concatenate([u, v])

    def _answer(self, signs: np.ndarray, free: Float[np.ndarray, "free"], neurons: np.ndarray) -> ConeSolution:
        """Build the solution from (lambda, nu), and |a_i| u_i of the neurons of p and q, (2, m, 2)."""
        constant, slope = self._table(signs)
        bounded = len(self.negative)
        free = np.nan_to_num(free, nan=0.0, posinf=0.0, neginf=0.0)  # of a failed solver: the bound is weak, but holds
        free = np.concatenate([np.clip(free[:bounded], 0, 1), np.maximum(free[bounded:], 0)])
        multipliers = constant + slope @ free
        lengths = np.hypot(neurons[..., 0], neurons[..., 1])
        part, which = np.nonzero(lengths > 1e-12)  # omits NaN, too
        masses = np.zeros((2, len(part)))
        masses[part, np.arange(len(part))] = lengths[part, which]
        directions = neurons[part, which] / lengths[part, which, None]
        masses /= max(masses.sum(), 1e-300)
        return ConeSolution(self._bound(multipliers)[0], free, multipliers, masses, directions)


def _both(h: Float[np.ndarray, "m n"], table: np.ndarray) -> np.ndarray:
    """Return the sums of p, then of q, at directions with activations h: (2 m, ...)."""
    return np.concatenate([h @ table[0], -(h @ table[1])])


def _least_first(rows: np.ndarray, limits: np.ndarray, box: list) -> Any:
    """Minimize the first variable, not negative, with rows @ variables <= limits and the others in their box."""
    found = linprog(
        np.eye(rows.shape[1])[0],
        A_ub=rows,
        b_ub=limits,
        bounds=[(0, None), *box],
        method="highs-ds",
        options={"primal_feasibility_tolerance": _ACCURACY, "dual_feasibility_tolerance": _ACCURACY},
    )
    return found if found.status == 0 else None


def _extended(directions: Float[np.ndarray, "m 2"], more: Float[np.ndarray, "l 2"]) -> Float[np.ndarray, "k 2"]:
    """Return the directions, and those of `more` that are new: nearer ones make a linear program ill-conditioned."""
    for direction in more:
        if np.abs(directions - direction).max(axis=1).min() > _NEW:
            directions = np.concatenate([directions, direction[None]])
    return directions

"""Column generation: faster escape directions than descent finds, by linear programs that insert the best neurons.

Of the optimal networks one has a single neuron in the second layer (the argument of Proposition 3.2):

    f(x) = c relu(g(x)),    g = sum_i a_i relu(u_i.x),    |c| = |u_i| = 1,    sum_i |a_i| <= 1,

with speed sum_j w_j relu(g(x_j)), w_j = -c.G_j. With c and the samples S among {w_j > 0} on which g is positive held
fixed, sum_{j in S} w_j g_j - sum_{w_j < 0} |w_j| relu(g_j) is concave in g, below the speed and equal to it at the S of
g: a linear program in the a_i. Its multipliers mu give the worth of a new neuron, |sum_j mu_j relu(u.x_j)|: the best
ones are inserted until none is worth more than the program's value. Then S and c are recomputed from g (the speed never
falls). When the speed no longer rises, one or two samples enter or leave S at a time, then, for one output, random sets
of them.
"""

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.theory.escape.activation_pattern import rays
from saddlescope.theory.escape.directions import EscapeDirections, measure_directions
from saddlescope.theory.escape.network_reduction import expand
from saddlescope.theory.escape.speed import Matrix, Network, on_sphere, speed_of, validate_saddle


@dataclass(frozen=True, kw_only=True)
class ColumnPolicy:
    """Limits of the search for better directions.

    Attributes:
        gain: smaller relative gains end an iteration; Newton's method does the rest.
        inserted: neurons in one round.
        rounds: of inserting, at most, in one program.
        corners: directions orthogonal to d_in - 1 samples that are tried as new neurons, at most.
        exchanges: pairs of samples, at most, that are tried at a time.
        leaps: random sets of samples that are tried after them.
        slack: an exchange that loses more than this share of the speed is not followed up.
        pruned: share of sum |a_i| below which a neuron is removed.
    """

    gain: float = 1e-6
    inserted: int = 8
    rounds: int = 12
    corners: int = 400
    exchanges: int = 200
    leaps: int = 20
    slack: float = 0.5
    pruned: float = 1e-9


_POLICY = ColumnPolicy()


@validate_arguments
def column_generation(
    found: EscapeDirections, inputs: ArrayLike, gradients: ArrayLike, *, report: Report = silent
) -> EscapeDirections:
    """Replace each direction by a faster one, where the linear programs find one of at most its width.

    Works for any dimension of inputs and outputs. From depth 4 on, the layers above the second get one neuron each.

    Args:
        found: result of `escape_directions` for the same inputs and gradients, at depth 3 or more.
        inputs: (N, d_in), a row per sample.
        gradients: (N, d_out), the loss gradients at the zero output.
        report: called with the finished fraction after each start.

    Raises:
        InputError: invalid inputs or gradients, see `validate_saddle`; or a depth of 2, where there is no second layer.
    """
    X, G = validate_saddle(inputs, gradients)
    if len(found.weights) < 3:
        raise InputError(f"found must have a depth of at least 3 to be improved; got {len(found.weights)!r}.")
    search = _Search(X, G)
    networks = []
    for start, width in enumerate(found.widths):
        given = found.direction(start)
        better = search.improved(given)
        if better is not None and len(better[0]) <= width:
            full = on_sphere(expand(better, (0, 1, len(given) - 1), given))  # to the depth and shapes of the given one
            if speed_of(full, X, G) > found.speeds[start] * (1 + _POLICY.gain):
                given = full
        networks.append(given)
        report(0.9 * (start + 1) / len(found.widths), f"column generation, {start + 1} of {len(found.widths)} starts")
    stacked = tuple(np.stack(layer) for layer in zip(*networks, strict=True))
    return measure_directions(
        stacked, X, G, refine=True, widths=found.widths, steps=found.steps, curves=found.curves,
        report=lambda part, note: report(0.9 + 0.1 * part, note),
    )  # fmt: skip


class _Search:
    """Linear programs of one saddle; inserted neurons and, for one output, solutions are shared by all starts."""

    def __init__(self, X: Matrix, G: Matrix) -> None:
        self.X, self.G = rays(X / np.linalg.norm(X), G / np.linalg.norm(G))
        self.rng = np.random.default_rng(0)
        self.corners = self._corners()
        self.atoms = self.corners
        self.solved: dict[tuple, _Solution] = {}

    def improved(self, weights: Network) -> Network | None:
        """Return a network of depth 3 with |W_l| = 1, at least as fast as the best neuron of the given second layer."""
        g, own = self._best_neuron(weights)
        if g is None:
            return None
        self.atoms = _distinct(np.vstack([self.atoms, own]))
        best = self._ascend(self._output(g), g)
        while (better := self._exchanged(best)) is not None:
            best = better
        return best.network(self._output(best.g))

    def _exchanged(self, best: "_Solution") -> "_Solution | None":
        """Return the first faster solution found when one sample enters or leaves S, or two do, or random ones."""
        c = self._output(best.g)
        free = np.flatnonzero(-c @ self.G > 0)
        pairs = list(itertools.islice(itertools.combinations(free, 2), 10 * _POLICY.exchanges))
        if len(pairs) > _POLICY.exchanges:
            pairs = [tuple(self.rng.choice(free, 2, replace=False)) for _ in range(_POLICY.exchanges)]
        if len(self.G) > 1:  # every c differs, so that no program recurs: the cheap exchanges only
            pairs = []
        leaps = [free[self.rng.random(len(free)) < 0.5] for _ in range(_POLICY.leaps if len(self.G) == 1 else 0)]
        for samples in [*((sample,) for sample in free), *pairs, *leaps]:
            active = self._active(c, best.g)
            active[list(samples)] ^= True
            first = self._solve(c, active)
            if first.speed > (1 - _POLICY.slack) * best.speed:
                other = self._ascend(self._output(first.g), first.g)
                if other.speed > best.speed * (1 + _POLICY.gain):
                    return other
        return None

    def _ascend(self, c: np.ndarray, g: np.ndarray) -> "_Solution":
        """Solve programs until the speed no longer rises, each with c and S from the g of the previous one."""
        found = self._solve(c, self._active(c, g))
        while True:
            c = self._output(found.g)
            following = self._solve(c, self._active(c, found.g))
            if following.speed <= found.speed * (1 + _POLICY.gain):
                return found
            found = following

    def _solve(self, c: np.ndarray, active: np.ndarray) -> "_Solution":
        key = (c.round(12).tobytes(), active.tobytes())
        if key not in self.solved:
            self.solved[key] = self._program(-c @ self.G, active)
            if len(c) > 1:  # every c differs: no program recurs
                return self.solved.pop(key)
        return self.solved[key]

    def _program(self, w: np.ndarray, active: np.ndarray) -> "_Solution":
        against = np.flatnonzero(w < 0)
        a, atoms = np.zeros(0), self.atoms
        new = atoms[:0]
        for _ in range(_POLICY.rounds):
            atoms = _distinct(np.vstack([atoms, new]))
            values = np.maximum(atoms @ self.X, 0.0)
            worth = values[:, active] @ w[active]
            opposed = len(against)
            # min -worth.(a+ - a-) + |w|.t  with  g_j - t_j <= 0 against, sum (a+ + a-) <= 1
            cost = np.concatenate([-worth, worth, -w[against]])
            taken = values[:, against].T
            below = np.hstack([taken, -taken, -np.eye(opposed)])
            total = np.concatenate([np.ones(2 * len(atoms)), np.zeros(opposed)])
            solution = linprog(cost, A_ub=np.vstack([below, total]), b_ub=np.append(np.zeros(opposed), 1.0))
            a = solution.x[: len(atoms)] - solution.x[len(atoms) : 2 * len(atoms)]
            mu = np.where(active, w, 0.0)
            mu[against] = solution.ineqlin.marginals[:opposed]
            new = self._best_atoms(mu, atoms, -float(solution.fun) * (1 + _POLICY.gain))
            if not len(new):
                break
        used = np.abs(a) > _POLICY.pruned
        self.atoms = _distinct(np.vstack([self.corners, atoms[used]]))
        g = a @ np.maximum(atoms @ self.X, 0.0)
        return _Solution(a[used], atoms[used], g, float(np.linalg.norm(self.G @ np.maximum(g, 0.0))))

    def _best_atoms(self, mu: np.ndarray, atoms: Matrix, least: float) -> Matrix:
        """Return unit vectors u with |sum_j mu_j relu(u.x_j)| above `least`: corners, and the best of each cell met."""
        tried = np.vstack([atoms, self.rng.normal(size=(len(self.corners), len(self.X)))])
        near = np.vstack([self.corners + 1e-6 * self.rng.normal(size=self.corners.shape) for _ in range(4)])
        slopes = (np.vstack([tried, near]) @ self.X > 0) * mu @ self.X.T
        norms = np.linalg.norm(slopes, axis=1, keepdims=True)
        inner = slopes[norms[:, 0] > 0] / norms[norms[:, 0] > 0]
        candidates = np.vstack([self.corners, inner, -inner])
        worth = np.abs(np.maximum(candidates @ self.X, 0.0) @ mu)
        best = [k for k in np.argsort(-worth)[: _POLICY.inserted] if worth[k] > least]
        return candidates[best]

    def _corners(self) -> Matrix:
        """Return unit vectors orthogonal to d_in - 1 of the samples: there the kinks of a new neuron cross."""
        dim, samples = self.X.shape
        subsets = list(itertools.islice(itertools.combinations(range(samples), dim - 1), 10 * _POLICY.corners))
        if len(subsets) > _POLICY.corners:
            subsets = [tuple(self.rng.choice(samples, dim - 1, replace=False)) for _ in range(_POLICY.corners)]
        normals = [np.linalg.svd(self.X[:, subset].T)[2][-1] for subset in map(list, subsets)]
        return _distinct(np.array([sign * normal for normal in normals for sign in (1, -1)]))

    def _best_neuron(self, weights: Network) -> tuple[np.ndarray | None, Matrix]:
        """Return g of the second-layer neuron that would be fastest alone, and the directions of the first layer."""
        norms = np.linalg.norm(weights[0], axis=1)
        units = (weights[0] / np.where(norms > 0, norms, 1.0)[:, None])[norms > 0]
        coefficients = (weights[1] * norms)[:, norms > 0]
        sizes = np.abs(coefficients).sum(axis=1)
        if not sizes.any():
            return None, units
        g = coefficients[sizes > 0] / sizes[sizes > 0][:, None] @ np.maximum(units @ self.X, 0.0)
        speeds = np.linalg.norm(np.maximum(g, 0.0) @ self.G.T, axis=1)
        return (g[np.argmax(speeds)] if speeds.any() else None), units

    def _output(self, g: np.ndarray) -> np.ndarray:
        """Return the c of the largest speed."""
        back = -self.G @ np.maximum(g, 0.0)
        return back / np.linalg.norm(back)

    def _active(self, c: np.ndarray, g: np.ndarray) -> np.ndarray:
        return (-c @ self.G > 0) & (g > 0)


@dataclasses.dataclass(frozen=True)
class _Solution:
    """Function g = sum_i a_i relu(u_i.x) on the samples, and its speed with the best c."""

    a: Float[np.ndarray, "neurons"]
    units: Float[np.ndarray, "neurons into"]
    g: Float[np.ndarray, "n"]
    speed: float

    def network(self, c: np.ndarray) -> Network:
        """Return the network with |W_l| = 1, neurons of the first layer balanced."""
        roots = np.sqrt(np.abs(self.a))
        return roots[:, None] * self.units, (np.sign(self.a) * roots)[None], c[:, None]


def _distinct(directions: Matrix) -> Matrix:
    """Return one of each direction, to twelve digits."""
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return unit[np.sort(np.unique(unit.round(12), axis=0, return_index=True)[1])]

"""Exponential integrator of the flow of factors: exponentials of the gradient's integral, applied exactly by a group.

    M' = S(G) M,  G = -dL/dB at the products B of M, one block for each pair of factors

A step extrapolates G by a polynomial through its last values, predicts M, evaluates G there, replaces the polynomial
by one through the new value, moves M and evaluates G again (PECE, an Adams pair of orders up to 4). M moves under a
given polynomial by the commutator-free method of order 4 with two exponentials (Blanes and Moan 2006), so what grows by
e-folds under constant G grows exactly.

Where G is stationary, one step crosses the plateau: the active directions stay, and the others, too small to be seen in
G, move under the constant G until the first of them can be seen. This makes the cost of a plateau independent of its
length.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from saddlescope.flow.factored.scaled_factors import ScaledFactors, moved_factors
from saddlescope.loss.compiled import CompiledLoss
from saddlescope.numerics.ndf import StepError
from saddlescope.numerics.tree_layout import TreeLayout


@dataclass(frozen=True)
class FactoredPolicy:
    """Policy of the steps.

    Attributes:
        points: values of G that an extrapolation goes through, at most.
        reach: e-folds of one step, at most.
        stable: step size in units of 1 / (rate at which G answers to its own integral); PECE is stable to 1.3.
        visible: product of a direction that G can see, in units of the tolerance and of the size at which G changes by
            its own size.
        near: the remaining change of G that is taken as one decaying mode, in errors of a step.
        left: the change that may remain after that: slower modes may hide behind the fastest.
        dropped: G left on active directions, in units of the rate; with more of it, one of them grows.
        patience: steps to the next try of a plateau.
        seen: steps over which the fall of G's changes is measured.
    """

    points: int = 3
    reach: float = 8.0
    stable: float = 1.2
    visible: float = 0.02
    near: float = 100.0
    left: float = 0.03
    dropped: float = 1e-3
    patience: int = 10
    seen: int = 12


_TRIALS = 60  # factors of at most 1e8 between sizes
_SEARCHED = 1e-150, 1e150  # sizes at which G may change
_NODES = 0.5 - np.sqrt(3) / 6, 0.5 + np.sqrt(3) / 6
_WEIGHTS = 0.25 + np.sqrt(3) / 6, 0.25 - np.sqrt(3) / 6

_ROUNDING = 1e-12  # of a pair's largest G so far: a difference of two parts that is taken for rounding

State = tuple[ScaledFactors, ...]


class AbstractInterpolant(ABC):
    """Solution over one step."""

    start: float
    end: float
    state: State

    @abstractmethod
    def __call__(self, time: float) -> State:
        """Return the factors at a time between start and end."""

    @abstractmethod
    def carried(self, other: State) -> State:
        """Return other factors, close to those at the start, as G of this step moves them, without an answer of G."""


@dataclass(frozen=True, eq=False)
class PolynomialStep(AbstractInterpolant):
    """A step under the polynomial through some values of G.

    Attributes:
        start, end: the times it is valid between.
        state: the factors at `start`.
        times: where G is known, shape (k,).
        forces: its values, flat, shape (k, n).
        layout: layout of a flat G.
    """

    start: float
    end: float
    state: State
    times: np.ndarray
    forces: np.ndarray
    layout: TreeLayout

    def integrals(self, time: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the two flat exponents that move the state from `start` to a time, in the order of application."""
        width = time - self.start
        first, second = (_lagrange(self.times, self.start + node * width) @ self.forces for node in _NODES)
        more, less = _WEIGHTS
        return width * (more * first + less * second), width * (less * first + more * second)

    def __call__(self, time: float) -> State:
        """Return the factors at a time."""
        state = self.state
        for exponent in self.integrals(time) if time > self.start else ():
            state = tuple(pair.moved(W) for pair, W in zip(state, self.layout.build(exponent), strict=True))
        return state

    def carried(self, other: State) -> State:
        """Return other factors as the same polynomial moves them."""
        return replace(self, state=other)(self.end)


@dataclass(frozen=True, eq=False)
class PlateauStep(AbstractInterpolant):
    """A step across a plateau: G is constant and acts on the inactive directions only.

    Attributes:
        start, end: the times it is valid between.
        state: the factors at `start`.
        active: number of leading directions of each pair that stay.
        forces: G between the other directions of the frame, one matrix per pair.
    """

    start: float
    end: float
    state: State
    active: tuple[int, ...]
    forces: tuple[np.ndarray, ...]

    def __call__(self, time: float) -> State:
        """Return the factors at a time."""
        parts = zip(self.state, self.active, self.forces, strict=True)
        return tuple(pair.moved_beyond(k, (time - self.start) * G) for pair, k, G in parts)

    def carried(self, other: State) -> State:
        """Return other factors, the inactive directions of which the same G moves."""
        moved = []
        for own, pair, k, G in zip(self.state, other, self.active, self.forces, strict=True):
            integral = (self.end - self.start) * own.U[:, k:] @ G @ own.V[:, k:].T
            seeds = pair.untilted(k) if k else pair
            moved.append(seeds.moved_beyond(k, (pair.U.T @ integral @ pair.V)[k:, k:]))
        return tuple(moved)


def _lagrange(nodes: np.ndarray, time: float) -> np.ndarray:
    """Return the values at a time of the polynomials that are 1 at one node and 0 at the others."""
    gaps = nodes[:, None] - nodes + np.eye(len(nodes))
    ratios = (time - nodes + np.zeros_like(gaps)) / gaps
    np.fill_diagonal(ratios, 1.0)
    return np.prod(ratios, axis=1)


class FactoredStepper:
    """Stepper of the flow from time 0 to `until`, one step at a time; times are those of the flow itself.

    `symmetries` of the start, (p, p) for B_p = B_p^T and (p, q) for B_p = B_q, are kept as long as G has them but for
    rounding.

    Attributes:
        t: time reached.
        state: factors at that time.
        log_natural: logarithm of the factors' size at which G changes by its own size.
        visible: logarithm of the size at which a direction can be seen in G.
    """

    def __init__(
        self,
        loss: CompiledLoss,
        state: State,
        until: float,
        *,
        symmetries: Sequence[tuple[int, int]],
        tolerance: float,
        local: float,
        policy: FactoredPolicy = FactoredPolicy(),
    ) -> None:
        self.loss, self.t, self.state, self.until = loss, 0.0, state, until
        self.tolerance, self.local, self.policy = tolerance, local, policy
        self._largest = 0.0
        self._symmetries = list(symmetries)
        self._largest_of_pairs = np.zeros(len(state))
        force = self._force(tuple(pair.factors() for pair in state))
        self._times, self._forces = np.zeros(1), force[None]  # where G is known, the last one at t
        self._efolds = 0.0  # integral of the largest |G|, relative to which errors are measured
        self._largest = size = self._size(force)
        self._h = min(until, 0.01 / size) if size > 0 else until
        self.log_natural = 0.5 * np.log(self._natural_size())
        self.visible = 0.5 * np.log(policy.visible * tolerance) + self.log_natural
        self._rate = 0.0  # at which G answers to its own integral
        self._wait = 0
        self._settling: list[tuple[float, float]] = []  # times and log|dG/dt| since it has been falling

    def step(self) -> AbstractInterpolant:
        """Advance across a plateau, where there is one, else by one step that passes the error test.

        Raises:
            StepError: the step size fell below rounding.
        """
        return self._plateau_step() or self._polynomial_step()

    def advance(self, until: float) -> State:
        """Advance to a time and return the factors there.

        Raises:
            StepError: as `step`.
        """
        self.until = until
        while self.t < until:
            self.step()
        return self.state

    def sees_alike(self, other: State) -> bool:
        """Return True if the singular values that G can see are those of other factors, to an e-fold and the tolerance.

        By so many e-folds in all, six tolerances of them, sound runs may differ, too.
        """
        within = 1 + 6 * self.tolerance * self._efolds
        for pair, nearby in zip(self.state, other, strict=True):
            logs, others = pair.log_singular_values(), nearby.log_singular_values()
            seen = np.maximum(logs, others) > 2 * self.visible
            if not np.all(np.abs(logs[seen] - others[seen]) <= within):
                return False
        return True

    @property
    def growth(self) -> float:
        """E-folds in so long a time at the present rate, in units of those so far: large at a blow-up."""
        return self.t * self._size(self._forces[-1]) / (1 + self._efolds)

    @property
    def _allowed(self) -> float:
        return self.local * (1 + self._efolds)

    def _end(self, h: float, finite: bool) -> float:
        """Return the end of a step of about h."""
        size = self._size(self._forces[-1])
        h = min(h, self.policy.reach / size if size > 0 else np.inf)
        if h <= 16 * np.finfo(float).eps * max(self.t, np.finfo(float).eps * self.until):
            raise StepError(finite)
        return self.until if self.t + h > self.until * (1 - 1e-12) else self.t + h

    def _arrive(self, end: float, state: State, force: np.ndarray) -> None:
        """Move to the end of a step, and record if G is becoming stationary."""
        h, size = end - self.t, self._size(force)
        change = self._size(force - self._forces[-1])
        self._largest = max(self._largest, size)
        log = np.log(change / h) if change > 1e-13 * self._largest else -np.inf
        if self._settling and log > self._settling[-1][1] + 0.1:
            self._settling = []
        self._settling.append((end, log))
        self._efolds += h * size
        self.t, self.state = end, state

    # steps under a polynomial

    def _polynomial_step(self) -> PolynomialStep:
        finite = True
        while True:
            stable = self.policy.stable / self._rate if self._rate > 0 else np.inf
            end = self._end(min(self._h, stable), finite)
            h = end - self.t
            guess = PolynomialStep(self.t, end, self.state, self._times, self._forces, self.loss.layout)
            expected = self._force(self._shifted(*guess.integrals(end)))
            times, forces = np.append(self._times, end), np.concatenate([self._forces, expected[None]])
            step = PolynomialStep(self.t, end, self.state, times, forces, self.loss.layout)
            coarse = PolynomialStep(self.t, end, self.state, times[1:], forces[1:], self.loss.layout)
            full, less, before = (np.add(*each.integrals(end)) for each in (step, coarse, guess))
            error = self._size(full - less) / self._allowed
            finite = bool(np.isfinite(error))
            if not error <= 1:
                self._h = h * (max(0.2, 0.9 * error ** (-1 / len(times))) if finite else 0.2)
                continue
            state = step(end)
            force = self._force(tuple(pair.factors() for pair in state))
            finite = bool(np.all(np.isfinite(force)))
            if not finite:
                self._h = 0.2 * h
                continue
            moved = self._size(full - before)
            if moved > 1e-3 * self._allowed:
                self._rate = max(self._size(force - expected) / moved, 0.98 * self._rate)
            self._h = h * min(2.0, 0.9 * max(error, 1e-8) ** (-1 / len(times)))
            self._arrive(end, state, force)
            self._times, self._forces = (
                times[-self.policy.points :],
                np.concatenate([forces[:-1], force[None]])[-self.policy.points :],
            )
            return step

    # steps across plateaus

    def _plateau_step(self) -> PlateauStep | None:
        if self._wait > 0:
            self._wait -= 1
            return None
        visible = self.visible
        active = tuple(int(np.sum(pair.log_sizes > visible)) for pair in self.state)
        settled = self._settled(active) if any(active) else (self.state, self._forces[-1])
        if settled is None:
            return None
        state, G = settled
        forces = tuple(g[k:, k:] for g, k in zip(self._in_frames(state, G), active, strict=True))
        speeds = np.array([np.linalg.norm(force, 2) if force.size else 0.0 for force in forces])

        def span(of: State) -> float:
            """Return the time in which nothing can become visible."""
            room = np.array(
                [visible - np.max(p.log_sizes[k:], initial=-np.inf) for p, k in zip(of, active, strict=True)]
            )
            with np.errstate(divide="ignore"):
                return float(np.min(np.where(room > 0.05, room, 0.0) / speeds, initial=np.inf, where=speeds > 0))

        end, moving = self.t, state
        if span(state) < 4 * self._h:
            self._wait = self.policy.patience
            return None
        while end < self.until and span(moving) > 0:
            end = min(self.until, end + span(moving))
            moving = PlateauStep(self.t, end, state, active, forces)(end)
        self._efolds += (end - self.t) * float(speeds.max())
        step = PlateauStep(self.t, end, state, active, forces)
        self.t, self.state, self._settling = end, moving, []
        self._times = np.array([end])
        self._forces = self._force(tuple(pair.factors() for pair in moving))[None]
        self._h = 1 / max(float(speeds.max()), self._rate, np.finfo(float).tiny)
        return step

    def _settled(self, active: tuple[int, ...]) -> tuple[State, np.ndarray] | None:
        """Return the state and G once the active directions are stationary, if that is near; None otherwise.

        The remaining G on active directions is taken to decay at one rate, the observed one: they move by G / rate,
        the inactive ones by the change of G over rate. The remainder after that must be negligible.
        """
        if len(self._settling) < self.policy.seen:
            return None
        (early, before), (late, now) = self._settling[-self.policy.seen], self._settling[-1]
        rate = (before - now) / (late - early) if np.isfinite(now) else np.inf
        if not (rate > 0 and np.exp(now) / rate**2 < self.policy.near * self._allowed):
            return None
        force, build = self._forces[-1], self.loss.layout.build
        framed = self._in_frames(self.state, force)
        state = tuple(
            pair.moved(_out_of_frame(pair, _on_active(g, k)) / rate)
            for pair, g, k in zip(self.state, framed, active, strict=True)
        )
        stationary = self._force(tuple(pair.factors() for pair in state))
        left, right = (
            max(float(np.linalg.norm(_on_active(g, k))) for g, k in zip(self._in_frames(*at), active, strict=True))
            for at in ((state, stationary), (self.state, force))
        )
        growing = left > max(self.policy.dropped * rate if np.isfinite(rate) else 0.0, 1e-12 * self._largest)
        if growing or self._size(force - stationary) / rate * left > self.policy.left * self._allowed * right:
            self._wait = self.policy.patience
            return None
        state = tuple(
            pair.untilted(k).moved_beyond(k, _in_frame(pair, change)[k:, k:] / rate) if k else pair.moved(change / rate)
            for pair, k, change in zip(state, active, build(force - stationary), strict=True)
        )
        return state, stationary

    def _in_frames(self, state: State, force: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(_in_frame(pair, g) for pair, g in zip(state, self.loss.layout.build(force), strict=True))

    # the loss

    def _shifted(self, *exponents: np.ndarray) -> "tuple[tuple[np.ndarray, np.ndarray], ...]":
        """Return the factors after some exponents, in float64."""
        factors = tuple(pair.factors() for pair in self.state)
        for exponent in exponents:
            factors = _moved(factors, self.loss.layout.build(exponent))
        return factors

    def _force(self, factors: "tuple[tuple[np.ndarray, np.ndarray], ...]") -> np.ndarray:
        """Return G at the products of some factors, flat."""
        force = -self.loss.value_and_gradient(np.concatenate([np.ravel(L @ R.T) for L, R in factors]))[1]
        if not self._symmetries or not np.isfinite(force).all():  # a trial state outside the domain decides nothing
            return force
        parts = list(self.loss.layout.build(force))
        sizes = self._largest_of_pairs = np.maximum(self._largest_of_pairs, [np.linalg.norm(part) for part in parts])
        for one, two in list(self._symmetries):  # of B: rounding of G must not lead away from them
            image = parts[one].T if one == two else parts[two]
            if np.abs(parts[one] - image).max() <= _ROUNDING * max(sizes[one], sizes[two]):
                parts[two] = (parts[one] + image) / 2 if one == two else parts[one]
            else:
                self._symmetries.remove((one, two))
        return self.loss.layout.flatten(parts)

    def _natural_size(self) -> float:
        """Return the size of products along G(0) at which G changes by about its own size; 1 where it never does."""
        start = -self.loss.value_and_gradient(np.zeros(self.loss.layout.size))[1]
        slope, size, outside = self._size(start), 1.0, np.inf
        for _ in range(_TRIALS if slope > 0 else 0):
            change = self._size(start + self.loss.value_and_gradient(start * (size / slope))[1]) / slope
            if 0.1 < change < 10:
                return size
            if not np.isfinite(change):
                outside, size = size, 1e-8 * size
                continue
            size *= np.clip(1 / max(change, 1e-16), 1e-16, 1e8)
            if size >= outside:  # the loss ends before its gradient has changed
                return outside
            if not _SEARCHED[0] < size < _SEARCHED[1]:
                break
        return 1.0

    def _size(self, flat: np.ndarray) -> float:
        """Return the largest Frobenius norm of a pair's part."""
        return max(float(np.linalg.norm(part)) for part in self.loss.layout.build(flat))


def _moved(
    factors: "tuple[tuple[np.ndarray, np.ndarray], ...]", exponents: "tuple[np.ndarray, ...]"
) -> "tuple[tuple[np.ndarray, np.ndarray], ...]":
    return tuple(moved_factors(L, R, W) for (L, R), W in zip(factors, exponents, strict=True))


def _on_active(G: np.ndarray, active: int) -> np.ndarray:
    """Return G, given in a frame, without its part between inactive directions."""
    G = G.copy()
    G[active:, active:] = 0.0
    return G


def _out_of_frame(pair: ScaledFactors, G: np.ndarray) -> np.ndarray:
    """Invert `_in_frame`."""
    m, n = pair.shape
    return (pair.U @ G @ pair.V.T)[:m, :n]


def _in_frame(pair: ScaledFactors, G: np.ndarray) -> np.ndarray:
    """Return U^T G V, with G filled with zeros to the frame's size."""
    m, n = G.shape
    return pair.U[:m].T @ G @ pair.V[:n]

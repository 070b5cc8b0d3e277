"""Transition of the active units, once one more is active, to the next stationary point.

    theta   weights of the active units, shape (a, p); theta' = -dL/dtheta
    H       Hessian of L by theta

Explicit steps follow the flow from the saddle with the new unit at a small norm until it is slow. Where they do not
serve, an implicit solver goes on, so that a long approach costs little. Newton's method in the directions with
curvature computes the end to rounding. Kinks are rounded for the implicit solver, which slides along them, and the end
is computed on the kinks themselves. Directions without curvature, such as a rotation of directions among units of a
linear network, are left alone.

A symmetry can lead the path exactly to a saddle of the active units. How the flow leaves it is decided by how the new
unit approached its direction. For kappa = 2 it rests there for a time of the order of the stages, so the path ends.
For kappa > 2 it leaves at once on their scale. The last deviation of the new unit, carried along the path by the
linearised flow, decides on which side, and the path goes on from there. It can also enter a valley without end, along
which weights grow and the loss converges. The time until the next stage is unlimited as alpha vanishes, so its bottom
is the plateau.

A unit that falls dormant keeps its direction, a stationary one of its utility on the sphere. Where this is unstable,
rounding would turn the unit, and it would grow again within the transition, as from alpha it cannot. The path goes on
without such a unit, whose norm alone is followed.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float, Int
from scipy.integrate import BDF, LSODA, solve_ivp
from scipy.interpolate import make_interp_spline

from saddlescope._shared.symmetric_matrices import eigenvectors
from saddlescope.theory.saddle.path import NoMinimum, PathPolicy, SaddlePassage, TransitionFailure
from saddlescope.theory.units.explicit_path import MOST, Limits
from saddlescope.theory.units.stationary_point import NEWTON, StationaryWeights
from saddlescope.theory.units.unit_network import WIDTH, NonFiniteUnitsError, UnitNetwork

_POLICY = PathPolicy(slow=3e-3, steps=3_000, largest=1e8, leaving=0.03)
_VALLEY_STEPS = 8_000  # of units of degree above 2, which follow valleys
_SIDE = 1e-3  # distance from a saddle, relative to the weights, from which the path goes on
_LONG = 1e3  # time, in units of 1 / rate of the new unit, after which a path may be in a valley
_FALL = 3e-4  # what the loss falls in an e-fold of time, in units of what has been learned, near the bottom of a valley
_LEAVING = 3.0  # e-folds by which deviations may have grown in a valley; at a saddle they grow by more
_NOT_FINITE = TransitionFailure(
    "The loss is NaN or infinite on the path of the active units. Look for a division, root or logarithm of an output.",
    status="not_finite",
)
_KINKS = 5  # tests in turn, each after 100 steps, that find the path at a kink: it slides along it
_KINK_STEP = 1e-6  # size of a step across a kink, relative to the norm of the weights
_STAYS = 5e-3  # way in an e-fold of time, relative to the weights, that shrinks: not that of logarithmic growth
_FASTER = 1e3  # rate of growth, in units of what is usual, of weights that blow up
_APART = 40.0  # e-folds at a saddle after which a deviation has the direction that grows fastest
_ASLEEP = 1e-3  # units that fell to this share of their largest norm, in a stationary direction, leave the path


@dataclass(frozen=True, eq=False)
class StationaryUnits:
    """Stationary point of the active units.

    Attributes:
        thetas: shape (a, p).
        loss: L.
        curvature: smallest eigenvalue of H that is not flat; infinite without units.
        flat: number of flat directions.
        fall: of the loss in an e-fold of time; 0 at a minimum.
        kept: numbers of the units among those that the transition started with, shape (a,).
        removed: direction before it vanished of each unit that fell dormant, shape (f, p).
        times: of points on the path, shape (s,); empty at the origin.
        residuals: r there, shape (s, ...).
    """

    thetas: Float[np.ndarray, "a p"]
    loss: float
    curvature: float
    flat: int
    fall: float
    kept: Int[np.ndarray, "a"]
    removed: Float[np.ndarray, "f p"]
    times: Float[np.ndarray, "s"]
    residuals: Float[np.ndarray, "s ..."]

    @classmethod
    def origin(cls, size: int, loss: float) -> "StationaryUnits":
        """Return the stationary point without active units."""
        empty = np.zeros((0, size))
        return cls(empty, loss, np.inf, 0, 0.0, np.zeros(0, int), empty, np.zeros(0), np.zeros(0))


class Transition:
    """Path of active units from weights near a saddle, off which one of them is growing.

    Args:
        network: the network.
        start: weights at the start, shape (b, p).
        kinds: kinds of these units, shape (b,).
        distance: of the start from the saddle, in weights.
        rate: at which the distance grows.
        rotate: True if the columns of one kind may be mixed by rotations, as where U is a quadratic form.
    """

    def __init__(
        self,
        network: UnitNetwork,
        start: Float[np.ndarray, "b p"],
        kinds: Int[np.ndarray, "b"],
        *,
        distance: float,
        rate: float,
        rotate: bool,
    ) -> None:
        self._network, self._start, self._kinds, self._rotate = network, start, kinds, rotate
        self._distance, self._rate = distance, rate
        self._largest = _POLICY.largest * max(distance / _POLICY.seed, float(np.max(np.abs(start))))
        self._rounded = network.rounded(WIDTH)
        self._live = np.arange(len(kinds))  # numbers of the units that the solver follows
        self._asleep: dict[int, _Sleeper] = {}
        self._times: list[float] = []
        self._points: list[np.ndarray] = []
        self._residuals: list[np.ndarray] = []
        self._passage = SaddlePassage(0.0)
        self.saddle: StationaryWeights | None = None  # at which the path has ended

    @classmethod
    def with_new_unit(
        cls,
        network: UnitNetwork,
        thetas: Float[np.ndarray, "a p"],
        kinds: Int[np.ndarray, "b"],
        direction: Float[np.ndarray, "p"],
        utility: float,
        *,
        rotate: bool,
    ) -> "Transition":
        """Return the path from units at a saddle and a new one, of small norm.

        Args:
            network: the network.
            thetas: weights at the saddle, shape (a, p).
            kinds: kinds of these units and of the new one, shape (a + 1,).
            direction: of the new unit.
            utility: U of this direction.
            rotate: as for the class.
        """
        norm = _POLICY.seed * network.norm_of_effect(thetas, kinds[:-1], direction, int(kinds[-1]), utility)
        start = np.concatenate([thetas, norm * direction[None]])
        distance = float(np.linalg.norm(start[-1]))
        rate = network.degree * utility * distance ** (network.degree - 2)
        return cls(network, start, kinds, distance=distance, rate=rate, rotate=rotate)

    def follow(self) -> StationaryUnits | TransitionFailure:
        """Return the end of the path."""
        try:
            at = self._network.explicit_path(self._start, self._kinds, self._limits())
            for step, (time, thetas) in enumerate(zip(at.times, at.points, strict=True)):
                self._note(time, thetas)
                if step % _POLICY.look == 0:
                    self._look(float(time), thetas, float(np.linalg.norm(self._velocity(thetas.ravel()))))
            self._peak, self._fastest = at.peak, at.fastest
            found = self._end_near(at.thetas, at.peak, at.time) if at.slow else None
            first_step = 1e-2 / self._rate if at.time == 0 else None
            return self._checked(found or self._follow(at.time, at.thetas, first_step))
        except NonFiniteUnitsError:
            return _NOT_FINITE

    def past_saddle(self, deviation: Float[np.ndarray, "p"]) -> StationaryUnits | TransitionFailure | None:
        """Return the end of the path beyond the saddle at which `follow` has ended; None if the side is not known.

        A path that is not symmetric also comes to a saddle if it forgets how it began, and then no deviation is known
        that leads off it.

        Args:
            deviation: of the direction of the new unit, of norm 1.
        """
        saddle = self.saddle
        assert saddle is not None
        try:
            leaving = saddle.vectors[:, saddle.values <= (1 - _SIDE) * saddle.values[0]]
            carried, log_size = self._carried(deviation, saddle)
            side = leaving @ (leaving.T @ carried[self._live].ravel())
            share, norm = float(np.linalg.norm(side)), float(np.linalg.norm(saddle.thetas))
            if share <= _POLICY.tolerance:
                return None
            log_begin = math.log(float(np.linalg.norm(self._start[-1])) / norm)
            log_arrival = log_begin + math.log(share) + log_size - min(self._passage.growth, _APART)
            here = self._passage.here  # 0 where the path rests at the saddle exactly
            if here > 0 and math.log(here) >= math.log(_POLICY.tolerance) + log_arrival:
                return None
            self._passage = SaddlePassage(self._times[-1])
            step = _SIDE * norm / share * side
            return self._checked(self._follow(self._times[-1], saddle.thetas + step.reshape(saddle.thetas.shape)))
        except NonFiniteUnitsError:
            return _NOT_FINITE

    def _checked(self, found: StationaryUnits | TransitionFailure) -> StationaryUnits | TransitionFailure:
        """Return the end of the path, or a failure if the path has passed a saddle more closely than its errors."""
        if isinstance(found, TransitionFailure) or self._passage.missed(_POLICY.tolerance):
            return found
        return TransitionFailure(
            f"The active units pass a saddle among them at a relative distance of {self._passage.deviation:.1g}, below "
            "the error of their path, so that rounding decides how they leave it. Follow them with unit_flow.",
            status="saddle",
        )

    def _carried(
        self, deviation: Float[np.ndarray, "p"], saddle: StationaryWeights
    ) -> tuple[Float[np.ndarray, "b p"], float]:
        """Return a small deviation of the new unit, carried along the path to a saddle, and its log growth.

        It follows the linearised flow, y' = -H y, and is returned over its norm, which may be too small for a float. Of
        the time at the saddle only the first e-folds count: then it has the direction that grows fastest.
        """
        times = np.array(self._times)
        path = make_interp_spline(times, np.array(self._points), k=1)  # velocities are rounding where the flow is stiff
        start = np.zeros(self._start.shape)
        start[-1] = deviation

        def turning(time: float, state: Float[np.ndarray, "q"]) -> Float[np.ndarray, "q"]:
            y = state[:-1]
            velocity = -self._rounded.hessian_product(path(time), self._kinds, y.reshape(start.shape)).ravel()
            growth = y @ velocity / (y @ y)
            return np.append(velocity - growth * y, growth)

        begin, absolute = np.append(start.ravel(), 0.0), 1e-3 * _POLICY.tolerance
        waited = max(self._passage.growth - _APART, 0.0) / abs(saddle.values[0])
        span = times[0], times[-1] - waited
        found = solve_ivp(turning, span, begin, method="LSODA", rtol=_POLICY.tolerance, atol=absolute)
        return found.y[:-1, -1].reshape(start.shape), float(found.y[-1, -1])

    def _follow(
        self, time: float, thetas: Float[np.ndarray, "a p"], first_step: float | None = None
    ) -> StationaryUnits | TransitionFailure:
        solver = self._solver(time, thetas, first_step)
        peak, fastest, wait, kinks = self._peak, self._fastest, 0, 0
        superlinear = self._network.degree > 2
        for step in range(_VALLEY_STEPS if superlinear else _POLICY.steps):
            # A trial point may overshoot, and SciPy's first step reads, and discards, a difference that it never set.
            # LSODA warns where it fails, which the status says.
            with (
                np.errstate(over="ignore", invalid="ignore"),
                warnings.catch_warnings(action="ignore", category=UserWarning),
            ):
                solver.step()
            if solver.status == "failed":
                break
            if solver.t * self._rate > _POLICY.horizon:
                way = solver.t * float(np.linalg.norm(self._velocity(solver.y)))  # in an e-fold of time
                why = "the loss seems to have its minimum at infinity. Add a small penalty on the output to the loss."
                return TransitionFailure(
                    "The active units still move after 1e9 times the time that the new unit took to grow: "
                    + (NoMinimum.FLAT if way < _STAYS * float(np.linalg.norm(solver.y)) else why)
                )
            thetas = self._weights(solver.y)
            self._note(solver.t, thetas)
            if float(np.max(np.abs(thetas))) > self._largest:
                return self._blown_up(solver.y) or TransitionFailure(
                    "The active units diverge: the loss has its minimum at infinity, as losses with exponential tails "
                    "do on separable data. Add a small penalty on the output to the loss."
                )
            peak[self._live] = np.maximum(peak[self._live], np.linalg.norm(thetas, axis=1))
            changed = self._fallen_or_woken(thetas, peak[self._live], solver.t - (solver.t_old or 0.0))
            if changed is not None:
                solver, thetas = self._solver(solver.t, changed), changed
            speed = float(np.linalg.norm(self._velocity(solver.y)))
            fastest = max(fastest, speed)
            if step % 100 == 99:
                kinks = kinks + 1 if speed > _POLICY.slow * fastest and self._at_kink(thetas) else 0
                if kinks == _KINKS:
                    break
            if step % _POLICY.look:
                continue
            found = None
            if step >= wait and speed <= _POLICY.slow * fastest and solver.t * self._rate >= 1.0:
                found = self._end_near(thetas, peak[self._live], solver.t)
                if found is None and superlinear:
                    found = self._valley_at(thetas, solver.t)
                wait = step + max(step // 8, 2 * thetas.size if thetas.size > 300 else 0)
            if found is None:
                self._look(solver.t, thetas, speed)
                found = self._saddle_at(thetas)
            if found is not None:
                return found
        if self._at_kink(self._weights(solver.y)):
            return TransitionFailure(
                "The active units slide along a kink, where the loss has no gradient, as ReLU neurons do where a "
                "sample is about to leave them; the minimum among them may lie on it. Use a unit without kinks."
            )
        return self._blown_up(solver.y) or TransitionFailure(
            "The active units reach no stationary point that is a minimum among them: they follow a valley without "
            "end, or stop at a saddle. Add a small penalty on the output to the loss."
        )

    def _blown_up(self, y: Float[np.ndarray, "q"]) -> TransitionFailure | None:
        """Return the failure of a path whose weights grow ever faster, if they do."""
        usual = self._rate / _POLICY.seed ** (self._network.degree - 2)  # of units of the size at which they saturate
        if not float(self._velocity(y) @ y) > _FASTER * usual * float(y @ y):
            return None
        return TransitionFailure(
            "The active units blow up in finite time: the loss falls without bound along their path. Bound it from "
            "below."
        )

    def _note(self, time: float, thetas: Float[np.ndarray, "a p"]) -> None:
        """Keep a point of the path, and the residual there, which dormant units feel."""
        whole = np.zeros_like(self._start)
        whole[self._live] = thetas
        self._times.append(float(time))
        self._points.append(whole)
        self._residuals.append(np.asarray(self._network.residual_of(thetas, self._kinds[self._live])[1]))

    def _limits(self) -> Limits:
        return Limits(
            rate=self._rate,
            tolerance=_POLICY.tolerance,
            absolute=_POLICY.tolerance * self._distance,
            slow=_POLICY.slow,
            asleep=_ASLEEP,
            largest=self._largest,
            horizon=_POLICY.horizon,
            steps=MOST,
        )

    def _solver(self, time: float, thetas: Float[np.ndarray, "a p"], first_step: float | None = None) -> BDF | LSODA:
        velocity = lambda t, y: self._velocity(y)  # noqa: E731
        jacobian = lambda t, y: -self._rounded.loss_hessian(self._weights(y), self._kinds[self._live])  # noqa: E731
        kind, absolute = BDF, self._distance
        if self._network.degree > 2:
            # In stiff valleys gradients are differences of large numbers, whose rounding BDF takes for divergence.
            kind, absolute = LSODA, float(np.max(np.abs(thetas)))
        return kind(
            velocity,
            time,
            thetas.ravel(),
            1e300,  # it has no last time, but LSODA wants a number
            first_step=first_step,
            rtol=_POLICY.tolerance,
            atol=_POLICY.tolerance * absolute,
            jac=jacobian,
        )

    def _weights(self, y: Float[np.ndarray, "q"]) -> Float[np.ndarray, "a p"]:
        return y.reshape(len(self._live), -1)

    def _fallen_or_woken(
        self, thetas: Float[np.ndarray, "a p"], peak: Float[np.ndarray, "a"], duration: float
    ) -> Float[np.ndarray, "c p"] | None:
        """Return the units that the path goes on with, if units left it or came back during the last step."""
        kinds = self._kinds[self._live]
        norms = np.linalg.norm(thetas, axis=1)
        if not self._asleep and np.all(norms > _ASLEEP * peak):
            return None
        _, residual = self._network.residual_of(thetas, kinds)
        directions = thetas / np.maximum(norms, 1e-300)[:, None]
        utilities, _ = self._network.utilities(directions, kinds, residual)
        small = np.flatnonzero((norms <= _ASLEEP * peak) & (utilities < 0))
        fallen = np.zeros(len(kinds), bool)
        for n in small:
            still = self._network.stationary_direction(directions[n], int(kinds[n]), residual)
            if still is not None:
                directions[n], fallen[n] = still, True
        woken = [number for number in list(self._asleep) if self._grown(number, residual, duration)]
        if not (fallen.any() or woken) or fallen.all():
            return None
        for n in np.flatnonzero(fallen):
            self._asleep[int(self._live[n])] = _Sleeper.of(directions[n], float(norms[n]), float(utilities[n]))
        back = np.array([self._asleep.pop(number).weights for number in woken]).reshape(-1, thetas.shape[1])
        numbers = np.concatenate([self._live[~fallen], np.array(woken, int)])
        order = np.argsort(numbers)
        self._live = numbers[order]
        return np.concatenate([thetas[~fallen], back])[order]

    def _grown(self, number: int, residual: Array, duration: float) -> bool:
        """Let the norm of a unit change that left the path; return True if it is as large as then."""
        unit = self._asleep[number]
        utility = float(self._network.utilities(unit.direction[None], self._kinds[[number]], residual)[0][0])
        degree = self._network.degree
        unit.log_norm += duration * degree * np.exp((degree - 2) * unit.log_norm) * (unit.utility + utility) / 2
        unit.utility = utility
        return bool(unit.log_norm > unit.log_largest)

    def _look(self, time: float, thetas: Float[np.ndarray, "b p"], speed: float) -> None:
        """Watch for saddles at a point of the path."""
        curvatures = self._network.curvatures(thetas, self._kinds[self._live])
        self._passage.note(time, float(np.linalg.norm(thetas)), speed, curvatures)

    def _saddle_at(self, thetas: Float[np.ndarray, "b p"]) -> TransitionFailure | None:
        """Return the failure of a path that is as close to a saddle as rounding allows, and note the saddle."""
        if not self._passage.symmetric:
            return None
        kinds = self._kinds[self._live]
        saddle = self._network.stationary_near(thetas, kinds, minimum=False)
        if saddle is None or saddle.values[0] >= 0:
            return None
        self.saddle = saddle
        loss = self._network.loss_gradient(saddle.thetas, kinds)[0]
        return TransitionFailure(
            f"The active units come so close to a saddle among them, of loss {loss:.6g}, that rounding decides how "
            "they leave it, as by a symmetry of the data. Break it, or follow the units with unit_flow.",
            status="saddle",
        )

    def _valley_at(self, thetas: Float[np.ndarray, "a p"], time: float) -> StationaryUnits | None:
        """Return the bottom of a valley without end, if the path has come so far that the loss hardly falls."""
        if time * self._rate < _LONG:
            return None
        kinds = self._kinds[self._live]
        rest = self._at_rest(thetas, kinds, time)
        if rest is None:
            return None
        fall, values = rest
        curved = values * time > _LEAVING
        keep = np.ones(len(thetas), bool)
        curvature = float(np.min(values[curved], initial=np.inf))
        return self._ended(thetas, keep, thetas, curvature, int(np.sum(~curved)), fall)

    def _at_kink(self, thetas: Float[np.ndarray, "b p"]) -> bool:
        """Return True if the velocity jumps within a small step along the path, at a kink that is not rounded."""
        if self._network.kinks is not None:
            return False
        velocity, norm = self._velocity(thetas.ravel()), float(np.linalg.norm(thetas))
        speed = float(np.linalg.norm(velocity))
        if speed == 0:
            return False
        H = self._network.loss_hessian(thetas, self._kinds[self._live])

        def jump(size: float) -> float:
            step = size * norm * velocity / speed
            return float(np.linalg.norm(self._velocity(thetas.ravel() + step) - velocity + H @ step))

        rounding = NEWTON.exact * float(np.max(np.abs(H))) * norm
        short = jump(_KINK_STEP)  # of the order of the step without a kink; a step ten times as long then jumps by 100
        return short > max(1e-2 * speed, rounding) and jump(10 * _KINK_STEP) < 30 * short

    def _velocity(self, y: Float[np.ndarray, "q"]) -> Float[np.ndarray, "q"]:
        return -self._rounded.loss_gradient(self._weights(y), self._kinds[self._live])[1].ravel()

    def _end_near(
        self, thetas: Float[np.ndarray, "a p"], peak: Float[np.ndarray, "a"], time: float
    ) -> StationaryUnits | None:
        """Return the stationary point near the path's present point, if Newton's method finds one."""
        kinds = self._kinds[self._live]
        if self._rotate:
            thetas, peak = principal_units(thetas, kinds), np.full(len(peak), float(np.max(peak)))
        norms = np.linalg.norm(thetas, axis=1)
        _, residual = self._network.residual_of(thetas, kinds)
        directions = thetas / np.maximum(norms, 1e-300)[:, None]
        falling = self._network.utilities(directions, kinds, residual)[0] < 0
        leaving = (norms <= _POLICY.leaving * peak) & falling
        for gone in [leaving, np.zeros_like(leaving)] if leaving.any() else [leaving]:
            found = self._polished(thetas, directions, ~gone, time)
            if found is not None:
                return found
        return None

    def _polished(
        self, thetas: Float[np.ndarray, "a p"], directions: Float[np.ndarray, "a p"], keep: np.ndarray, time: float
    ) -> StationaryUnits | None:
        kinds = self._kinds[self._live]
        near = self._network.near_kinks(thetas[keep], kinds[keep])
        found = None if near is None else self._network.minimum_near(thetas[keep], kinds[keep], *near)
        if found is not None:
            return self._ended(found.thetas, keep, directions, found.curvature, int(np.sum(found.flat)), 0.0)
        if not keep.any():
            return self._ended(thetas[keep], keep, directions, np.inf, 0, 0.0)
        # At no kink, or next to one that no longer holds it.
        end = self._network.stationary_near(thetas[keep], kinds[keep], minimum=True)
        if end is None:
            return None
        flat, fall = int(np.sum(end.flat)), 0.0
        if flat:
            rest = self._at_rest(end.thetas, kinds[keep], time)
            if rest is None:
                return None
            fall = rest[0]
        return self._ended(end.thetas, keep, directions, end.curvature, flat, fall)

    def _at_rest(
        self, thetas: Float[np.ndarray, "c p"], kinds: Int[np.ndarray, "c"], time: float
    ) -> tuple[float, Float[np.ndarray, "q"]] | None:
        """Return what the loss falls in an e-fold of time, and the eigenvalues of H; None if it is not at rest."""
        loss, slope = self._network.loss_gradient(thetas, kinds)
        fall, learned = time * float(np.sum(slope**2)), self._network.origin[0] - loss
        if fall > _FALL * learned:
            return None
        values, _ = eigenvectors(self._network.loss_hessian(thetas, kinds))
        if self._network.degree > 2 and values[0] * time < -_LEAVING:
            return None  # next to stiff directions, slow growth looks flat
        return (fall if fall > NEWTON.exact * learned else 0.0), values

    def _ended(
        self, point: Float[np.ndarray, "c p"], keep: np.ndarray, directions: Float[np.ndarray, "a p"],
        curvature: float, flat: int, fall: float,
    ) -> StationaryUnits | None:  # fmt: skip
        """Return an end without the units that fell dormant; None if one of these grows there."""
        loss, residual = self._network.residual_of(point, self._kinds[self._live][keep])
        gone = {int(number): direction for number, direction in zip(self._live[~keep], directions[~keep], strict=True)}
        gone |= {number: unit.direction for number, unit in self._asleep.items()}
        numbers = sorted(gone)
        for number in numbers:
            still = self._network.stationary_direction(gone[number], int(self._kinds[number]), residual)
            gone[number] = gone[number] if still is None else still
        removed = np.array([gone[number] for number in numbers]).reshape(-1, directions.shape[1])
        if numbers and np.any(self._network.utilities(removed, self._kinds[numbers], residual)[0] >= 0):
            return None
        return StationaryUnits(
            thetas=point, loss=loss, curvature=curvature, flat=flat, fall=fall, kept=self._live[keep],
            removed=removed, times=np.array(self._times), residuals=np.array(self._residuals),
        )  # fmt: skip


@dataclass(eq=False)
class _Sleeper:
    """Unit that fell dormant on the path: its direction, which stays, log norms now and then, and its utility."""

    direction: Float[np.ndarray, "p"]
    log_norm: float
    log_largest: float
    utility: float

    @classmethod
    def of(cls, direction: Float[np.ndarray, "p"], norm: float, utility: float) -> "_Sleeper":
        """Return the unit as it leaves the path."""
        log_norm = float(np.log(max(norm, 1e-300)))
        return cls(direction, log_norm, log_norm, utility)

    @property
    def weights(self) -> Float[np.ndarray, "p"]:
        """Its weights now."""
        return np.exp(self.log_norm) * self.direction


def principal_units(thetas: Float[np.ndarray, "b p"], kinds: Int[np.ndarray, "b"]) -> Float[np.ndarray, "b p"]:
    """Return units with the same sum of theta theta^T of each kind and orthogonal weights, largest first."""
    turned = thetas.copy()
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(kinds == kind)
        if len(of_kind) > 1:
            _, s, Vt = np.linalg.svd(thetas[of_kind], full_matrices=False)
            turned[of_kind] = 0.0
            turned[of_kind[: len(s)]] = s[:, None] * Vt
    return turned

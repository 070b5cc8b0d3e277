"""Gradient flow of products of full factors, L(W_1 W_2^T, W_3 W_4^T, ...), from any initial scale.

In float64 weights this flow is silently wrong: as soon as one direction is of order 1, rounding seeds all others with
1e-16, and from an initial scale of 1e-32 everything later than the first stage comes too early. Here factors are stored
in the coordinates of `saddlescope.flow.factored.scaled_factors`, in which no direction loses digits to another and the
conservation law W_1^T W_1 - W_2^T W_2 = const (equation 5 of Boix-Adsera et al. 2023, for matrices) holds by
construction.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.loss_scale import scale_exponent
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.figures.time_axes import loss_panel
from saddlescope.flow.factored.exponential_integrator import AbstractInterpolant, FactoredStepper, PlateauStep, State
from saddlescope.flow.factored.scaled_factors import ScaledFactors
from saddlescope.flow.status import (
    LOCAL_SHARE,
    REACHED,
    FlowError,
    Status,
    diverged,
    exhausted,
    hidden_nan,
    require_run,
    stuck,
    undecided,
)
from saddlescope.loss.checks import as_float64, require_finite, require_float64_loss, require_smooth_at_zero
from saddlescope.loss.compiled import CompiledLoss, Evaluations, Loss
from saddlescope.numerics.ndf import StepError
from saddlescope.numerics.step_roots import root_along
from saddlescope.numerics.tree_layout import TreeLayout

_ROUNDINGS = 64 * np.finfo(float).eps
_LARGEST_LOG = 30.0  # of a direction's size, relative to that at which the loss bends
TIME_UNIT = "t / log(1/alpha)"


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class FactorInit(ReprMixin):
    """Products of full factors: the loss is a function of the tuple of B_p = L_p R_p^T, with L_p(0) = alpha left_p.

    Time is in units of log(1/alpha), in which the times of stages converge as alpha vanishes.

    Args:
        pairs: (left, right) for each product, before they are scaled: matrices of shapes (m, h) and (n, h).
        log_scale: log(alpha), negative; alpha itself may be far below what float64 can hold.

    Raises:
        InputError: a factor is no finite float64 matrix, two factors of a pair have different numbers of columns, or
            log_scale is not negative.
    """

    pairs: Sequence[tuple[Any, Any]]
    log_scale: float

    def __post_init__(self) -> None:
        pairs = tuple(tuple(as_float64("pairs", factor) for factor in pair) for pair in self.pairs)
        object.__setattr__(self, "pairs", pairs)
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise InputError(f"pairs must hold one (left, right) for each product, at least one; got {len(pairs)}.")
        for number, (left, right) in enumerate(pairs):
            if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1] or 0 in left.shape + right.shape:
                raise InputError(
                    f"pairs must hold matrices with as many columns left as right; got the shapes {left.shape!r} and "
                    f"{right.shape!r} in pair {number}."
                )
        if not -np.inf < self.log_scale < 0:
            raise InputError(
                f"log_scale must be finite and negative, as log(alpha) is for alpha < 1; got {self.log_scale!r}. "
                "Weights that are not small need no rescaled time: start a loss of the factors from ParameterInit."
            )

    @property
    def symmetries(self) -> tuple[tuple[int, int], ...]:
        """Symmetries of the start, which the flow keeps as long as the gradient has them.

        (p, p): every column of left_p is that of right_p, or minus that, so that B_p is symmetric. (p, q): the pairs p
        and q are equal.
        """
        signed = (
            (p, p)
            for p, (left, right) in enumerate(self.pairs)
            if left.shape == right.shape and np.all(np.all(left == right, axis=0) | np.all(left == -right, axis=0))
        )
        equal = (
            (p, q)
            for (p, one), (q, two) in itertools.combinations(enumerate(self.pairs), 2)
            if all(map(np.array_equal, one, two))
        )
        return (*signed, *equal)

    def state(self) -> State:
        """Return the factors in scaled coordinates."""
        return tuple(ScaledFactors.of(left, right, self.log_scale) for left, right in self.pairs)

    def nearby(self) -> "FactorInit":
        """Return factors whose entries differ by roundings of random sizes, with the same zeros and symmetries."""
        rng, pairs = np.random.default_rng(0), list(self.pairs)
        for p, (left, right) in enumerate(pairs):
            at_left, at_right = (1 + _ROUNDINGS * rng.standard_normal(factor.shape) for factor in (left, right))
            pairs[p] = left * at_left, right * (at_left if (p, p) in self.symmetries else at_right)
        for p, q in self.symmetries:
            pairs[q] = pairs[p] if p < q else pairs[q]
        return FactorInit(pairs, self.log_scale)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FactoredTrajectory(ReprMixin, PlotMixin):
    """A run of the flow of factors. Call it with times to have the products there.

    Attributes:
        times: recorded times, ascending, shape (k,), in units of log(1/alpha).
        losses: the loss at the recorded times, shape (k,).
        log_singular_values: natural logarithms of the singular values of each product at the recorded times, shape
            (k, pairs, r), descending; also where float64 underflows, to about 1e-6. -inf means 0, and fills the spectra
            of products that are smaller than others.
        conserved: largest drift of an entry of L^T L - R^T R between start and end, in units of alpha^2.
        plateaus: (start, end) of the plateaus that were crossed in one step each.
        evaluations: numbers of evaluations of the loss.
        status: termination status; what was computed until then is recorded.
    """

    times: Float[np.ndarray, "k"]
    losses: Float[np.ndarray, "k"]
    log_singular_values: Float[np.ndarray, "k pairs r"]
    conserved: float
    plateaus: tuple[tuple[float, float], ...]
    evaluations: Evaluations
    status: Status
    path: "FactoredPath"

    time_unit = TIME_UNIT
    identified = False

    def __repr__(self) -> str:
        return (
            f"FactoredTrajectory({len(self.times)} records to {self.times[-1]:.6g} in {self.time_unit!r}, "
            f"loss {self.losses[0]:.3g} to {self.losses[-1]:.3g}, {self.evaluations.gradients} gradients; "
            f"{self.status})"
        )

    @property
    def log_scale(self) -> float:
        """Natural logarithm of the initial scale alpha."""
        return self.path.log_scale

    def panel(self) -> Panel:
        """Return the loss over time."""
        return loss_panel(self.time_unit, self.times, self.losses)

    def to_xarray(self) -> xr.Dataset:
        """Return loss (time) and log_singular_value (time, product, index), natural logarithms."""
        data = {
            "loss": ("time", self.losses),
            "log_singular_value": (("time", "product", "index"), self.log_singular_values),
        }
        products, indices = (np.arange(size) for size in self.log_singular_values.shape[1:])
        time = ("time", self.times, {"units": self.time_unit})
        return xr.Dataset(data, {"time": time, "product": products, "index": indices}, {"status": str(self.status)})

    @property
    def activity(self) -> Float[np.ndarray, "k n"]:
        """Singular values of all products at the recorded times, which `compare` counts."""
        return self.singular_values.reshape(len(self.times), -1)

    @property
    def singular_values(self) -> Float[np.ndarray, "k pairs r"]:
        """Singular values at the recorded times; 0 where they underflow."""
        return np.exp(self.log_singular_values)

    def __call__(self, times: ArrayLike) -> tuple[Float[np.ndarray, "m rows columns"], ...]:
        """Return the products at any times of the run."""
        return tuple(left @ np.swapaxes(right, -1, -2) for left, right in self.factors(times))

    def factors(
        self, times: ArrayLike
    ) -> tuple[tuple[Float[np.ndarray, "m rows h"], Float[np.ndarray, "m columns h"]], ...]:
        """Return the factors, which include alpha, at any times of the run; entries that underflow are 0."""
        states = [self.path(float(time)) for time in self._checked(times)]
        pairs = len(self.path.origin)
        return tuple(
            (np.stack([left for left, _ in each]), np.stack([right for _, right in each]))
            for each in ([state[p].factors() for state in states] for p in range(pairs))
        )

    def rises(self, levels: Float[np.ndarray, "pairs r"] | float) -> Float[np.ndarray, "pairs r"]:
        """Return the time at which each singular value first passes a level upwards; NaN where it does not.

        Passages are searched between the solver's own steps, in which nothing turns twice.

        Args:
            levels: one positive level, or one for each singular value of each product.

        Raises:
            InputError: a level is not positive, or the shape is another one.
        """
        shape = self.log_singular_values.shape[1:]
        given = np.asarray(levels, float)
        if given.shape not in ((), shape) or not np.all(given > 0):
            raise InputError(f"levels must be positive, one or an array of shape {shape!r}; got {levels!r}.")
        heights = np.log(np.broadcast_to(given, shape))
        ends, known = self.path.steps(), self.path.log_singular_values()
        found = np.full(shape, np.nan)
        for p, i in np.ndindex(shape):
            above = known[:, p, i] >= heights[p, i]
            if above[0] or not above.any():
                continue
            after = int(above.argmax())

            def height(time: float, p: int = p, i: int = i) -> float:
                return float(max(self.path(time)[p].log_singular_values()[i], -1e6) - heights[p, i])

            found[p, i] = root_along(height, float(ends[after - 1]), float(ends[after]))
        return found

    def _checked(self, times: ArrayLike) -> np.ndarray:
        times = np.asarray(times, float)
        if times.ndim != 1 or not np.all((times >= 0) & (times <= self.times[-1])):
            raise InputError(f"times must be a vector of times between 0 and {self.times[-1]!r}; got {times!r}.")
        return times


class FactoredPath:
    """Factors of a run at any time.

    Attributes:
        origin: the factors at time 0.
        log_scale: natural logarithm of the initial scale.
        unit: time of the flow of the scaled loss in one unit of the run's time.
        interpolants: the solution over each step.
        last: the last time, if the run reached it.
    """

    def __init__(
        self,
        origin: State,
        log_scale: float,
        unit: float,
        interpolants: Sequence[AbstractInterpolant],
        last: float | None,
    ) -> None:
        self.origin, self.log_scale, self.unit, self.interpolants = origin, log_scale, unit, interpolants
        self._ends = np.array([0.0, *(step.end for step in interpolants)]) / unit
        if last is not None:
            self._ends[-1] = last  # exactly, without the rounding of a change of units
        self._logs: np.ndarray | None = None

    def __call__(self, time: float) -> State:
        """Return the factors at a time, in the run's unit."""
        if time <= 0 or not self.interpolants:
            return self.origin
        after = min(int(np.searchsorted(self._ends, time, side="right")), len(self.interpolants))
        step = self.interpolants[after - 1]
        return step(min(max(time * self.unit, step.start), step.end))

    def steps(self) -> np.ndarray:
        """Return time 0 and the ends of all steps, in the run's unit."""
        return self._ends

    def log_singular_values(self) -> np.ndarray:
        """Return the logarithms of the singular values at `steps()`, shape (steps, pairs, r)."""
        if self._logs is None:
            states = [self.origin, *(step.state for step in self.interpolants[1:])]
            if self.interpolants:
                states.append(self.interpolants[-1](self.interpolants[-1].end))
            self._logs = spectra(states)
        return self._logs


def spectra(states: Sequence[State]) -> Float[np.ndarray, "k pairs r"]:
    """Return the logarithms of the singular values of all products of some states; -inf where a product has fewer."""
    rows = [[pair.log_singular_values() for pair in state] for state in states]
    largest = max(len(values) for values in rows[0])
    filled = [[np.append(v, np.full(largest - len(v), -np.inf)) for v in row] for row in rows]
    return np.array(filled)


@in_float64
@validate_arguments
def factored_flow(
    loss: Loss,
    start: FactorInit,
    *,
    until: float,
    tolerance: float,
    record: Float[np.ndarray, "k"] | None = None,
    throw: bool = True,
    max_evaluations: int = 1_000_000,
    report: Report = silent,
) -> FactoredTrajectory:
    """Follow gradient flow of full factors from a small start to a time.

    The method is that of `saddlescope.flow.factored.exponential_integrator`: exponentials of integrals of G = -dL/dB,
    applied to scaled factors, and plateaus crossed in one step. The cost of a plateau does not grow with log(1/alpha).
    In a valley along which the loss falls more slowly than exponentially, as where an entry grows for ever, stability
    limits the steps: there the cost grows with the time, `until` log(1/alpha), and with the size of the product.

    Args:
        loss: the loss, a JAX function of the tuple of products, twice continuously differentiable at 0, or an
            `saddlescope.loss.AbstractLoss`, which computes its gradient itself. Pass data as fields of a module.
        start: the factors and their scale. Symmetries of the start (`FactorInit.symmetries`) that the gradient has but
            for rounding are kept, so that U V^T with U = V cannot learn a negative eigenvalue. Where roundings of the
            start decide what is learned next, the run ends with the status `undecided`.
        until: the last time, in units of log(1/alpha); 0 is allowed.
        tolerance: the relative error of stage times to aim for. The error of each step's integral of G stays below
            a fiftieth of it, relative to 1 + the integral so far, in e-folds.
        record: times at which losses and singular values are recorded; by default the solver's own steps, which are
            densest where most happens. Time 0 and the last time are always recorded.
        throw: True: raise if the run ends early. False: return it; check `FactoredTrajectory.status`.
        max_evaluations: end early after so many evaluations of the gradient.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; the loss is not finite at the start, or has a kink at 0.
        FlowError: the run ended early and `throw` is true; `FlowError.result` is the trajectory until then.
    """
    require_run(until=until, tolerance=tolerance, record=record, max_evaluations=max_evaluations)
    origin = start.state()
    products = tuple(left @ right.T for left, right in (pair.factors() for pair in origin))
    layout, unit = TreeLayout.of(products), -start.log_scale
    require_float64_loss(loss, products)
    compiled = CompiledLoss(loss, layout)
    value, gradient = compiled.value_and_gradient(layout.flatten(products))
    require_finite(value, gradient)
    require_smooth_at_zero(lambda point: compiled.value_and_gradient(point)[1], layout.size, "B")
    compiled.exponent = scale_exponent([gradient])
    unit = math.ldexp(unit, compiled.exponent)  # the flow of the scaled loss takes as much longer
    if not 0 < until * unit < np.inf and until > 0:
        raise InputError(
            f"until must be a time that the loss can resolve; got {until!r} for a gradient of "
            f"{float(np.max(np.abs(gradient))):.3g} at the start. Scale the loss."
        )
    local = tolerance * LOCAL_SHARE
    stepper, nearby_stepper = (
        FactoredStepper(compiled, state, until * unit, symmetries=start.symmetries, tolerance=tolerance, local=local)
        for state in (origin, start.nearby().state())
    )
    interpolants, status, nearby = [], REACHED, nearby_stepper.state
    while stepper.t < until * unit:
        try:
            interpolants.append(stepper.step())
            nearby = interpolants[-1].carried(nearby)
            if not stepper.sees_alike(nearby):  # the answer of G may keep the two together
                nearby = nearby_stepper.advance(stepper.t)
        except StepError as failure:
            path = FactoredPath(origin, start.log_scale, 1.0, interpolants, None)
            before, after = (max(np.max(pair.log_sizes) for pair in path(t * stepper.t)) for t in (0.999, 1.0))
            growth, grown = stepper.growth, float(np.exp(2 * (after - before)))
            status = stuck(stepper.t / unit, TIME_UNIT, finite=failure.finite, growth=growth, grown=grown)
            break
        if not stepper.sees_alike(nearby):
            cure = "Stop there, or perturb the start: it lacks a direction that grows."
            status = undecided(interpolants.pop().start / unit, TIME_UNIT, "rounding errors", cure)
            break
        bound = _LARGEST_LOG + stepper.log_natural
        if max(float(np.max(pair.log_sizes)) for pair in stepper.state) > bound:
            status = diverged(stepper.t / unit, TIME_UNIT, f"The factors exceed {np.exp(bound):.0e}")
            break
        if compiled.gradients >= max_evaluations and stepper.t < until * unit:
            cure = "Raise max_evaluations or tolerance."
            status = exhausted(max_evaluations, stepper.t / unit, TIME_UNIT, cure)
            break
        if len(interpolants) % 16 == 0:
            report(stepper.t / unit / until, f"{TIME_UNIT} = {stepper.t / unit:.4g} of {until:.4g}")
    path = FactoredPath(origin, start.log_scale, unit, interpolants, until if status.ok else None)
    last = float(path.steps()[-1])
    asked = path.steps() if record is None else np.asarray(record)[np.asarray(record) <= last]
    times = np.unique(np.concatenate([[0.0], asked, [last]]))
    states = [path(float(time)) for time in times]
    points = np.stack(
        [layout.flatten(tuple(left @ right.T for left, right in (p.factors() for p in state))) for state in states]
    )
    losses = compiled.at(points)
    if status.ok and not np.isfinite(losses).all():
        status = hidden_nan(times[~np.isfinite(losses)][0], TIME_UNIT)
    trajectory = FactoredTrajectory(
        times=times,
        losses=losses,
        log_singular_values=spectra(states) if record is not None else path.log_singular_values(),
        conserved=max(pair.drift(first, start.log_scale) for pair, first in zip(states[-1], origin, strict=True)),
        plateaus=tuple((p.start / unit, p.end / unit) for p in interpolants if isinstance(p, PlateauStep)),
        evaluations=compiled.evaluations,
        status=status,
        path=path,
    )
    if throw and not status.ok:
        raise FlowError(trajectory)
    return trajectory

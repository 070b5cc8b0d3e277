"""Stationary points of narrow networks by width, their status, and their comparison with the plateaus of a run."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Line, Panel
from saddlescope.measure.stages import Staircase


class LadderStatus(StrEnum):
    """Termination status of `width_ladder`."""

    COMPLETE = "complete"
    CONVERGED = "converged"
    NO_START = "no_start"
    TIE = "tie"
    SADDLE = "saddle"
    NO_MINIMUM = "no_minimum"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rung(ReprMixin):
    """Stationary point that a narrow network reaches which is trained from small weights.

    Attributes:
        width: number of units of the narrow network.
        units: number of distinct ones: units with outputs in proportion count as one, silent ones as none.
        loss: L.
        thetas: flat weights of the units that are not silent, shape (a, p).
        kinds: their kinds.
        curvature: smallest eigenvalue of the narrow network's Hessian that is not 0; infinite without units.
        embedded: width of the wider network in which it is checked.
        gradient: largest gradient there with silent and with split units, relative to the largest eigenvalue of the
            Hessian times the norm of the weights.
        utility: largest utility found of one more unit of norm 1; 0 if none is positive.
        split_curvature: smallest eigenvalue of the wider network's Hessian with one unit split, relative to the
            largest; NaN without units, or for units that cannot be split into units of the same sum.
        stationary: True if the gradient vanishes up to rounding (1e-9).
        saddle: True if it is stationary and the loss of the wider network falls along a new unit, or has a negative
            curvature with a split one.
    """

    width: int
    units: int
    loss: float
    thetas: Float[np.ndarray, "a p"]
    kinds: tuple[int, ...]
    curvature: float
    embedded: int
    gradient: float
    utility: float
    split_curvature: float
    stationary: bool
    saddle: bool


@dataclass(frozen=True, repr=False, kw_only=True)
class PlateauMatch(ReprMixin):
    """Plateau of a wide run, and the stationary point with the nearest loss.

    Attributes:
        stage: index of the plateau in the staircase.
        rank: its rank, the number of distinct units that the run had.
        found_loss: its level.
        width: width of the narrow network.
        units: number of its distinct units.
        loss: its loss.
        error: found_loss - loss, in units of the initial loss.
    """

    stage: int
    rank: int
    found_loss: float
    width: int
    units: int
    loss: float
    error: float


@dataclass(frozen=True, repr=False, kw_only=True)
class LadderComparison(TableMixin):
    """Plateaus of a wide run beside the stationary points of narrow networks.

    Attributes:
        matches: one per plateau, in order.
        missed: widths whose stationary point is no plateau's nearest.
    """

    matches: tuple[PlateauMatch, ...]
    missed: tuple[int, ...]

    @property
    def errors(self) -> tuple[float, ...]:
        """Difference of each plateau from its stationary point, in units of the initial loss."""
        return tuple(one.error for one in self.matches)

    @property
    def equal_counts(self) -> bool:
        """True if every plateau has as many units as its stationary point."""
        return all(one.rank == one.units for one in self.matches)

    def __repr__(self) -> str:
        return (
            f"LadderComparison({len(self.matches)} plateaus, largest difference {max(map(abs, self.errors)):.2g} of "
            f"the initial loss, {'equal' if self.equal_counts else 'different'} numbers of units)"
        )

    def _table(self) -> Table:
        columns = ("stage", "rank", "found loss", "width", "units", "loss", "error")
        return columns, (tuple(getattr(one, name.replace(" ", "_")) for name in columns) for one in self.matches)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WidthLadder(TableMixin, PlotMixin):
    """Stationary points of narrow networks by width, and the termination status.

    Attributes:
        rungs: one per width, in order; more where a unit falls dormant and returns.
        initial_loss: L of the network without units.
        degree: kappa, the measured degree of the unit at the origin.
        status: termination status.
        message: the same in a sentence, with the cure for a failure.
    """

    rungs: tuple[Rung, ...]
    initial_loss: float
    degree: float
    status: LadderStatus
    message: str

    def __repr__(self) -> str:
        saddles = sum(one.saddle for one in self.rungs)
        losses = f", loss {self.rungs[0].loss:.3g} to {self.rungs[-1].loss:.3g}" if self.rungs else ""
        return (
            f"WidthLadder(degree {self.degree:g}, {len(self.rungs)} widths{losses}, {saddles} saddles of wider "
            f"networks, {self.status.value})"
        )

    def _table(self) -> Table:
        rows = (
            (
                one.width,
                one.units,
                one.loss,
                one.embedded,
                one.gradient,
                one.utility,
                one.split_curvature,
                _verdict(one),
            )
            for one in self.rungs
        )
        return ("width", "units", "loss", "embedded", "gradient", "utility", "split curvature", "verdict"), rows

    def panel(self) -> Panel:
        """Return the loss of the narrow networks over their width, saddles of wider networks apart from the others."""
        widths = np.array([rung.width for rung in self.rungs])
        losses, saddles = np.array(self.losses), np.array([rung.saddle for rung in self.rungs])
        marks = [Line(x=widths, y=losses, color=0, width=1.0)]
        for color, (kind, shown) in enumerate((("saddle of wider networks", saddles), ("no descent found", ~saddles))):
            if shown.any():
                marks.append(Line(x=widths[shown], y=losses[shown], label=kind, style="points", color=color, width=3.0))
        return Panel(x=Axis("width of the narrow network"), y=Axis("loss"), marks=tuple(marks))

    @property
    def losses(self) -> tuple[float, ...]:
        """Loss of each stationary point."""
        return tuple(one.loss for one in self.rungs)

    @validate_arguments
    def compare(self, found: Staircase) -> LadderComparison:
        """Match each plateau of a wide run with the stationary point that has the nearest loss.

        Plateaus are matched by their losses alone, so that the numbers of units are a second test. A run that ends
        before its last plateau is flat differs there.

        Args:
            found: the staircase of a wide run, whose ranks are numbers of distinct units.

        >>> import jax.numpy as jnp
        >>> from saddlescope.measure import Stage, Staircase
        >>> from saddlescope.theory import width_ladder
        >>> ladder = width_ladder(
        ...     lambda theta, x, kind: theta[0] * theta[1] * x[kind], (jnp.eye(2), jnp.array([2.0, 1.0])),
        ...     lambda f, y: (f - y) ** 2, [0, 1, 2], parameters=jnp.zeros(2), kinds=2,
        ... )
        >>> run = Staircase((Stage(0.0, 1.0, 2.5, 0), Stage(1.0, 2.0, 0.50025, 1), Stage(2.0, 9.0, 0.0, 2)), "t")
        >>> ladder.compare(run)
        LadderComparison(3 plateaus, largest difference 0.0001 of the initial loss, equal numbers of units)
        """
        matches = tuple(self._match(stage, one.rank, one.loss) for stage, one in enumerate(found.stages))
        met = {one.width for one in matches}
        return LadderComparison(matches=matches, missed=tuple(one.width for one in self.rungs if one.width not in met))

    def _match(self, stage: int, rank: int, level: float) -> PlateauMatch:
        nearest = min(self.rungs, key=lambda rung: abs(rung.loss - level))
        error = (level - nearest.loss) / self.initial_loss if self.initial_loss else math.nan
        return PlateauMatch(
            stage=stage, rank=rank, found_loss=level, width=nearest.width, units=nearest.units, loss=nearest.loss,
            error=error,
        )  # fmt: skip


def _verdict(rung: Rung) -> str:
    if not rung.stationary:
        return "not stationary"
    return "saddle" if rung.saddle else "no descent found"

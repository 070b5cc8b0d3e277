"""Records of a flow of units along its steps: states at the recorded times, and first passages of a level."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from saddlescope.numerics.step_roots import root_along

LARGEST_LOG_NORM, NORM_BOUND = 30.0, "A norm exceeds 1e13"
"""Log norm beyond which a flow diverges, and the sentence that says so."""

States = Callable[[Float[np.ndarray, "k"]], Float[np.ndarray, "k s"]]


class UnitRecords:
    """Records of a flow from its state at time 0.

    Args:
        state: log norms and then directions, (s,).
        count: number of units.
        times: recorded times, ascending, 0 the first.
        level: log norm whose first passage upwards is recorded.

    Attributes:
        recorded: recorded times that were reached.
        states: the states then.
        rises: time at which each unit first passed the level; NaN where it has not, (m,).
        time, state: where the flow is.
    """

    def __init__(self, state: Float[np.ndarray, "s"], count: int, times: Float[np.ndarray, "k"], level: float) -> None:
        self._count, self._times, self._level = count, times, level
        self.recorded, self.states = [0.0], [state]
        self.rises = np.full(count, np.nan)
        self.time, self.state = 0.0, state

    def add(self, ends: Float[np.ndarray, "n"], after: Float[np.ndarray, "n s"], states: States) -> None:
        """Add steps that follow each other.

        Args:
            ends: their last times.
            after: the states then.
            states: returns the states at times within these steps.
        """
        inside = self._times[(self._times > self.time) & (self._times <= ends[-1])]
        if len(inside):
            self.recorded += inside.tolist()
            self.states += list(states(inside))
        knots = np.concatenate([[self.time], ends])
        heights = np.concatenate([self.state[None, : self._count], after[:, : self._count]]) - self._level
        passes = (heights[:-1] < 0) & (heights[1:] >= 0) & np.isnan(self.rises)
        for n in np.flatnonzero(passes.any(axis=0)):
            step = int(np.argmax(passes[:, n]))
            height = lambda t, n=n: float(states(np.array([t]))[0, n]) - self._level  # noqa: E731
            self.rises[n] = root_along(height, float(knots[step]), float(knots[step + 1]))
        self.time, self.state = float(ends[-1]), after[-1]

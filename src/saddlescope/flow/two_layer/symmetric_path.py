"""One flow of the symmetric two-layer model with all its Taylor series: W(t) at any t, and the turns of its entries.

    W = U U^T, (d, d), given in the eigenvectors of the second moment A = diag(a), where its entries have a meaning
    dU/dt = -(A E + E A) U, E = W - 1

`saddlescope.flow.symmetric_flows` follows thousands of starts and records the loss out of distribution. Here one start
is followed by the same steps, and every entry of W is a polynomial on each: so all times at which an entry
turns, or passes a level, are roots of polynomials, found without sampling.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.polynomial.polynomial import polyval

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import FEW_LINES, MOST_LINES, Axis, Line, Panel
from saddlescope.flow.two_layer.integrator import prepared
from saddlescope.flow.two_layer.symmetric_flows import LOCAL_SHARE, require_starts
from saddlescope.flow.two_layer.taylor_series import order_for, series
from saddlescope.numerics.turning_points import persistent, turning_points


@dataclass(frozen=True, eq=False, repr=False)
class SymmetricPath(TableMixin, PlotMixin):
    """W(t) from one start. Call it with times to have W there.

    Attributes:
        strengths: a, (d,).
        until: the last time.
        tolerance: as given.
        edges: the starts of the steps, ascending from 0, and the end of the last one: `until`, or the time at which W
            is the identity within a tenth of the tolerance, and taken as constant from then on, (m + 1,).
        coefficients: of W in powers of the part of the step that has passed, 0 to 1, (q, m, d, d).
    """

    strengths: Float[np.ndarray, "d"]
    until: float
    tolerance: float
    edges: Float[np.ndarray, "m1"]
    coefficients: Float[np.ndarray, "q m d d"]

    def __repr__(self) -> str:
        return f"SymmetricPath({len(self.strengths)} strengths, {len(self.edges) - 1} steps to t = {self.until:.6g})"

    def _table(self) -> Table:
        start, end = self([0.0, self.until])
        pairs = np.argwhere(np.triu(np.ones_like(start))).tolist()
        rows = ((f"{i}, {j}", float(start[i, j]), float(end[i, j]), len(self.turns(i, j))) for i, j in pairs)
        return ("entry", "first", "last", "turns"), rows

    def __call__(self, times: Any) -> Float[np.ndarray, "k d d"]:
        """Return W at these times, between 0 and `until`, (k,).

        Raises:
            InputError: a time is out of that range.
        """
        t = np.atleast_1d(real_array("times", times))
        if t.ndim != 1 or not np.all((t >= 0) & (t <= self.until)):
            raise InputError(f"times must be numbers between 0 and {self.until!r}; got {times!r}.")
        step = np.clip(np.searchsorted(self.edges, t, side="right") - 1, 0, len(self.edges) - 2)
        part = np.minimum((t - self.edges[step]) / np.diff(self.edges)[step], 1.0)[:, None, None]
        return polyval(part, self.coefficients[:, step], tensor=False)

    def panel(self) -> Panel:
        """Return the entries of W over time, those of the diagonal in bold."""
        times = np.unique(np.concatenate([np.linspace(0.0, self.until, 400), self.edges]))
        W = self(times)
        pairs = np.argwhere(np.triu(np.ones_like(W[0]))).tolist()
        marks = tuple(
            Line(
                x=times,
                y=W[:, i, j],
                label=f"w{i}{j}" if len(pairs) <= FEW_LINES else "",
                width=2.0 if i == j else 0.8,
                color=i if i == j else None,
            )
            for i, j in pairs[:MOST_LINES]
        )
        return Panel(x=Axis("time t"), y=Axis("entry of W"), marks=marks)

    def crossings(self, i: int, j: int, level: float) -> Float[np.ndarray, "n"]:
        """Return all times at which w_ij passes the level, ascending."""
        polynomials = self.coefficients[:, :, i, j].copy()
        polynomials[0] -= level
        return self._roots(polynomials)

    def turns(self, i: int, j: int) -> Float[np.ndarray, "n"]:
        """Return all times between 0 and `until` at which w_ij has a local extremum, ascending.

        Rises and falls below `tolerance` of its largest absolute value, or 1e-15, are left out: errors can cause them.
        """
        polynomials = self.coefficients[:, :, i, j]
        times = self._roots(polynomials[1:] * np.arange(1.0, len(polynomials))[:, None])
        values = self(np.concatenate([[0.0], times, [self.until]]))[:, i, j]
        least = max(1e-15, self.tolerance * float(np.abs(values).max()))
        keep = persistent(np.zeros(len(times), int), values[1:-1], values[:1], values[-1:], least)
        return times[keep]

    def _roots(self, polynomials: Float[np.ndarray, "q m"]) -> Float[np.ndarray, "n"]:
        step, part = turning_points(polynomials)
        return np.sort(self.edges[step] + part * np.diff(self.edges)[step])


@validate_arguments
def symmetric_path(
    strengths: Any, start: Any, *, until: float, tolerance: float, report: Report = silent
) -> SymmetricPath:
    """Follow gradient flow of |(U U^T - 1) A^{1/2}|^2 / 2 in U from one start.

    >>> path = symmetric_path([1.0, 0.25], [[1e-3, 0.0], [1e-3, 1e-3]], until=20.0, tolerance=1e-11)
    >>> path.crossings(0, 0, 0.5).round(3), path.turns(0, 1).round(3)
    (array([3.454]), array([3.755]))

    Args:
        strengths: a, the eigenvalues of A, (d,), at least 0 and not all 0.
        start: U at time 0 in the eigenvectors of A, (d, d'), of entries up to 1e3 in absolute value.
        until: the last time, positive.
        tolerance: the error allowed in an entry of W(t), about; 1e-12 to 1e-3.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used.
    """
    a = real_array("strengths", strengths, (None,))
    if not np.all(a >= 0) or not a.any():
        raise InputError(f"strengths must be at least 0, not all 0; got {strengths!r}.")
    U = real_array("start", start, (len(a), None))
    rate, local = float(a.max()), tolerance * LOCAL_SHARE
    factors, _ = prepared(require_starts(U[None], until, tolerance), a / rate, until * rate, local)
    factors = np.ascontiguousarray(factors.transpose(1, 2, 0))
    order, now, end = order_for(local), 0.0, until * rate
    edges, coefficients = [0.0], []
    while now < end:
        taylor = series(factors, a / rate, order)
        h = min(float(taylor.step(local)[0]), end - now)
        u = taylor.factors[..., 0] * h ** np.arange(order + 1.0)[:, None, None]
        coefficients.append([np.einsum("jim,jlm->il", u[: k + 1], u[k::-1]) for k in range(order + 1)])
        factors, now = taylor.after(np.array([h])), end if h == end - now else now + h
        edges.append(now)
        report(min(now / end, 1.0), f"t = {now / rate:.4g} of {until:.4g}")
        if np.abs(taylor.errors[0]).max() <= local:
            break
    return SymmetricPath(a, until, tolerance, np.array(edges) / rate, np.array(coefficients).swapaxes(0, 1))

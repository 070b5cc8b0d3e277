"""View of a sweep for its page: phase diagrams, verdicts by grid point, and the points."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from saddlescope.gallery.page_views import StoredView, origin
from saddlescope.plot import Figure
from saddlescope.plot.phase_diagram import phase_figures
from saddlescope.plot.phase_layout import values_of
from saddlescope.reproduction import Outcome
from saddlescope.reproduction.formatting import bounds, counts, measured, number
from saddlescope.store.provenance import label_of
from saddlescope.sweeps import State, Sweep

MOST_POINTS = 400
"""Largest number of listed points; a page with more would load slowly, and the data set has them all."""
_MOST_VALUES = 12  # of an axis that are listed


@dataclass(frozen=True, eq=False)
class SweepView(StoredView[Sweep]):
    """A stored sweep."""

    above: ClassVar[str] = "sweeps/"

    @property
    def slug(self) -> str:
        """Digest of the grid."""
        return self.stored.grid.digest

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"{super().title}, over {self.over}"

    @property
    def over(self) -> str:
        """Swept parameters in words."""
        *first, last = self.stored.grid.names
        return f"{', '.join(first)} and {last}" if first else last

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return f"sweep-{self.name.replace('/', '-')}-{self.slug}.nc"

    def draw(self) -> tuple[Figure, ...]:
        """Return the phase diagrams."""
        return phase_figures(self.stored.data)

    @property
    def counted(self) -> bool:
        """False for points of the quick size, which are in no tally."""
        return self.stored.grid.size != "quick"

    @property
    def words(self) -> str:
        """Text that the search looks through."""
        return " ".join((self.name, self.title, *self.stored.data.claim_statement.values.tolist())).lower()

    @property
    def states(self) -> str:
        """Number of points of each state, in words."""
        found = self.stored.counts
        others = "".join(f", {found[state]} {state}" for state in (State.FAILED, State.MISSING) if found[state])
        return f"{found[State.FINISHED]} of {sum(found.values())} points finished{others}"

    @cached_property
    def tallies(self) -> dict[str, dict[Outcome, int]]:  # type: ignore[override]
        """Number of verdicts of each outcome over all points, by kind of claim."""
        data, kinds = self.stored.data, self.stored.data.claim_kind.values
        return {
            kind: counts(data.outcome.values[..., kinds == kind].ravel().tolist())
            for kind in dict.fromkeys(kinds.tolist())
        }

    @cached_property
    def _words(self) -> dict[str, list[str]]:
        """Values of each swept parameter in words."""
        return {name: list(values_of(self.stored.data.state, name)) for name in self.stored.grid.names}

    @cached_property
    def axes(self) -> tuple[dict[str, str], ...]:
        """Rows of the table of swept parameters."""
        records = self.stored.entry.parameters
        return tuple(
            {"name": axis.name, "values": _listed(self._words[axis.name]), "description": records[axis.name].words}
            for axis in self.stored.grid.axes
        )

    @cached_property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of claims: each claim with its counts and the range of its values."""
        data = self.stored.data
        rows = []
        for k, name in enumerate(data.claim.values.tolist()):
            words = {part: str(data[f"claim_{part}"].values[k]) for part in ("statement", "quantity", "kind", "unit")}
            low, high = float(data.claim_low.values[k]), float(data.claim_high.values[k])
            rows.append(
                words
                | {
                    "name": name,
                    "bound": bounds(low, high, words["unit"]),
                    "value": _range(data["value"].values[..., k].ravel().tolist(), words["unit"]),
                    "counts": self.stored.outcomes[name],
                }
            )
        return tuple(rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a point: metrics, then claims."""
        data = self.stored.data
        return (*(name.replace("_", " ") for name in data["metric"].values.tolist()), *data.claim.values.tolist())

    @cached_property
    def points(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of points, at most `MOST_POINTS`; the errors of failed ones are in a table of theirs."""
        data, rows = self.stored.data, []
        units = [str(unit) for unit in data.claim_unit.values]
        for index in self.stored.grid.indices[:MOST_POINTS]:
            outcomes, values, errors = (data[name].values[index] for name in ("outcome", "value", "uncertainty"))
            rows.append(
                {
                    "values": [self._words[name][k] for name, k in zip(self.stored.grid.names, index, strict=True)],
                    "state": str(data.state.values[index]),
                    "metrics": [number(float(value)) for value in data.metrics.values[index]],
                    "claims": [
                        (str(outcome), measured(float(value), float(error), unit))
                        for outcome, value, error, unit in zip(outcomes, values, errors, units, strict=True)
                    ],
                }
            )
        return tuple(rows)

    @property
    def unlisted(self) -> int:
        """Number of points that the table of points omits."""
        return max(0, len(self.stored.grid.indices) - MOST_POINTS)

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Provenance of the data, in pairs of name and value."""
        grid = self.stored.grid
        return origin(self.stored.data.attrs, {"Size": label_of(grid.size, grid.settings)}, " in all points")


def _listed(values: list[str]) -> str:
    """Join values with commas, omitting the middle of many."""
    if len(values) > _MOST_VALUES:
        values = [*values[: _MOST_VALUES - 2], "…", values[-1]]
    return ", ".join(values)


def _range(values: list[float], unit: str) -> str:
    """Return the least and the greatest resolved value."""
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return "not resolved"
    low, high, tail = min(found), max(found), f" {unit}" if unit else ""
    return f"{number(low)}{tail}" if low == high else f"{number(low)} to {number(high)}{tail}"

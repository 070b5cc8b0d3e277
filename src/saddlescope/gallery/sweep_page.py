"""View of a sweep for its page: phase diagrams, verdicts by grid point, and the points."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope.gallery.page_views import FigureView, counted_outcomes
from saddlescope.plot.phase_diagram import phase_figures
from saddlescope.plot.phase_layout import values_of
from saddlescope.plot.series import Series, first_legend
from saddlescope.reproduction import Outcome
from saddlescope.reproduction.formatting import bounds, counts, measured, number
from saddlescope.sweeps import State, Sweep

MOST_POINTS = 400
"""Largest number of listed points; a page with more would load slowly, and the data set has them all."""
_MOST_VALUES = 12  # of an axis that are listed


@dataclass(frozen=True, eq=False)
class SweepView:
    """A stored sweep and the addresses of its page and files, relative to the site.

    Raises:
        InputError: variables of its data set are absent or of another kind.
    """

    sweep: Sweep

    def __post_init__(self) -> None:
        if fault := _fault(self.sweep):
            raise InputError(f"{self.sweep.file} is no complete sweep ({fault}); rerun the sweep.")

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.sweep.entry.name

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"{self.sweep.entry.title}, over {self.over}"

    @property
    def counted(self) -> bool:
        """False for points of the quick size, which are in no tally."""
        return self.sweep.grid.size != "quick"

    @property
    def outcomes(self) -> str:
        """Kind and outcome of each counted claim, for the filter of the index."""
        return counted_outcomes(self.tallies) if self.counted else ""

    @property
    def paper(self) -> str:
        """First part of the name of the entry, which is that of its paper."""
        return self.name.partition("/")[0]

    @property
    def legend(self) -> tuple[Series, ...]:
        """Series of the picture on the card."""
        return first_legend(self.figures[0].figure)

    @property
    def words(self) -> str:
        """Text that the search looks through."""
        return " ".join((self.name, self.title, *self.sweep.data.claim_statement.values.tolist())).lower()

    @property
    def folder(self) -> str:
        """Folder of pictures and data."""
        return f"sweeps/{self.sweep.entry.name}/{self.sweep.grid.digest}"

    @property
    def page(self) -> str:
        """Address of the page."""
        return f"{self.folder}.html"

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return f"sweep-{self.sweep.entry.name.replace('/', '-')}-{self.sweep.grid.digest}.nc"

    @property
    def data_size(self) -> str:
        """Size of the data file."""
        return f"{number(self.sweep.file.stat().st_size / 1e6, 2)} MB"

    @property
    def over(self) -> str:
        """Swept parameters in words."""
        *first, last = self.sweep.grid.names
        return f"{', '.join(first)} and {last}" if first else last

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """Phase diagrams."""
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(phase_figures(self.sweep.data), 1))

    @property
    def states(self) -> str:
        """Number of points of each state, in words."""
        found = self.sweep.counts
        others = "".join(f", {found[state]} {state}" for state in (State.FAILED, State.MISSING) if found[state])
        return f"{found[State.FINISHED]} of {sum(found.values())} points finished{others}"

    @cached_property
    def tallies(self) -> dict[str, dict[Outcome, int]]:
        """Number of verdicts of each outcome over all points, by kind of claim."""
        data, kinds = self.sweep.data, self.sweep.data.claim_kind.values
        return {
            kind: counts(Outcome(text) for text in data.outcome.values[..., kinds == kind].ravel().tolist() if text)
            for kind in dict.fromkeys(kinds.tolist())
        }

    @cached_property
    def _words(self) -> dict[str, list[str]]:
        """Values of each swept parameter in words."""
        return {name: list(values_of(self.sweep.data.state, name)) for name in self.sweep.grid.names}

    @cached_property
    def axes(self) -> tuple[dict[str, str], ...]:
        """Rows of the table of swept parameters."""
        records = self.sweep.entry.parameters
        return tuple(
            {"name": axis.name, "values": _listed(self._words[axis.name]), "description": records[axis.name].words}
            for axis in self.sweep.grid.axes
        )

    @cached_property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of claims: each claim with its counts and the range of its values."""
        data = self.sweep.data
        rows = []
        for k, name in enumerate(data.claim.values.tolist()):
            unit = str(data.claim_unit.values[k])
            low, high = float(data.claim_low.values[k]), float(data.claim_high.values[k])
            outcomes = data.outcome.values[..., k].ravel().tolist()
            rows.append(
                {
                    "name": name,
                    "statement": str(data.claim_statement.values[k]),
                    "quantity": str(data.claim_quantity.values[k]),
                    "kind": str(data.claim_kind.values[k]),
                    "bound": bounds(low, high, unit),
                    "value": _range(data["value"].values[..., k].ravel().tolist(), unit),
                    "counts": counts(Outcome(text) for text in outcomes if text),
                }
            )
        return tuple(rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers of a point: metrics, then claims."""
        data = self.sweep.data
        return (*(name.replace("_", " ") for name in data["metric"].values.tolist()), *data.claim.values.tolist())

    @cached_property
    def points(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of points, at most `MOST_POINTS`; `failures` has the errors of failed ones."""
        data, rows = self.sweep.data, []
        units = [str(unit) for unit in data.claim_unit.values]
        for index in self.sweep.grid.indices[:MOST_POINTS]:
            outcomes, values, errors = (data[name].values[index] for name in ("outcome", "value", "uncertainty"))
            rows.append(
                {
                    "values": [self._words[name][k] for name, k in zip(self.sweep.grid.names, index, strict=True)],
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
        return max(0, len(self.sweep.grid.indices) - MOST_POINTS)

    @cached_property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """Points without a run, and the reasons."""
        return tuple(self.sweep.failures.items())

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Provenance of the data, in pairs of name and value."""
        attributes, grid = self.sweep.data.attrs, self.sweep.grid
        versions = parse_json(str(attributes.get("versions", "{}")))
        pairs = (
            ("Size", " ".join([grid.size, *(f"{name}={value}" for name, value in grid.settings.items())])),
            ("CPU time", f"{number(float(attributes.get('cpu_seconds', math.nan)), 3)} s in all points"),
            ("Finished", str(attributes.get("finished", ""))),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Commit", str(attributes.get("commit", ""))),
            ("Machine", str(attributes.get("platform", ""))),
        )
        return tuple((name, value) for name, value in pairs if value)

    @property
    def command(self) -> str:
        """Command that repeats this sweep."""
        return self.sweep.grid.command


def _fault(sweep: Sweep) -> str:
    """Return the fault of the data set of a sweep, whoever wrote it; empty if it can be shown."""
    data, axes = sweep.data, sweep.grid.names
    for dims, numbers, words in (
        (axes, (), ("state", "error")),
        ((*axes, "claim"), ("value", "uncertainty"), ("outcome",)),
        ((*axes, "metric"), ("metrics",), ()),
        (
            ("claim",),
            ("claim_low", "claim_high"),
            ("claim", "claim_statement", "claim_quantity", "claim_kind", "claim_unit"),
        ),
        (("metric",), (), ("metric", "metric_quantity", "metric_unit", "metric_scale")),
    ):
        for name in (*numbers, *words):
            if name not in data.variables or data[name].dims != dims:
                return f"{name} is not over {', '.join(dims)}"
            found = data[name].values.ravel().tolist()
            if not all(isinstance(value, str if name in words else float) for value in found):
                return f"{name} has no {'words' if name in words else 'numbers'}"
    for name, allowed in (("state", State), ("outcome", ("", *Outcome)), ("metric_scale", ("linear", "log"))):
        if strange := set(data[name].values.ravel().tolist()) - set(map(str, allowed)):
            return f"{name} {min(strange)!r} is unknown"
    return ""


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

"""What the page of a sweep shows: phase diagrams, what becomes of each claim over the grid, and the points."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from saddlescope._shared.errors import InputError
from saddlescope.gallery.page_views import FigureView
from saddlescope.plot.phase_axes import values_of
from saddlescope.plot.phase_diagram import phase_figures
from saddlescope.reproduction import Outcome, field_comments
from saddlescope.reproduction.formatting import bounds, counts, measured, number
from saddlescope.sweeps import State, Sweep

MOST_POINTS = 400
"""Points that are listed one by one; a page with more would load slowly, and the data set has them all."""
_MOST_VALUES = 12  # of an axis that are told one by one


@dataclass(frozen=True, eq=False)
class SweepView:
    """A stored sweep and the addresses of everything about it, relative to the site.

    Raises:
        InputError: its data set lacks what the page shows, or has other words or numbers in its place.
    """

    sweep: Sweep

    def __post_init__(self) -> None:
        if fault := _fault(self.sweep):
            raise InputError(f"{self.sweep.file} is no complete sweep ({fault}); run the sweep again.")

    @property
    def folder(self) -> str:
        """The folder of pictures and data."""
        return f"sweeps/{self.sweep.entry.name}/{self.sweep.grid.digest}"

    @property
    def page(self) -> str:
        """The page."""
        return f"{self.folder}.html"

    @property
    def data_name(self) -> str:
        """The name under which the data are saved."""
        return f"sweep-{self.sweep.entry.name.replace('/', '-')}-{self.sweep.grid.digest}.nc"

    @property
    def data_size(self) -> str:
        """The size of the data file."""
        return f"{number(self.sweep.file.stat().st_size / 1e6, 2)} MB"

    @property
    def over(self) -> str:
        """The swept parameters in words."""
        *first, last = self.sweep.grid.names
        return f"{', '.join(first)} and {last}" if first else last

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """The phase diagrams."""
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(phase_figures(self.sweep.data), 1))

    @property
    def states(self) -> str:
        """How many points there are of each state, in words."""
        found = self.sweep.counts
        others = "".join(f", {found[state]} {state}" for state in (State.FAILED, State.MISSING) if found[state])
        return f"{found[State.FINISHED]} of {sum(found.values())} points finished{others}"

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        """How often claims come out how, over all points."""
        return counts(Outcome(told) for told in self.sweep.data.outcome.values.ravel().tolist() if told)

    @cached_property
    def _words(self) -> dict[str, list[str]]:
        """The values of each swept parameter in words."""
        return {name: list(values_of(self.sweep.data.state, name)) for name in self.sweep.grid.names}

    @cached_property
    def axes(self) -> tuple[dict[str, str], ...]:
        """The rows of the table of swept parameters."""
        comments = field_comments(self.sweep.entry.params_type)
        return tuple(
            {"name": axis.name, "values": _listed(self._words[axis.name]), "comment": comments.get(axis.name, "")}
            for axis in self.sweep.grid.axes
        )

    @cached_property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table of claims: each claim with its counts and the range of what was measured."""
        data = self.sweep.data
        rows = []
        for k, name in enumerate(data.claim.values.tolist()):
            unit = str(data.claim_unit.values[k])
            low, high = float(data.claim_low.values[k]), float(data.claim_high.values[k])
            outcomes = data.outcome.values[..., k].ravel().tolist()
            rows.append(
                {
                    "name": name,
                    "says": str(data.claim_says.values[k]),
                    "bounds": bounds(low, high, unit),
                    "measured": _range(data["value"].values[..., k].ravel().tolist(), unit),
                    "counts": counts(Outcome(told) for told in outcomes if told),
                }
            )
        return tuple(rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers of a point: metrics, then claims."""
        data = self.sweep.data
        return (*(name.replace("_", " ") for name in data["metric"].values.tolist()), *data.claim.values.tolist())

    @cached_property
    def points(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table of points, at most `MOST_POINTS`; those that failed are told whole elsewhere."""
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
                        (str(told), measured(float(value), float(error), unit))
                        for told, value, error, unit in zip(outcomes, values, errors, units, strict=True)
                    ],
                }
            )
        return tuple(rows)

    @property
    def unlisted(self) -> int:
        """How many points the table of points leaves out."""
        return max(0, len(self.sweep.grid.indices) - MOST_POINTS)

    @cached_property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """The points without a run and why."""
        return tuple(self.sweep.failures.items())

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Where the data come from, in pairs of name and value."""
        told, grid = self.sweep.data.attrs, self.sweep.grid
        versions = json.loads(str(told.get("versions", "{}")))
        pairs = (
            ("Size", " ".join([grid.size, *(f"{name}={value}" for name, value in grid.settings.items())])),
            ("CPU time", f"{number(float(told.get('cpu_seconds', math.nan)), 3)} s in all points"),
            ("Finished", str(told.get("finished", ""))),
            ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("Commit", str(told.get("commit", ""))),
            ("Machine", str(told.get("platform", ""))),
        )
        return tuple((name, value) for name, value in pairs if value)

    @property
    def command(self) -> str:
        """The command that makes this sweep."""
        return self.sweep.grid.command


def _fault(sweep: Sweep) -> str:
    """What is wrong with the data set of a sweep, whoever wrote it; empty for one that can be shown."""
    data, axes = sweep.data, sweep.grid.names
    for dims, numbers, words in (
        (axes, (), ("state", "error")),
        ((*axes, "claim"), ("value", "uncertainty"), ("outcome",)),
        ((*axes, "metric"), ("metrics",), ()),
        (("claim",), ("claim_low", "claim_high"), ("claim", "claim_says", "claim_unit")),
        (("metric",), (), ("metric", "metric_says", "metric_unit", "metric_scale")),
    ):
        for name in (*numbers, *words):
            if name not in data.variables or data[name].dims != dims:
                return f"{name} does not lie over {', '.join(dims)}"
            found = data[name].values.ravel().tolist()
            if not all(isinstance(value, str if name in words else float) for value in found):
                return f"{name} holds no {'words' if name in words else 'numbers'}"
    for name, allowed in (("state", State), ("outcome", ("", *Outcome)), ("metric_scale", ("linear", "log"))):
        if strange := set(data[name].values.ravel().tolist()) - set(map(str, allowed)):
            return f"{name} {min(strange)!r} is unknown"
    return ""


def _listed(values: list[str]) -> str:
    """Values with commas, the middle ones of many left out."""
    if len(values) > _MOST_VALUES:
        values = [*values[: _MOST_VALUES - 2], "…", values[-1]]
    return ", ".join(values)


def _range(values: list[float], unit: str) -> str:
    """The least and the greatest of what was resolved."""
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return "not resolved"
    low, high, tail = min(found), max(found), f" {unit}" if unit else ""
    return f"{number(low)}{tail}" if low == high else f"{number(low)} to {number(high)}{tail}"

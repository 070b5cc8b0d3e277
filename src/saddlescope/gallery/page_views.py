"""What the templates show: stored runs as words, numbers and addresses. All of it is escaped when it is shown."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from saddlescope import __version__, store
from saddlescope.gallery.claim_bullet import bullet
from saddlescope.plot import Figure, draw_plotly
from saddlescope.reproduction import SIZES, Outcome, Reproduction, Verdict, field_comments
from saddlescope.reproduction.formatting import bounds, counts, measured, number

_PREFERENCE = ("paper", "default", "", "quick")  # of the runs of one entry, which its card shows; "" are set by hand


@dataclass(frozen=True, eq=False)
class FigureView:
    """A figure on a page."""

    figure: Figure
    id: str

    @cached_property
    def specification(self) -> Markup:
        """The plots as JSON that cannot end the script element it stands in."""
        text = json.dumps(draw_plotly(self.figure), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return Markup(safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 (made safe above)


@dataclass(frozen=True, eq=False)
class RunView:
    """A stored run and the addresses of everything about it, relative to the site."""

    made: Reproduction

    @cached_property
    def slug(self) -> str:
        """Its size, or a digest of its parameters; never a name from outside."""
        told = self.made.provenance
        size = told.size if told.size in SIZES and not told.settings else ""
        return size or store.RunFolder(self.made.file.parent, self.made.entry.name, told.params).digest

    @property
    def page(self) -> str:
        """The page."""
        return f"{self.made.entry.name}/{self.slug}.html"

    @property
    def folder(self) -> str:
        """The folder of pictures and data."""
        return f"{self.made.entry.name}/{self.slug}"

    @property
    def data_name(self) -> str:
        """The name under which the data are saved."""
        return f"{self.made.entry.name.replace('/', '-')}-{self.slug}.nc"

    @property
    def data_size(self) -> str:
        """The size of the data file."""
        return f"{number(self.made.file.stat().st_size / 1e6, 2)} MB"

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """The pictures."""
        return tuple(FigureView(figure, f"figure-{k}") for k, figure in enumerate(self.made.figures, 1))

    @cached_property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table of claims."""
        return tuple(
            {
                "verdict": v,
                "measured": measured(v.value, v.uncertainty, v.unit),
                "bounds": bounds(v.low, v.high, v.unit),
                "bullet": bullet(v),
            }
            for v in self.made.verdicts
        )

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        """How many claims came out how."""
        return counts(v.outcome for v in self.made.verdicts)

    @cached_property
    def parameters(self) -> tuple[dict[str, Any], ...]:
        """The rows of the table of parameters."""
        comments = field_comments(self.made.entry.params_type)
        usual = json.loads(json.dumps(dataclasses.asdict(self.made.entry.params())))
        return tuple(
            {
                "name": name,
                "value": ", ".join(map(str, value)) if isinstance(value, list) else str(value),
                "comment": comments.get(name, ""),
                "changed": name in usual and usual[name] != value,
            }
            for name, value in self.made.provenance.params.items()
        )

    @cached_property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Where the run comes from, in pairs of name and value."""
        told = self.made.provenance
        pairs = (
            ("Seed", told.seeds),
            ("CPU time", f"{number(told.cpu_seconds, 3)} s" + (", after a resume" if told.resumed else "")),
            ("Finished", told.finished),
            ("Versions", ", ".join(f"{name} {version}" for name, version in told.versions.items())),
            ("Commit", told.commit),
            ("Machine", told.platform),
        )
        return tuple((name, value) for name, value in pairs if value)


@dataclass(frozen=True, eq=False)
class Card:
    """An entry on the index: its best run, and all of them."""

    runs: Sequence[RunView]

    @property
    def best(self) -> RunView:
        """The run the card shows: the paper's size before the default, the quick one last."""
        return self.runs[0]

    @property
    def paper(self) -> str:
        """The citation."""
        return self.best.made.entry.paper


def cards(runs: Sequence[RunView]) -> list[Card]:
    """One card an entry, by name, so that the entries of a paper stand together."""

    def preference(run: RunView) -> tuple[int, str]:
        size = run.slug if run.slug in SIZES else ""
        return _PREFERENCE.index(size), run.made.provenance.label

    names = sorted({run.made.entry.name for run in runs})
    return [Card(sorted((r for r in runs if r.made.entry.name == name), key=preference)) for name in names]


def environment() -> Environment:
    """The templates, with everything escaped and nothing undefined."""
    pages = Environment(
        loader=PackageLoader("saddlescope.gallery"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= {"outcomes": tuple(Outcome), "version": __version__}
    pages.filters |= {"cell": _cell, "tally": _tally}
    return pages


def _cell(value: object) -> str:
    return number(value, 5) if isinstance(value, float) else str(value)


def _tally(shown: Sequence[Card]) -> dict[Outcome, int]:
    verdicts: list[Verdict] = [v for card in shown for v in card.best.made.verdicts]
    return counts(v.outcome for v in verdicts)

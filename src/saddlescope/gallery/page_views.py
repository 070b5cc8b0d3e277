"""Views for the templates: stored runs as words, numbers and addresses, which the templates escape."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from saddlescope import __version__, store
from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope.gallery.claim_bullet import bullet
from saddlescope.gallery.verdict_words import MEANINGS
from saddlescope.plot import LIGHT, Figure, draw_plotly
from saddlescope.plot.series import Series, first_legend
from saddlescope.reproduction import SIZES, Kind, Outcome, Reproduction, Verdict
from saddlescope.reproduction.catalogue import own_file
from saddlescope.reproduction.data_sets import data_in_words
from saddlescope.reproduction.formatting import number, position, tallies, verdict_cells
from saddlescope.reproduction.runner import identity, json_values
from saddlescope.store.provenance import command_of
from saddlescope.sweeps import Sweep

_Stored = TypeVar("_Stored", Reproduction, Sweep)
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_PREFERENCE = ("paper", "reduced", "default", "", "quick")  # of the runs of an entry; "" has parameters set by hand


@dataclass(frozen=True, eq=False)
class FigureView:
    """A figure on a page."""

    figure: Figure
    id: str

    @classmethod
    def all(cls, figures: Iterable[Figure]) -> "tuple[FigureView, ...]":
        """Return the views of the figures of a page."""
        return tuple(cls(figure, f"figure-{k}") for k, figure in enumerate(figures, 1))

    @cached_property
    def specification(self) -> Markup:
        """The plots as JSON that cannot end its script element."""
        text = json.dumps(draw_plotly(self.figure), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return Markup(safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704 (escaped above)


@dataclass(frozen=True, eq=False)
class StoredView(Generic[_Stored]):
    """A stored run or sweep, and the addresses of its page and files, relative to the site."""

    stored: _Stored
    above: ClassVar[str] = ""  # folder of the pages

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.stored.entry.name

    @property
    def title(self) -> str:
        """Title of the page."""
        return self.stored.entry.title

    @property
    def paper(self) -> str:
        """First part of the name of the entry, which is that of its paper."""
        return self.name.partition("/")[0]

    @property
    def slug(self) -> str:
        """Name of the page among those of the entry; never text from the file."""
        raise NotImplementedError

    @property
    def folder(self) -> str:
        """Folder of pictures and data."""
        return f"{self.above}{self.name}/{self.slug}"

    @property
    def page(self) -> str:
        """Address of the page."""
        return f"{self.folder}.html"

    @property
    def data_name(self) -> str:
        """File name of the downloaded data."""
        return f"{self.folder.replace('/', '-')}.nc"

    @property
    def data_size(self) -> str:
        """Size of the data file."""
        return size_in_words(self.stored.file.stat().st_size)

    def draw(self) -> Iterable[Figure]:
        """Return the figures of the page."""
        raise NotImplementedError

    @cached_property
    def figures(self) -> tuple[FigureView, ...]:
        """Figures of the page, drawn once."""
        return FigureView.all(self.draw())

    @property
    def counted(self) -> bool:
        """False if it is in no tally."""
        raise NotImplementedError

    @property
    def tallies(self) -> Mapping[Any, Mapping[Outcome, int]]:
        """Number of verdicts of each outcome, by kind of claim."""
        raise NotImplementedError

    @property
    def outcomes(self) -> str:
        """Kind and outcome of each counted claim, as the filter of the index reads them: "printed/holds"."""
        found = ((kind, outcome) for kind, of in self.tallies.items() for outcome, n in of.items() if n)
        return " ".join(f"{kind}/{outcome.replace(' ', '-')}" for kind, outcome in found) if self.counted else ""

    @property
    def legend(self) -> tuple[Series, ...]:
        """Series of the picture on the card."""
        return first_legend(self.figures[0].figure)


@dataclass(frozen=True, eq=False)
class RunView(StoredView[Reproduction]):
    """A stored run."""

    @cached_property
    def slug(self) -> str:  # type: ignore[override]
        """Size, or a digest of the parameters."""
        made = self.stored.provenance
        size = made.size if made.size in SIZES and not made.settings else ""
        run_identity = identity(made.params, made.data_sets)
        return size or store.RunFolder(self.stored.file.parent, self.name, run_identity).digest

    def draw(self) -> Iterable[Figure]:
        """Return the figures of the run."""
        return self.stored.figures

    @cached_property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of claims."""
        return claim_rows(self.stored.verdicts)

    @cached_property
    def tallies(self) -> dict[Kind, dict[Outcome, int]]:  # type: ignore[override]
        """Number of claims of each outcome, by kind."""
        return tallies(self.stored.verdicts)

    @cached_property
    def parameters(self) -> tuple[dict[str, Any], ...]:
        """Rows of the table of parameters."""
        records, usual = self.stored.entry.parameters, json_values(self.stored.entry.configure())
        return tuple(
            {
                "name": name,
                "value": ", ".join(map(str, value)) if isinstance(value, list) else str(value),
                "description": records[name].words if name in records else "",
                "changed": name in usual and usual[name] != value,
            }
            for name, value in self.stored.provenance.params.items()
        )

    @property
    def changed(self) -> int:
        """Number of parameters that differ from the default."""
        return sum(row["changed"] for row in self.parameters)

    @property
    def command(self) -> str:
        """Command that repeats the run, with the file of an entry of your own."""
        made, file = self.stored.provenance, own_file(self.name)
        return command_of("run", self.name, made.size, made.settings, ["--entry", Path(file).name] if file else ())

    @cached_property
    def origin(self) -> list[tuple[str, str]]:
        """Provenance of the run, in pairs of name and value."""
        made = self.stored.provenance
        first = {"Paper": self.stored.entry.citation, "Data": data_in_words(made.data_sets), "Seed": made.seeds}
        return origin(self.stored.run.attrs, first, ", after a resume" if made.resumed else "")

    @property
    def counted(self) -> bool:
        """False if the run is not judged, so that it is in no tally."""
        return not self.stored.unjudged

    @property
    def heading(self) -> str:
        """Heading of its section: the citation of the paper; entries without a judged run are in a section apart."""
        citation = self.stored.entry.citation or "Your entries"
        return citation if self.counted else f"Not judged: {citation}"

    @property
    def words(self) -> str:
        """Text that the search looks through."""
        entry, verdicts = self.stored.entry, self.stored.verdicts
        return " ".join((entry.name, entry.title, entry.source, *(v.statement for v in verdicts))).lower()


def origin(attributes: Mapping[Any, Any], first: Mapping[str, str | None], cpu: str = "") -> list[tuple[str, str]]:
    """Return pairs of name and value: other ones, then the provenance in the attributes of a data set; no empty values.

    Args:
        attributes: of the data set.
        first: the other pairs.
        cpu: words after the CPU time.

    Raises:
        InputError: the CPU time is no number, or the versions are no JSON object.
    """
    readers: dict[str, tuple[str, Callable[[Any], str]]] = {
        "cpu_seconds": ("CPU time", lambda value: f"{number(float(value), 3)} s{cpu}"),
        "finished": ("Finished", str),
        "versions": (
            "Versions",
            lambda value: ", ".join(f"{package} {version}" for package, version in parse_json(value).items()),
        ),
        "commit": ("Commit", str),
        "platform": ("Machine", str),
    }
    pairs = dict(first)
    for name, (title, in_words) in readers.items():
        try:
            pairs[title] = in_words(attributes[name]) if name in attributes else ""
        except (AttributeError, TypeError, ValueError) as error:
            kind = "a number" if name == "cpu_seconds" else "a JSON object"
            raise InputError(f"The attribute {name} must be {kind}; got {attributes[name]!r:.100}.") from error
    return [(name, value) for name, value in pairs.items() if value]


def size_in_words(count: int) -> str:
    """Return the size of a file of so many bytes."""
    return f"{number(count / 1e6, 2)} MB"


def claim_rows(verdicts: Sequence[Verdict]) -> tuple[dict[str, Any], ...]:
    """Return the rows of a table of claims, those about a paper first."""
    return tuple({"of": v, "cells": verdict_cells(v), "bullet": bullet(v)} for v in papers_first(verdicts))


def papers_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return verdicts by kind, from the paper's own sentences to questions beyond it, else in their order."""
    return sorted(verdicts, key=lambda verdict: tuple(Kind).index(verdict.kind))


def by_entry(runs: Sequence[RunView]) -> list[list[RunView]]:
    """Return the runs of each entry, by paper and name, in the order of the index: entries without a judged run last.

    The first run of an entry is the one on its card: the paper's size before the default, the quick one last.
    """

    def preference(run: RunView) -> tuple[int, str]:
        size = run.slug if run.slug in SIZES else ""
        return _PREFERENCE.index(size), run.stored.provenance.label

    names = sorted({run.name for run in runs})
    found = [sorted((r for r in runs if r.name == name), key=preference) for name in names]
    return sorted(found, key=lambda of_one: (not of_one[0].counted, of_one[0].heading.lower()))


def environment() -> Environment:
    """Return the environment of the templates, with everything escaped and nothing undefined."""
    pages = Environment(
        loader=PackageLoader("saddlescope.gallery"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals |= {"outcomes": tuple(Outcome), "kinds": tuple(Kind), "meanings": MEANINGS}
    pages.globals |= {"version": __version__, "palette": len(LIGHT.palette)}
    pages.filters |= {"cell": _cell, "formula": _formula, "linked": _linked, "position": position, "tally": _tally}
    return pages


def _cell(value: object) -> str:
    return number(value, 5) if isinstance(value, float) else _formula(str(value))


def _formula(text: str) -> Markup:
    """Escape a text, in which W_K becomes W with the subscript K."""
    return Markup(re.sub(r"\bW_([A-Z])(?![A-Za-z0-9_])", r"W<sub>\1</sub>", str(escape(text))))  # noqa: S704


def _linked(text: str) -> Markup:
    """Escape a text, in which "arXiv:2306.07042" becomes a link."""
    return Markup(_ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', str(escape(text))))  # noqa: S704


def _tally(shown: Sequence[Sequence[RunView]]) -> dict[Kind, dict[Outcome, int]]:
    return tallies(v for best, *_ in shown if best.counted for v in best.stored.verdicts)

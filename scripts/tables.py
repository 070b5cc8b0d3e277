"""Tables of verdicts in Markdown: of all entries, of one paper and its statements, and the page of every claim."""

import itertools
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from saddlescope.reproduction import Entry, Kind, Outcome, find_entry
from saddlescope.reproduction.catalogue import entry_module
from saddlescope.reproduction.formatting import counts, verdict_cells, verdict_of
from saddlescope.reproduction.paper import Erratum, Statement, paper_records

PAPERS = Path(__file__).resolve().parents[1] / "docs" / "papers"


def by_entry(verdicts: list[dict]) -> list[tuple[Entry, list[dict]]]:
    """The headline verdicts of each entry, in the order they are stored in."""
    groups = itertools.groupby(headlines(verdicts), lambda v: v["entry"])
    return [(find_entry(name), list(some)) for name, some in groups]


def headlines(verdicts: list[dict]) -> list[dict]:
    """The verdicts of each entry at the largest size that was run: the reduced one before the default."""
    reduced = {v["entry"] for v in verdicts if v["size"] == "reduced"}
    return [v for v in verdicts if v["size"] == "reduced" or v["entry"] not in reduced]


def all_entries(verdicts: list[dict]) -> str:
    """One row per entry: its name with a link to its claims, its title and its verdicts."""
    rows = (
        (f"[{entry.name}](#{entry.name.replace('/', '')})", _titled(entry, some), outcomes(some))
        for entry, some in by_entry(verdicts)
    )
    return table(("entry", "title", "verdicts"), rows)


def front(verdicts: list[dict]) -> str:
    """How many statements of the papers hold, fail and so on, and the errata by weight."""
    papers = {file.stem: paper_records(file.stem) for file in sorted(PAPERS.glob("*.md"))}
    of = {name: [_outcome(name, one, verdicts) for one in paper.statements] for name, paper in papers.items()}
    every = [outcome for one in of.values() for outcome in one]
    words = [Outcome(outcome).counted(every.count(outcome)) for outcome in Outcome if outcome in every]
    failing = ", ".join(f"[{name}](docs/papers/{name}.md#statements)" for name, one in of.items() if "fails" in one)
    words = [f"{word} ({failing})" if word.endswith(("fail", "fails")) else word for word in words]
    words += [f"{every.count('')} not covered"]
    weights = [erratum.weight for paper in papers.values() for erratum in paper.errata]
    slips = ", ".join(f"{weights.count(weight)} {word}" for weight, word in WEIGHTS.items())
    return f"Statements: {', '.join(words)}. Errata: {slips}."


def _outcome(paper: str, statement: Statement, verdicts: list[dict]) -> str:
    """The worst outcome of the claims of the strongest kind that cover a statement; empty if none covers it."""
    claims = {f"{paper}/{claim}" for claim in statement.claims}
    covering = [v for v in headlines(verdicts) if f"{v['entry']}/{v['claim']}" in claims]
    strongest = next((kind for kind in Kind if any(v["kind"] == kind for v in covering)), None)
    found = {Outcome(v["outcome"]) for v in covering if v["kind"] == strongest}
    worst = sorted(found, key=lambda outcome: (outcome.inside is not False, outcome.inside is True, outcome))
    return worst[0] if worst else ""


def totals(verdicts: list[dict]) -> str:
    """One row per kind of claim, with the number of each outcome."""
    return table(("kind of claim", "verdicts"), by_kind(verdicts))


def by_kind(verdicts: list[dict]) -> list[tuple[str, str]]:
    """The kinds of claims that occur, each with the numbers of its outcomes in words."""
    found = headlines(verdicts)
    kinds = ((str(kind), _in_words(v for v in found if v["kind"] == kind)) for kind in Kind)
    return [(kind, words) for kind, words in kinds if words]


def _in_words(verdicts: Iterable[dict]) -> str:
    """Such as '7 hold, 1 fails'."""
    return ", ".join(outcome.counted(n) for outcome, n in counts(Outcome(v["outcome"]) for v in verdicts).items() if n)


def statements(paper: str, verdicts: list[dict]) -> str:
    """A line for each claim that covers a statement of the paper, and the places of the statements that none covers."""
    judged = {(v["entry"], v["claim"]): v for v in headlines(of_paper(paper, verdicts))}
    rows = []
    for statement in paper_records(paper).statements:
        for claim in statement.claims:
            entry, _, name = claim.rpartition("/")
            v = judged[f"{paper}/{entry}", name]
            kind = "" if v["kind"] == Kind.PRINTED else f" ({v['kind']})"
            said, _, value, bound, _ = _claim(v)
            cells = (said, _judged(v["outcome"]) + kind, f"{value}; {bound}", _linked(v))
            rows.append((statement.place, *cells))
    found = table(("in the paper", "statement", "verdict", "value; bound", "entry"), rows)
    places = "; ".join(s.place for s in paper_records(paper).statements if s.uncovered)
    return f"{found}\n\nNo claim covers these, for the reasons in the [list of statements]({_source(paper)}): {places}."


def _source(paper: str) -> str:
    """The file of a paper's statements and errata."""
    return f"../../src/saddlescope/papers/{paper.replace('-', '_')}/statements.py"


def _linked(v: dict) -> str:
    """The name of an entry with a link to its source."""
    file = Path(str(import_module(entry_module(v["entry"])).__file__)).as_posix()
    return f"[{v['entry'].partition('/')[2]}](../../src/{file.partition('/src/')[2]})"


def errata(paper: str) -> str:
    """The errata of a paper that a statement or a proof depends on, and how many slips there are besides."""
    found = paper_records(paper).errata
    heavy, slips = [e for e in found if e.weight != "slip"], sum(e.weight == "slip" for e in found)
    more = f"Slips, on which nothing depends, are in the [list of statements]({_source(paper)}): {slips}."
    return "\n\n".join(filter(None, (_errata(heavy) if heavy else "", more if slips else ""))) or "None is known."


def _errata(found: Sequence[Erratum]) -> str:
    rows = sorted(found, key=lambda e: list(WEIGHTS).index(e.weight))
    cells = ((e.weight, e.place, plain(e.printed), plain(e.right), plain(e.check)) for e in rows)
    return table(("weight", "in the paper", "printed", "right", "check"), cells)


def all_errata() -> str:
    """The page of the errata of all papers, by weight, and of the statements that no claim covers."""
    lines = ["# Errata of the papers", "", _ERRATA]
    for file in sorted(PAPERS.glob("*.md")):
        paper, title = paper_records(file.stem), file.read_text().partition("\n")[0].removeprefix("# ")
        open_ones = [(s.place, plain(s.asserts), plain(s.uncovered)) for s in paper.statements if s.uncovered]
        lines += ["", f"## [{title}](papers/{file.name})"]
        lines += ["", _errata(paper.errata)] if paper.errata else []
        lines += ["", "Statements without a claim:", "", table(("in the paper", "statement", "reason"), open_ones)]
    return "\n".join(lines) + "\n"


_ERRATA = """A test or a claim checks each erratum. *Statement*: false as printed, with a printed claim that fails.
*Repairable*: a proof changes, the statement stays. *Slip*: nothing depends on it."""

WEIGHTS = {
    "statement": "statements that are false as printed",
    "repairable": "that a proof survives",
    "slip": "slips",
}
"""Weights of errata, the heaviest first, and what they are called."""


def every_claim(verdicts: list[dict]) -> str:
    """The page of all claims with their measured values and bounds, entry by entry."""
    lines = ["# Verdicts", "", f"Measured {_SIZES}, on two cores, by kind of claim:", "", totals(verdicts), "", _KINDS]
    lines += ["", all_entries(verdicts)]
    default = {(v["entry"], v["claim"]): v for v in verdicts if v["size"] == "default"}
    for entry, some in by_entry(verdicts):
        lines += ["", f"## {entry.name}", "", f"{entry.title} ({entry.source}).", ""]
        rows = [(*_claim(v), f"**{v['outcome']}**") for v in some]
        head = (*CLAIM, "verdict")
        if some[0]["size"] == "reduced":
            lines += [f"At the reduced size, the paper's experiment scaled down: {some[0]['scaling']}.", ""]
            smaller = (default[entry.name, v["claim"]] for v in some)
            rows = [(*row, f"{_value(v)}: {v['outcome']}") for row, v in zip(rows, smaller, strict=True)]
            head = (*head, "at the default size")
        lines += [table(head, rows), "", "<details><summary>Sources and remarks</summary>", ""]
        lines += [_details(v) for v in some] + ["", "</details>"]
    return "\n".join(lines) + "\n"


_KINDS = """The kinds are never added up:

- *printed*: the paper's own sentence and bound, in the setting that it assumes; it holds or fails;
- *reading*: the paper's words with a number that this project put to them; it agrees or differs, and refutes nothing;
- *stand-in*: the paper's statement on smaller data or networks, seen or not seen; it refutes nothing;
- *extension*: a question beyond the paper that a reader of it would ask, seen or not seen."""

_SIZES = "at the default size, or at the reduced size where an entry has such a run"


def _titled(entry: Entry, verdicts: list[dict]) -> str:
    """An entry's title, with its size unless that is the default."""
    return entry.title if verdicts[0]["size"] == "default" else f"{entry.title} (reduced size)"


def of_paper(paper: str, verdicts: list[dict]) -> list[dict]:
    """The verdicts on entries in one paper's folder."""
    return [v for v in verdicts if v["entry"].partition("/")[0] == paper]


def _judged(words: str) -> str:
    """Words of outcomes, those that speak against a statement in bold."""
    return re.sub(r"\b(\d+ )?(fails?)\b", r"\1**\2**", words).replace("undecided", "*undecided*")


def outcomes(verdicts: Iterable[dict]) -> str:
    """Such as 'printed: 7 hold, 1 **fails**; reading: 2 agree'."""
    listed, parts = list(verdicts), []
    for kind in Kind:
        words = _in_words(v for v in listed if v["kind"] == kind)
        parts += [f"{kind}: {words}"] if words else []
    return _judged("; ".join(parts))


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def plain(text: str) -> str:
    """A cell in which | and * are characters."""
    return text.replace("|", r"\|").replace("*", r"\*")


CLAIM = ("statement", "quantity", "value", "bound", "kind")
"""Columns of a claim."""


def _claim(v: dict) -> tuple[str, ...]:
    """Return the cells of a claim, in the order of `CLAIM`."""
    cells = verdict_cells(verdict_of(v)) | {"statement": v["statement"]}
    return tuple(plain(cells[column]) for column in CLAIM)


def _value(v: dict) -> str:
    """Return the measured value with its uncertainty as a cell."""
    return plain(verdict_cells(verdict_of(v))["value"])


def _details(v: dict) -> str:
    """Return the source and the remark of a claim as a list item."""
    remark = f" {v['remark']}" if v["remark"] else ""
    return f"- `{v['claim']}`: {plain(v['source'])}.{plain(remark)}"

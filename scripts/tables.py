"""Tables of verdicts in Markdown: of all entries, of one paper, of what is refuted, and the page of every claim."""

import itertools
import math
from collections.abc import Iterable

from saddlescope.reproduction import Entry, Outcome, find_entry
from saddlescope.reproduction.formatting import bounds, measured, summary


def by_entry(verdicts: list[dict]) -> list[tuple[Entry, list[dict]]]:
    """The verdicts of each entry, in the order they are stored in."""
    return [(find_entry(name), list(some)) for name, some in itertools.groupby(verdicts, lambda v: v["entry"])]


def all_entries(verdicts: list[dict]) -> str:
    """One row an entry: what it is, and how its claims fared."""
    rows = ((entry.name, entry.title, outcomes(some)) for entry, some in by_entry(verdicts))
    return table(("reproduction", "what", "verdicts"), rows)


def results(paper: str, verdicts: list[dict]) -> str:
    """Return the results of one paper's claims: a sentence, and one row per entry with a link to its claims."""
    told = of_paper(paper, verdicts)
    rows = ((_linked(entry.name), entry.source, entry.title, outcomes(some)) for entry, some in by_entry(told))
    counted = f"{len(told)} claims at the default size on two cores: {outcomes(told)}."
    return f"{counted}\n\n{table(('entry', 'in the paper', 'what', 'verdicts'), rows)}"


def refuted(paper: str, verdicts: list[dict]) -> str:
    """One row for each refuted claim of a paper."""
    rows = [(_linked(v["entry"]), *_claim(v)) for v in of_paper(paper, verdicts) if v["outcome"] == Outcome.REFUTED]
    return table(("entry", "claim", "measured", "would hold"), rows) if rows else "Nothing."


def every_claim(verdicts: list[dict]) -> str:
    """The page of all claims with their measured values and bounds, entry by entry."""
    told = "Measured at the default size on two cores. A refuted claim is a result: it is shown as it is."
    lines = ["# Verdicts", "", told]
    for entry, some in by_entry(verdicts):
        rows = ((*_claim(v), f"**{v['outcome']}**") for v in some)
        lines += ["", f"## {entry.name}", "", f"{entry.title} ({entry.source}).", ""]
        lines.append(table(("claim", "measured", "holds when", "verdict"), rows))
    return "\n".join(lines) + "\n"


def of_paper(paper: str, verdicts: list[dict]) -> list[dict]:
    """The verdicts on entries in one paper's folder."""
    return [v for v in verdicts if v["entry"].partition("/")[0] == paper]


def _linked(entry: str) -> str:
    """An entry's name without its paper, as a link from that paper's page to its claims."""
    return f"[{entry.partition('/')[2]}](../verdicts.md#{entry.replace('/', '')})"


def outcomes(verdicts: Iterable[dict]) -> str:
    """Such as '7 reproduced, 1 **refuted**'."""
    told = summary(Outcome(v["outcome"]) for v in verdicts)
    return told.replace("refuted", "**refuted**").replace("undecided", "*undecided*")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Rows as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def plain(text: str) -> str:
    """A cell in which | and * are characters."""
    return text.replace("|", r"\|").replace("*", r"\*")


def _claim(v: dict) -> tuple[str, str, str]:
    """Return the claim, the measured value with its remark, and the bounds."""
    value, uncertainty = (math.nan if v[k] is None else v[k] for k in ("value", "uncertainty"))
    low = -math.inf if v["low"] is None else v["low"]
    high = math.inf if v["high"] is None else v["high"]
    shown = measured(value, uncertainty, v["unit"]) + (f" ({v['remark']})" if v["remark"] else "")
    return plain(f"{v['says']} ({v['source']})"), plain(shown), bounds(low, high, v["unit"])

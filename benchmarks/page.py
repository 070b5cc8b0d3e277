"""The board as a page: docs/benchmarks.json, docs/scaling.png, and the page that the documentation's build makes."""

import itertools
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction.formatting import number

DOCS = Path(__file__).resolve().parents[1] / "docs"
STORED, PICTURE = DOCS / "benchmarks.json", DOCS / "scaling.png"
HEAD = """# Benchmark board

The last figures of every benchmark, written by `make bench`; [benchmarks](benchmarks.md) explains them, and
where others do better. A ratio is a figure over that of the first method of its problem, which is saddlescope's, in the
same process: costs above 1 speak for saddlescope. Figures are medians over turns; the spread of a ratio is its least
and greatest over turns, and is missing where each side ran once.
"""


def merged(records: Iterable[dict[str, Any]], known: Sequence[str], stored: Path = STORED) -> list[dict[str, Any]]:
    """The new records, and the stored ones of the other benchmarks that still exist, in alphabetical order."""
    before = json.loads(stored.read_text()) if stored.exists() else []
    latest = {record["benchmark"]: record for record in [*before, *records]}
    return [latest[name] for name in sorted(latest) if name in known]


def write_page(records: Iterable[dict[str, Any]], known: Sequence[str]) -> None:
    """Stores the records beside those of the other benchmarks, and draws the picture."""
    together = merged(records, known)
    STORED.write_text(json.dumps(together, indent=1, ensure_ascii=False) + "\n")
    draw(together)


def page(records: Sequence[dict[str, Any]]) -> str:
    """The page, in Markdown."""
    parts = [HEAD]
    if any(row["ratio"] is not None for record in records for row in record["rows"]):
        parts.append(_glance(records))
    if curves := [curve for record in records for curve in record["curves"]]:
        parts.append(_scaling(curves))
    parts += [_section(record) for record in records]
    return "\n".join(parts)


def _glance(records: Sequence[dict[str, Any]]) -> str:
    """Two tables of all ratios, of peers and of variants of ours: the least and the greatest over the problems."""
    found: dict[bool, dict[tuple[str, str, str], list[float]]] = {False: {}, True: {}}
    for record in records:
        for row in record["rows"]:
            if row["ratio"] is not None:
                key = record["benchmark"], row["method"], row["quantity"]
                found[row["own"]].setdefault(key, []).append(row["ratio"])
    lines = [
        "## All ratios",
        "",
        "The median over the problems of a benchmark, and the range. First come the peers that cost less than ours on",
        "any problem, the least ratio first.",
        "",
        *_ratios(found[False]),
        "",
    ]
    if found[True]:
        lines += [
            "The same for variants of our own methods: the same function called in another way, at another accuracy or",
            "in another precision. A ratio below 1 here is what that choice saves, not a peer ahead.",
            "",
            *_ratios(found[True]),
            "",
        ]
    return "\n".join(lines)


def _ratios(found: dict[tuple[str, str, str], list[float]]) -> list[str]:
    """The lines of a table: methods that cost less than ours on any problem come first."""
    columns = ("benchmark", "method", "quantity", "problems", "ratio", "least and greatest")
    lines = [_line(columns), "|" + "---|" * len(columns)]
    ahead = sorted((each for each in found.items() if min(each[1]) < 1), key=lambda each: min(each[1]))
    for (benchmark, method, quantity), ratios in [*ahead, *(each for each in found.items() if min(each[1]) >= 1)]:
        span = f"{number(min(ratios), 2)} to {number(max(ratios), 2)}" if len(ratios) > 1 else ""
        lines.append(_line((benchmark, method, quantity, str(len(ratios)), number(statistics.median(ratios), 2), span)))
    return lines


def _section(record: dict[str, Any]) -> str:
    lines = [f"## {record['benchmark']}", "", _cell(record["title"]), "", _circumstances(record), ""]
    if not record["rows"]:
        return "\n".join(lines)
    columns = ("problem", "quantity", "method", "value", "ratio", "note")
    lines += [_line(columns), "|" + "---|" * len(columns)]
    for (problem, quantity), rows in itertools.groupby(record["rows"], lambda row: (row["problem"], row["quantity"])):
        for k, row in enumerate(rows):
            what = ("", "") if k else (problem, quantity)  # given once, in the first row of its group
            lines.append(_line((*what, row["method"], _value(row), _row_ratio(row), row["note"])))
    return "\n".join([*lines, ""])


def _circumstances(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"{record['finished'][:10]}, {record['processor']}, {record['cores']} cores; load before it began"
        f" {record['load_before']:g}; {record['wall_seconds']:.0f} s in all. {versions}."
    )


def _scaling(curves: Sequence[dict[str, Any]]) -> str:
    columns = ("method", "problem", "size", "from", "to", "exponent", "at the end")
    lines = [
        "## Cost against size",
        "",
        "CPU time as size to the exponent: the slope of log(time) against log(size) by least squares over all points,",
        "with its standard error, and the slope between the last two. Fixed costs make small problems dearer than a",
        "power law would, so that exponents over all points are lower than those at the end.",
        "",
        f"![Cost against size]({PICTURE.name})",
        "",
        _line(columns),
        "|" + "---|" * len(columns),
    ]
    for curve in curves:
        fit = f"{number(curve['exponent'], 3)} ± {number(curve['error'], 2)}"
        ends = (number(curve["sizes"][0]), number(curve["sizes"][-1], 6))
        lines.append(_line((curve["method"], curve["problem"], curve["size"], *ends, fit, number(curve["end"], 3))))
    return "\n".join([*lines, ""])


def _value(row: dict[str, Any]) -> str:
    return "none" if row["value"] is None else f"{number(row['value'], 3)} {row['unit']}".strip()


def _row_ratio(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return ""
    spread = "" if row["low"] is None else f" ({number(row['low'], 2)} to {number(row['high'], 2)})"
    return number(row["ratio"], 2) + spread


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*").replace("_", r"\_")


def figure(records: Sequence[dict[str, Any]]) -> Figure:
    """The curves, a panel for each kind of size."""
    curves = [curve for record in records for curve in record["curves"]]
    panels = []
    for size in dict.fromkeys(curve["size"] for curve in curves):
        lines = []
        for curve in (one for one in curves if one["size"] == size):
            reported = f"{size}: {curve['method']}, exponent {number(curve['exponent'], 2)}"
            points = {"x": np.array(curve["sizes"]), "y": np.array(curve["values"]), "group": reported}
            lines += [Line(**points), Line(**points, style="points")]
        panels.append(Panel(x=Axis(size, scale="log"), y=Axis("CPU time", "s", scale="log"), marks=tuple(lines)))
    return Figure(name="scaling", title="Cost against size", caption="", panels=tuple(panels), columns=2)


def draw(records: Sequence[dict[str, Any]]) -> None:
    """The picture, where there are curves."""
    if any(record["curves"] for record in records):
        from saddlescope.plot import draw_matplotlib

        draw_matplotlib(figure(records)).savefig(PICTURE, dpi=110)

"""The README's picture and table, and the page of all verdicts: made from stored runs, checked to be current.

--from results    judges the stored default runs; writes docs/verdicts.json and .md, docs/figure-2.png and the README
--check           fails when the README, docs/verdicts.* and the claims in the source disagree
"""

import argparse
import itertools
import json
import math
import sys
from pathlib import Path

from saddlescope.errors import InputError
from saddlescope.papers import Outcome, find, names
from saddlescope.papers.reproduction import Reproduction, stored_files
from saddlescope.papers.wording import bounds, finite, measured, summary
from saddlescope.plot import draw_matplotlib

ROOT = Path(__file__).resolve().parents[1]
README, VERDICTS, PAGE = ROOT / "README.md", ROOT / "docs" / "verdicts.json", ROOT / "docs" / "verdicts.md"
BEGIN, END = "<!-- verdicts: written by `make readme` -->", "<!-- end of verdicts -->"
PICTURED = "gradual-rank/figure-2"
CLAIMED = ("says", "source", "unit", "low", "high")


def default_runs(results: Path) -> list[Reproduction]:
    """The stored runs at the default size."""
    runs = [Reproduction.open(file) for file in stored_files(results)]
    return [run for run in runs if run.provenance.label == "default"]


def draw_picture(runs: list[Reproduction]) -> None:
    """The first picture of Figure 2's entry."""
    for run in runs:
        if run.entry.name == PICTURED:
            draw_matplotlib(run.figures[0]).savefig(ROOT / "docs" / "figure-2.png", dpi=110)


def by_entry(verdicts: list[dict]) -> list[tuple[str, list[dict]]]:
    """The verdicts of each entry, in the order they are stored in."""
    return [(name, list(some)) for name, some in itertools.groupby(verdicts, lambda v: v["entry"])]


def table(verdicts: list[dict]) -> str:
    """One row an entry: what it is, and how its claims fared."""
    rows = ["| reproduction | what | verdicts |", "|---|---|---|"]
    for name, some in by_entry(verdicts):
        entry, outcomes = find(name), summary(Outcome(v["outcome"]) for v in some)
        told = outcomes.replace("refuted", "**refuted**").replace("undecided", "*undecided*")
        rows.append(f"| {name} | {entry.title} | {told} |")
    return "\n".join(rows)


def page(verdicts: list[dict]) -> str:
    """Every claim with its measured value and its bounds, entry by entry."""
    lines = [
        "# Verdicts",
        "",
        "Measured at the default size on two cores. A refuted claim is a result: it is shown as it is.",
    ]
    for name, some in by_entry(verdicts):
        entry = find(name)
        lines += ["", f"## {name}", "", f"{entry.title} ({entry.source}).", ""]
        lines += ["| claim | measured | holds when | verdict |", "|---|---|---|---|"]
        for v in some:
            value, uncertainty = (math.nan if v[k] is None else v[k] for k in ("value", "uncertainty"))
            low = -math.inf if v["low"] is None else v["low"]
            high = math.inf if v["high"] is None else v["high"]
            shown = measured(value, uncertainty, v["unit"]) + (f" ({v['remark']})" if v["remark"] else "")
            says = f"{v['says']} ({v['source']})"
            lines.append(f"| {_cell(says)} | {_cell(shown)} | {bounds(low, high, v['unit'])} | **{v['outcome']}** |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


def with_table(readme: str, verdicts: list[dict]) -> str:
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(verdicts)}\n{END}{tail}"


def disagreements(verdicts: list[dict]) -> list[str]:
    """What the stored verdicts and the claims in the source say differently."""
    stored = {(v["entry"], v["claim"]): v for v in verdicts}
    found = []
    for name in names():
        for claim in find(name).claims:
            v = stored.pop((name, claim.name), None)
            if v is None:
                found.append(f"{name}: there is no verdict on {claim.name!r}")
                continue
            for field in CLAIMED:
                now = getattr(claim, field)
                now = finite(now) if isinstance(now, float) else now
                if v[field] != now:
                    found.append(f"{name}, {claim.name}: {field} is {now!r} in the source, {v[field]!r} in the verdict")
    return found + [f"{entry}: {claim!r} is no longer claimed" for entry, claim in stored]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--from", dest="results", type=Path)
    action.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.results:
        try:
            runs = default_runs(given.results)
            verdicts = [record for run in runs for record in run.records()]
            draw_picture(runs)
        except InputError as error:
            sys.exit(str(error))
        VERDICTS.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n")
        README.write_text(with_table(README.read_text(), verdicts))
        PAGE.write_text(page(verdicts))
    verdicts = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else []
    problems = disagreements(verdicts)
    if with_table(README.read_text(), verdicts) != README.read_text():
        problems.append("the table in README.md is not the one of docs/verdicts.json")
    if not PAGE.exists() or PAGE.read_text() != page(verdicts):
        problems.append("docs/verdicts.md is not made from docs/verdicts.json")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run `make reproduce`, then `make readme`.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

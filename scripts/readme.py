"""The picture and the tables of the README and of the pages of verdicts: made from stored runs, checked to be current.

--from results    judges the stored default runs; writes docs/verdicts.json and .md, docs/audit.md, docs/figure-2.png,
                  and the tables of the README and of docs/papers/*.md; an entry without such a run is not tested
--check           fails when the README, the pages, docs/verdicts.json and the claims in the source disagree
"""

import argparse
import json
import sys
from pathlib import Path

from tables import all_entries, audit, every_claim, refuted, results

from saddlescope._shared.errors import InputError
from saddlescope.plot import draw_matplotlib
from saddlescope.reproduction import Estimate, entry_names, find_entry
from saddlescope.reproduction.formatting import finite, record
from saddlescope.reproduction.runner import Reproduction, json_values, stored_files

ROOT = Path(__file__).resolve().parents[1]
README, PAPERS = ROOT / "README.md", ROOT / "docs" / "papers"
VERDICTS, PAGE, AUDIT = (ROOT / "docs" / name for name in ("verdicts.json", "verdicts.md", "audit.md"))
PICTURED = "gradual-rank/figure-2"
CLAIMED = ("statement", "quantity", "kind", "source", "unit", "low", "high")


def default_runs(results: Path) -> list[Reproduction]:
    """The stored runs at the default size."""
    runs = [Reproduction.open(file) for file in stored_files(results)]
    return [run for run in runs if run.provenance.label == "default"]


def every_record(runs: list[Reproduction]) -> list[dict]:
    """The verdicts on all claims; those of an entry without a run of its present default are not tested."""
    current = {run.entry.name: run for run in runs if run.provenance.params == json_values(run.entry.configure())}
    records = []
    for name in entry_names():
        if name in current:
            records += current[name].records()
        else:
            absent = Estimate.not_tested("This version's default run was not made.")
            unmade = (record(claim.verdict(absent)) for claim in find_entry(name).claims)
            records += [{"entry": name, "size": "default"} | one for one in unmade]
    return records


def draw_picture(runs: list[Reproduction]) -> None:
    """The first picture of Figure 2's entry."""
    for run in runs:
        if run.entry.name == PICTURED:
            draw_matplotlib(run.figures[0]).savefig(ROOT / "docs" / "figure-2.png", dpi=110)


def pages(verdicts: list[dict]) -> dict[Path, str]:
    """Every file that is made from the verdicts, wholly or in part, as it should read."""
    made = {
        PAGE: every_claim(verdicts),
        AUDIT: audit(verdicts),
        README: within(README.read_text(), "verdicts", all_entries(verdicts)),
    }
    for file in sorted(PAPERS.glob("*.md")):
        text = within(file.read_text(), "results", results(file.stem, verdicts))
        made[file] = within(text, "refuted", refuted(file.stem, verdicts))
    return made


def within(text: str, name: str, made: str) -> str:
    """The text with what is made between the two comments of this name."""
    begin, end = f"<!-- {name}: written by `make readme` -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{made}\n{end}{tail}"


def disagreements(verdicts: list[dict]) -> list[str]:
    """Return the differences between the stored verdicts and the claims in the source."""
    stored = {(v["entry"], v["claim"]): v for v in verdicts}
    found = []
    for name in entry_names():
        for claim in find_entry(name).claims:
            v = stored.pop((name, claim.name), None)
            if v is None:
                found.append(f"{name}: no verdict on {claim.name!r}")
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
            verdicts = every_record(runs)
            draw_picture(runs)
        except InputError as error:
            sys.exit(str(error))
        VERDICTS.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n")
        for file, text in pages(verdicts).items():
            file.write_text(text)
    verdicts = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else []
    problems = disagreements(verdicts)
    problems += [
        f"{file.relative_to(ROOT)} is not made from docs/verdicts.json"
        for file, text in pages(verdicts).items()
        if not file.exists() or file.read_text() != text
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run `make reproduce`, then `make readme`.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

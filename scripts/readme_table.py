"""The README's table of reproductions: written from stored verdicts, checked to be current.

    python scripts/readme_table.py --from results    judge the stored runs, write docs/verdicts.json and the README
    python scripts/readme_table.py --check           fail when README, docs/verdicts.json and the claims disagree
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from saddlescope.papers import find, names

ROOT = Path(__file__).resolve().parents[1]
README, VERDICTS = ROOT / "README.md", ROOT / "docs" / "verdicts.json"
BEGIN, END = "<!-- verdicts: written by `make readme` -->", "<!-- end of verdicts -->"


def number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {number(high)}"
    if high is None:
        return f"at least {number(low)}"
    return f"{number(low)} to {number(high)}"


def table(verdicts: list[dict]) -> str:
    """One row a claim, in the order of entries and claims."""
    rows = ["| reproduction | claim | measured | bound | verdict |", "|---|---|---|---|---|"]
    for v in verdicts:
        measured = number(v["value"]) + (f" ± {number(v['uncertainty'], 1)}" if v["uncertainty"] else "")
        unit = f" {v['unit']}" if v["unit"] else ""
        rows.append(
            f"| {v['entry']} | {v['says']} ({v['source']}) | {measured}{unit} | "
            f"{bounds(v['low'], v['high'])} | **{v['outcome']}** |"
        )
    return "\n".join(rows)


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
                found.append(f"{name}: no verdict on {claim.name!r}")
                continue
            for field in ("says", "source", "low", "high", "unit"):
                now = getattr(claim, field)
                now = None if isinstance(now, float) and not math.isfinite(now) else now
                if v[field] != now:
                    found.append(f"{name}, {claim.name}: {field} is {now!r} in the source, {v[field]!r} in the verdict")
    return found + [f"{entry}: verdict on {claim!r}, which is no longer claimed" for entry, claim in stored]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--from", dest="results", type=Path)
    action.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.results:
        command = [sys.executable, "-m", "saddlescope.cli", "check", str(given.results), "--json"]
        judged = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if judged.returncode == 2:
            return 2
        verdicts = [v for v in json.loads(judged.stdout) if v["size"] == "default"]
        VERDICTS.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n")
        README.write_text(with_table(README.read_text(), verdicts))
    verdicts = json.loads(VERDICTS.read_text())
    problems = disagreements(verdicts)
    if with_table(README.read_text(), verdicts) != README.read_text():
        problems.append("the table in README.md is not the one of docs/verdicts.json")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("Run the entries, then `make readme`.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

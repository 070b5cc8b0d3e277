"""The README's picture and line of totals, and the pages of verdicts: made from stored runs, checked to be current.

--from results    judges the stored runs of the default and the reduced size; writes docs/verdicts.json, the pictures of
                  docs/training-runs.md, the README's line of totals, the tables of docs/papers/*.md and the
                  costs of entries; an entry without a default run is not tested
--add results     the same, but an entry without a stored run keeps its estimates in docs/verdicts.json, judged by the
                  claims as they are now; its new claims are not tested
--rejudge         judges the estimates in docs/verdicts.json by the claims as they are now
--picture         runs the program of the docs' first page and keeps its picture
--check           fails when the README, the pages, docs/verdicts.json and the claims in the source disagree
"""

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tables import errata, front, statements

from saddlescope._shared.errors import InputError
from saddlescope.plot import draw_matplotlib
from saddlescope.reproduction import Estimate, Evidence, entry_names, find_entry
from saddlescope.reproduction.catalogue import entry_costs
from saddlescope.reproduction.formatting import finite, record
from saddlescope.reproduction.runner import Reproduction, json_values, stored_files

ROOT = Path(__file__).resolve().parents[1]
README, PAPERS = ROOT / "README.md", ROOT / "docs" / "papers"
VERDICTS = ROOT / "docs" / "verdicts.json"
COSTS = ROOT / "src" / "saddlescope" / "reproduction" / "costs.json"
PICTURED = {
    "gradual-rank/figure-4": ("reduced", "vit-stable-rank.png"),
    "gradual-rank/figure-20": ("reduced", "gpt2-stable-rank.png"),
    "softmax-attention/theorem-4-1": ("default", "max-margin.png"),
    "concept-learning/figure-10": ("default", "figure-10.png"),
}
CLAIMED = ("statement", "quantity", "kind", "source", "unit", "low", "high")


def judged_runs(results: Path) -> list[Reproduction]:
    """The stored runs at the default and the reduced size."""
    runs = [Reproduction.open(file) for file in stored_files(results)]
    return [run for run in runs if run.provenance.label in ("default", "reduced")]


def every_record(runs: list[Reproduction], earlier: list[dict]) -> list[dict]:
    """The verdicts on all claims; without a run of the present parameters the earlier ones, else not tested."""
    current = {}
    kept: dict[tuple[str, str], list[dict]] = {}
    for verdict in earlier:
        kept.setdefault((verdict["entry"], verdict["size"]), []).append(verdict)
    for run in runs:
        size = run.provenance.label
        if size in run.entry.sizes and run.provenance.params == json_values(run.entry.configure(size)):
            current[run.entry.name, size] = run
    records = []
    for name in entry_names():
        for size in ("default", "reduced"):
            if (name, size) in current:
                records += current[name, size].records()
                continue
            known = {v["claim"]: v for v in kept.get((name, size), [])}
            if not known and size == "reduced":
                continue
            absent = Estimate.not_tested(f"This version's {size} run was not made.")
            for claim in find_entry(name).claims:
                before = known.get(claim.name, {})
                measured = estimate_of(before) if before else absent
                records.append({"entry": name, "size": size} | before | record(claim.verdict(measured)))
    return records


def estimate_of(verdict: dict) -> Estimate:
    """The estimate that a stored verdict rests on."""
    value = math.nan if verdict["value"] is None else verdict["value"]
    uncertainty = math.inf if verdict["uncertainty"] is None else verdict["uncertainty"]
    return Estimate(
        value,
        uncertainty,
        verdict["remark"],
        verdict["n"],
        tested=verdict["outcome"] != "not tested",
        evidence=Evidence(verdict["evidence"]),
        over=verdict["over"],
    )


def keep_costs(results: Path) -> None:
    """Keep the CPU time of each run without parameters set by hand, for `saddlescope list`."""
    costs = {name: entry_costs(name) for name in entry_names()}
    for run in map(Reproduction.open, stored_files(results)):
        if run.entry.name in costs and not run.provenance.settings and not run.provenance.resumed:
            costs[run.entry.name][run.provenance.size] = round(run.provenance.cpu_seconds)
    lines = [f" {json.dumps(name)}: {json.dumps(of)}" for name, of in sorted(costs.items()) if of]
    COSTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def draw_pictures(runs: list[Reproduction]) -> None:
    """The first pictures of entries, for the pages of findings and of training runs."""
    for run in runs:
        size, file = PICTURED.get(run.entry.name, ("", ""))
        if run.provenance.label == size:
            draw_matplotlib(run.figures[0]).savefig(ROOT / "docs" / file, dpi=80)


def draw_readme() -> None:
    """The picture that the program of the docs' first page draws."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.S)
    (name,) = re.findall(r'savefig\("(.*?)"', program)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
        shutil.copyfile(Path(folder) / name, ROOT / "docs" / "figure-2.png")


def pages(verdicts: list[dict]) -> dict[Path, str]:
    """Every file that is made from the verdicts, wholly or in part, as it should read."""
    made = {README: within(README.read_text(), "verdicts", front(verdicts))}
    for file in sorted(PAPERS.glob("*.md")):
        text = within(file.read_text(), "statements", statements(file.stem, verdicts))
        made[file] = within(text, "errata", errata(file.stem))
    return made


def within(text: str, name: str, made: str) -> str:
    """The text with what is made between the two comments of this name."""
    begin, end = f"<!-- {name}: written by `make readme` -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{made}\n{end}{tail}"


def disagreements(verdicts: list[dict]) -> list[str]:
    """Return the differences between the stored verdicts and the claims in the source."""
    claims = {(name, claim.name): claim for name in entry_names() for claim in find_entry(name).claims}
    judged = {(v["entry"], v["claim"]) for v in verdicts}
    found = [f"{name}: no verdict on {claim!r}" for name, claim in claims if (name, claim) not in judged]
    found += [f"{entry}: {claim!r} is no longer claimed" for entry, claim in sorted(judged - claims.keys())]
    for v in verdicts:
        if (claim := claims.get((v["entry"], v["claim"]))) is None:
            continue
        for field in CLAIMED:
            now = getattr(claim, field)
            now = finite(now) if isinstance(now, float) else now
            if v[field] != now:
                where = f"{v['entry']}, {claim.name}, {v['size']}"
                found.append(f"{where}: {field} is {now!r} in the source, {v[field]!r} in the verdict")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--from", dest="results", type=Path)
    action.add_argument("--add", type=Path, metavar="RESULTS")
    action.add_argument("--rejudge", action="store_true")
    action.add_argument("--picture", action="store_true")
    action.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.picture:
        draw_readme()
    if given.results or given.add or given.rejudge:
        folder = given.results or given.add
        try:
            runs = judged_runs(folder) if folder else []
            earlier = [] if given.results else json.loads(VERDICTS.read_text())
            verdicts = every_record(runs, earlier)
            draw_pictures(runs)
            if folder:
                keep_costs(folder)
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

import json
import runpy
from pathlib import Path

import pytest

from saddlescope.reproduction import Evidence, Kind, Outcome, entry_names, find_entry

DOCS = Path(__file__).resolve().parents[2] / "docs"
WRITTEN = runpy.run_path(str(DOCS / "extensions" / "written_pages.py"))["written_pages"]()
DECIDED = (Outcome.REPRODUCED, Outcome.SEEN, Outcome.REFUTED, Outcome.NOT_SEEN)


@pytest.fixture(scope="module")
def verdicts():
    return json.loads((DOCS / "verdicts.json").read_text())


@pytest.fixture(scope="module")
def claims():
    return {(name, claim.name): claim for name in entry_names() for claim in find_entry(name).claims}


def test_no_verdict_without_uncertainty_comes_from_one_run(verdicts, claims):
    for verdict in verdicts:
        if verdict["outcome"] in DECIDED and verdict["uncertainty"] == 0:
            evidence = claims[verdict["entry"], verdict["claim"]].evidence
            assert evidence == Evidence.IDENTITY or (evidence == Evidence.CASES and verdict["n"] >= 2), verdict


def test_stand_ins_refute_nothing(verdicts):
    for verdict in verdicts:
        stand_in = verdict["outcome"] in (Outcome.SEEN, Outcome.NOT_SEEN)
        if verdict["outcome"] in DECIDED:
            assert stand_in == (verdict["kind"] == Kind.STAND_IN), verdict


def test_every_entry_is_in_the_table():
    page = WRITTEN[DOCS / "verdicts.md"]
    for name in entry_names():
        assert f"| [{name}](#{name.replace('/', '')}) |" in page
        assert f"\n## {name}\n" in page


def test_every_claim_has_its_reasons(claims):
    assert all(claim.why.strip() and claim.doubt.strip() for claim in claims.values())


def test_the_pages_of_the_papers_have_every_statement(verdicts):
    for page in DOCS.glob("papers/*.md"):
        text = page.read_text()
        names = [name for name in entry_names() if name.partition("/")[0] == page.stem]
        assert names, page
        assert all(f"| `{name.partition('/')[2]}` |" in text for name in names)
        largest = {v["entry"]: v["size"] for v in verdicts}  # the reduced size is stored after the default one
        asked = [
            v for v in verdicts if v["entry"] in names and v["size"] == largest[v["entry"]] and v["kind"] != Kind.OWN
        ]
        for verdict in asked:
            assert verdict["statement"].replace("|", r"\|").replace("*", r"\*") in text

import json
from collections import Counter
from pathlib import Path

import pytest

from saddlescope.reproduction import Evidence, Kind, Outcome, entry_names, find_entry

DOCS = Path(__file__).resolve().parents[2] / "docs"
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
    page = (DOCS / "verdicts.md").read_text()
    for name in entry_names():
        assert f"| [{name}](#{name.replace('/', '')}) |" in page
        assert f"\n## {name}\n" in page


def test_the_audit_has_a_row_for_every_claim(claims):
    page = (DOCS / "audit.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    found = Counter(row[0] for row in rows if row[0] != "statement")
    assert found == Counter(c.statement.replace("|", r"\|").replace("*", r"\*") for c in claims.values())
    assert all(cell.strip() for row in rows for cell in row)

import json
from collections import Counter

import pytest
from documentation import DOCS, WRITTEN

from saddlescope.reproduction import Evidence, Kind, Outcome, entry_names, find_entry
from saddlescope.reproduction.paper import paper_records


@pytest.fixture(scope="module")
def verdicts():
    return json.loads((DOCS / "verdicts.json").read_text())


def test_no_verdict_without_uncertainty_comes_from_one_run(verdicts):
    for verdict in verdicts:
        if Outcome(verdict["outcome"]).inside is not None and verdict["uncertainty"] == 0:
            evidence = verdict["evidence"]
            assert evidence == Evidence.IDENTITY or (evidence == Evidence.CASES and verdict["n"] >= 2), verdict


def test_only_a_printed_claim_can_fail(verdicts):
    for verdict in verdicts:
        if verdict["outcome"] in (Outcome.HOLDS, Outcome.FAILS):
            assert verdict["kind"] == Kind.PRINTED, verdict


def test_every_entry_is_in_the_table():
    page = WRITTEN[DOCS / "verdicts.md"]
    for name in entry_names():
        assert f"| [{name}](#{name.replace('/', '')}) |" in page
        assert f"\n## {name}\n" in page


def test_every_entry_says_what_a_sceptic_should_know():
    assert [name for name in entry_names() if not find_entry(name).claims.limits.strip()] == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("papers/*.md")), ids=lambda page: page.stem)
def test_every_claim_about_a_paper_stands_in_one_statement_of_its_page(page):
    """Extensions stand in none."""
    covering = Counter(f"{page.stem}/{claim}" for s in paper_records(page.stem).statements for claim in s.claims)
    names = [name for name in entry_names() if name.partition("/")[0] == page.stem]
    claims = {f"{name}/{claim.name}": claim for name in names for claim in find_entry(name).claims}
    assert covering == Counter(name for name, claim in claims.items() if claim.kind != Kind.EXTENSION)
    text = page.read_text()
    assert [name for name in covering if plain(claims[name].statement) not in text] == []


def plain(text):
    return text.replace("|", r"\|").replace("*", r"\*")


@pytest.mark.parametrize("page", sorted(DOCS.glob("papers/*.md")), ids=lambda page: page.stem)
def test_a_statement_is_false_as_printed_where_a_printed_claim_fails(page, verdicts):
    failing = {v["claim"] for v in verdicts if v["entry"].startswith(f"{page.stem}/") and v["outcome"] == Outcome.FAILS}
    assert [erratum.weight for erratum in paper_records(page.stem).errata].count("statement") == len(failing)

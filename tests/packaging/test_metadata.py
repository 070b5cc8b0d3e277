"""One version everywhere, a citation that tools can read, and documented extras."""

import re
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest
import yaml

import saddlescope
from saddlescope._shared.errors import MissingExtraError
from saddlescope.reproduction import entry_names

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
INSTALLATION = (ROOT / "docs" / "installation.md").read_text()
PAPERS = sorted({name.partition("/")[0].replace("-", "_") for name in entry_names()})

# Of the Citation File Format 1.2.0: what must be there, and everything that may be.
REQUIRED = {"authors", "cff-version", "message", "title"}
KNOWN = REQUIRED | {
    "abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url",
    "preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url",
    "version",
}  # fmt: skip
PERSON = {"affiliation", "alias", "email", "family-names", "given-names", "name-particle", "name-suffix", "orcid"}


def test_one_version_everywhere():
    version = PROJECT["version"]
    assert metadata.version("saddlescope") == saddlescope.__version__ == version
    assert str(CITATION["version"]) == version
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert heading[1] == version


def test_the_citation_has_the_fields_of_its_format():
    assert CITATION["cff-version"] == "1.2.0"
    assert REQUIRED <= set(CITATION) <= KNOWN
    assert CITATION["type"] in ("software", "dataset")
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert all(set(author) <= PERSON or "name" in author for author in CITATION["authors"])
    for reference in CITATION["references"]:
        assert set(reference) >= {"authors", "title", "type"}
        assert reference["type"] in ("article", "conference-paper")
        assert isinstance(reference["year"], int)
        assert reference["authors"]
        assert all(set(author) <= PERSON for author in reference["authors"])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_is_cited_with_all_its_authors(paper):
    for reported in import_module(f"saddlescope.papers.{paper}").CITATION.split("; "):
        authors, title, where = re.fullmatch(r"(.*?): (.*), ((?:\w+ )?\d{4}), arXiv:[\d.]+", reported).groups()
        (reference,) = (one for one in CITATION["references"] if one["title"] == title)
        assert [author["family-names"] for author in reference["authors"]] == authors.split(", ")
        assert where.endswith(str(reference["year"]))


def test_every_extra_is_reported_of_with_what_it_takes_away():
    extras = set(PROJECT["optional-dependencies"])
    reported = set(re.findall(r"^\| `(\w+)` \|", INSTALLATION, re.M))
    assert reported == extras
    for extra in extras - {"all"}:
        sentence = str(MissingExtraError("a part", "a package", extra))
        assert f"pip install 'saddlescope[{extra}]'; without it " in sentence
        assert sentence.partition("without it ")[2].removesuffix(".") in INSTALLATION.replace("\n", " ")


def test_the_package_is_typed():
    assert (Path(saddlescope.__file__).parent / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]

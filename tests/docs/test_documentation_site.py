"""The documentation's site: formulas, tables and pages need no other host."""

import csv
import itertools
import re
import subprocess
import sys

import pytest
from documentation import DOCS, extension

pytest.importorskip("sphinx")


def test_another_package_than_the_pinned_one_is_refused(tmp_path):
    mathjax = extension("own_mathjax")
    package = tmp_path / "mathjax.tgz"
    package.write_bytes(b"something else")
    with pytest.raises(mathjax.ExtensionError, match="has another checksum"):
        mathjax.fetch_mathjax(tmp_path / "static", package.as_uri())
    assert not (tmp_path / "static").exists()
    with pytest.raises(mathjax.ExtensionError, match="could not be fetched"):
        mathjax.fetch_mathjax(tmp_path / "static", (tmp_path / "absent").as_uri())


def test_the_built_site_has_its_formulas_and_tables_and_loads_nothing_from_elsewhere(tmp_path):
    """Build three pages without the reference."""
    extension("own_host")
    pytest.importorskip("furo")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "conf.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(DOCS / 'extensions')!r})\n"
        "extensions = ['myst_parser', 'sphinx.ext.mathjax', 'sphinx.ext.githubpages', 'own_host', 'table_files']\n"
        "myst_enable_extensions = ['dollarmath']\nhtml_theme = 'furo'\nmathjax_path = 'mathjax.js'\n"
    )
    page = "# Page\n\nThe scale $\\alpha$.\n\n| a | b, c |\n|---|---|\n| 1 | $x$ |\n| 2 | q; r |\n| 3 | z |\n"
    (folder / "index.md").write_text(page + "\n```{toctree}\ninner/page\n```\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "page.md").write_text(page)
    command = [sys.executable, "-m", "sphinx", "-q", str(folder), str(tmp_path / "site")]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "site" / ".nojekyll").exists()
    for place in ("index", "inner/page"):
        text = (tmp_path / "site" / f"{place}.html").read_text()
        assert "_static/mathjax.js" in text
        (address,) = re.findall(r'<a href="([^"]+\.csv)" download>', text)
        with (tmp_path / "site" / place).parent.joinpath(address).open(newline="") as file:
            assert list(csv.reader(file)) == [["a", "b, c"], ["1", "x"], ["2", "q; r"], ["3", "z"]]
    (folder / "inner" / "page.md").write_text("# Page\n\n<img src='https://elsewhere.org/x.png'>\n")
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert failed.returncode != 0
    assert "The site must load nothing from other hosts: inner/page.html loads https://elsewhere.org" in failed.stderr


def test_displayed_formulas_are_paragraphs():
    """Within one, as in a list, the site shows their dollar signs."""
    for page in DOCS.rglob("*.md"):
        lines = page.read_text().splitlines()
        within = [line for before, line in itertools.pairwise(lines) if re.match(r" *\$\$.", line) and before.strip()]
        assert within == [], page

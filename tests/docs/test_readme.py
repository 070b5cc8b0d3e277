"""README: short, its program prints what it shows and draws its picture, its commands exist, its line is current."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
from PIL import Image

import snippets

AS_USERS_DO = """
import sys
import snippets
(program,) = snippets.snippets("README.md")
made = snippets.run(program)
comparison = made["ss"].compare(made["predicted"].staircase, made["found"])
made["ss"].plot_staircase(made["predicted"], *made["runs"]).figure.savefig(sys.argv[1], dpi=150)
print(comparison.exact_order_prefix, max(map(abs, comparison.time_errors)))
"""
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_has_at_most_600_words():
    assert len(README.split()) <= 600


def test_the_program_prints_and_draws_what_is_shown(tmp_path):
    """Run it in a process of its own, compiled as for users: time errors are shown to digits that rounding changes."""
    (program,) = snippets.snippets("README.md")
    assert program.shown is not None
    file = tmp_path / "again.png"
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", AS_USERS_DO, file],
        env=os.environ | {"PYTHONPATH": paths, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    prefix, error = done.stdout.split()
    assert int(prefix) == 9
    assert float(error) < 0.003, "as the sentence above it says"
    drawn, kept = (np.asarray(Image.open(one).convert("RGB"), float) for one in (file, ROOT / "docs" / "figure-2.png"))
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).mean() < 2, "run scripts/readme.py --picture"


def test_the_picture_shows_three_scales_of_dim_8():
    (program,) = snippets.snippets("README.md")
    assert "dim=8" in program.code
    assert "(-2, -16, -512)" in program.code


def test_commands_exist():
    (file,) = set(re.findall(r"dist/(\S+?\.whl)", README))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert file == f"{project['name']}-{project['version']}-py3-none-any.whl"
    assert set(re.findall(r"\.whl\[(\w+)\]", README)) <= set(project["optional-dependencies"])
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"\bmake (\w+)", README)) <= targets


def test_papers_and_citation_are_those_of_the_citation_file():
    citation = (ROOT / "CITATION.cff").read_text()
    linked = re.findall(r"(https://arxiv\.org/abs/[\d.]+)\)", README)
    cited = re.findall(r"url: (\S+)", citation)
    assert linked == cited[:4]
    beyond = (ROOT / "docs" / "papers" / "beyond.md").read_text()
    assert all(f"arXiv {url.rpartition('/')[2]}" in beyond for url in cited[4:])
    for title in re.findall(r"\d{4}\), \[(.*?)\]", README):
        assert title.lower() in citation.lower()
    (title,) = re.findall(r"title = \{(.*?)\}", README)
    assert title in citation


def test_the_line_of_totals_is_that_of_the_verdicts():
    verdicts = json.loads((ROOT / "docs" / "verdicts.json").read_text())
    (line,) = re.findall(r"<!-- verdicts: .*? -->\n(.*)\n<!-- end", README)
    reduced = {v["entry"] for v in verdicts if v["size"] == "reduced"}
    shown = [v for v in verdicts if v["size"] == "reduced" or v["entry"] not in reduced]
    assert sum(map(int, re.findall(r"\b(\d+) [a-z]", line))) == len(shown)
    for kind in ("printed", "reading", "stand-in", "own"):
        assert f"*{kind}*:" in line


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target

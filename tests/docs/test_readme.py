"""README: short, its programs run, its commands exist, its line is current; the first page of the docs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import snippets
from saddlescope.reproduction.paper import paper_records
from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2

AS_USERS_DO = """
import sys
import snippets
(program,) = snippets.snippets("docs/index.md")
made = snippets.run(program)
comparison = made["ss"].compare(made["predicted"], made["runs"][-1], level=0.01)
made["ss"].plot_staircase(made["predicted"], *made["runs"]).figure.savefig(sys.argv[1], dpi=150)
print(comparison.exact_order_prefix, max(map(abs, comparison.time_errors)))
"""
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_has_at_most_600_words():
    assert len(README.split()) <= 600


def test_the_program_prints_and_draws_what_is_shown(tmp_path):
    """Run it in a process of its own, compiled as for users: time errors are shown to digits that rounding changes."""
    (program,) = snippets.snippets("docs/index.md")
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


def test_the_tracker_takes_one_line_and_the_log_two(tmp_path, monkeypatch):
    tracked, log = snippets.snippets("README.md")
    model, optimizer, train = tiny_training()
    exec(tracked.code, {"model": model, "optimizer": optimizer, "train": train})
    monkeypatch.chdir(ROOT)
    snippets.run(log, ROOT)


def tiny_training():
    model = fresh_gpt2(GPT2Sizes(vocabulary=64, block=16, embedding=32, depth=2, heads=2), seed=0)
    tokens = torch.randint(0, 64, (8, 4, 16), generator=torch.Generator().manual_seed(0))

    def train(model, optimizer):
        for batch in tokens:
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), train


def test_commands_exist():
    (file,) = set(re.findall(r"dist/(\S+?\.whl)", README))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert file == f"{project['name']}-{project['version']}-py3-none-any.whl"
    assert set(re.findall(r"\.whl\[(\w+)\]", README)) <= set(project["optional-dependencies"])
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"\bmake (\w+)", README)) <= targets


def test_the_line_of_totals_counts_every_statement_and_erratum():
    papers = [paper_records(page.stem) for page in (ROOT / "docs" / "papers").glob("*.md")]
    (line,) = re.findall(r"<!-- verdicts: .*? -->\n(.*)\n<!-- end", README)
    statements, errata = (sum(map(int, re.findall(r"\b(\d+) [a-z]", part))) for part in line.split(" Errata: "))
    assert statements == sum(len(paper.statements) for paper in papers)
    assert errata == sum(len(paper.errata) for paper in papers)

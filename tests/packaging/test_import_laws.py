"""Who may import whom: the contracts of import-linter in pyproject.toml."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint(*options):
    command = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command as c; c()"]
    return subprocess.run(
        [*command, "--no-cache", *options], cwd=ROOT, capture_output=True, text=True, check=False, env=None
    )


def test_the_laws_are_kept():
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr


ROOMS = ["measure", "models", "flow", "theory", "studies", "ranks", "training", "plot", "store"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_stands_under_a_law(room):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert any(f"saddlescope.{room}" in contract.get("source_modules", []) for contract in contracts)

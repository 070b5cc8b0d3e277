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


def test_a_broken_law_would_be_seen(tmp_path):
    config = tmp_path / "laws.toml"
    config.write_text(
        '[tool.importlinter]\nroot_packages = ["saddlescope"]\n'
        '[[tool.importlinter.contracts]]\nname = "broken"\ntype = "forbidden"\n'
        'source_modules = ["saddlescope.cli"]\nforbidden_modules = ["saddlescope._shared.errors"]\n'
    )
    done = lint("--config", str(config))
    assert done.returncode == 1
    assert "broken" in done.stdout


ROOMS = ["measure", "models", "flow", "theory", "studies", "ranks", "training", "plot", "store"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_stands_under_a_law(room):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert any(f"saddlescope.{room}" in contract.get("source_modules", []) for contract in contracts)

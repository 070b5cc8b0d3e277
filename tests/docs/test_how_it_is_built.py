"""docs/how-it-is-built.md: every subpackage is in its table, and its import rules are contracts that are tested."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-it-is-built.md").read_text()


def test_every_subpackage_is_in_the_table():
    subpackages = {
        folder.name for folder in (ROOT / "src" / "saddlescope").iterdir() if (folder / "__init__.py").exists()
    }
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == subpackages


def test_the_import_rules_are_contracts():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = {
        (source.removeprefix("saddlescope."), target.removeprefix("saddlescope."))
        for contract in contracts
        for source in contract.get("source_modules", [])
        for target in contract.get("forbidden_modules", [])
    }
    assert {"type": "independence", "modules": ["saddlescope.theory", "saddlescope.flow"]}.items() <= contracts[
        0
    ].items()
    for rule in [
        ("ranks", "jax"),
        ("training", "jax"),
        ("theory", "torch"),
        ("plot", "flow"),
        ("gallery", "flow"),
        ("measure", "jax"),
        ("_shared", "measure"),
    ]:
        assert rule in forbidden, rule
    assert {("flow", "models"), ("flow", "measure"), ("models", "theory")} <= forbidden


def test_files_that_it_names_exist():
    for name in re.findall(r"`(tests/[\w/.]+|pyproject\.toml)`", PAGE):
        assert (ROOT / name).exists()

"""The examples in the docstrings are run."""

import doctest
import importlib
from pathlib import Path

import jax
import pytest

import saddlescope

SOURCE = Path(saddlescope.__file__).parent
MODULES = [
    ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted(SOURCE.rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    with jax.enable_x64(False):  # as for users
        result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples():
    assert len(MODULES) >= 20

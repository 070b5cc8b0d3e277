"""The examples in the docstrings are run."""

import doctest
import importlib
import pkgutil

import jax
import pytest

import saddlescope

MODULES = [module.name for module in pkgutil.walk_packages(saddlescope.__path__, "saddlescope.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    with jax.enable_x64(False):  # as for users
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert examples >= 20

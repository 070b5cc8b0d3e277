"""Fixture of the tests of one entry, which their module names in NAME."""

import pytest


@pytest.fixture
def run(request, quick_run):
    """Return a copy of the quick run of the module's entry."""
    return quick_run(request.module.NAME).run.copy(deep=True)

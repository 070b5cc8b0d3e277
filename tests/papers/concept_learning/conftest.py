"""Fixtures for tests of one entry each, which name it as NAME and ENTRY."""

import pytest

from saddlescope._shared.errors import InputError


@pytest.fixture
def run(request, quick_run):
    """Return a copy of the quick run of the module's entry, free to be changed."""
    return quick_run(request.module.NAME).run.copy(deep=True)


@pytest.fixture
def refused(request):
    """Return a check that settings raise InputError, given with a part of its message each."""

    def check(*cases):
        for settings, sentence in cases:
            with pytest.raises(InputError, match=sentence):
                request.module.ENTRY.configure("quick", settings)

    return check

"""A results folder of the tiny entry in three sizes, and the gallery built from it."""

import pytest

import tiny
from saddlescope import papers
from saddlescope.gallery import build


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Stored runs: quick, default, and one with a setting."""
    out = tmp_path_factory.mktemp("results")
    for size, settings in (("quick", {}), ("default", {}), ("default", {"stages": "6"})):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("saddlescope.papers.entry.find", tiny.find)
            papers.reproduce(tiny.ENTRY, out=out, size=size, settings=settings)
    return out


@pytest.fixture(scope="session")
def site(results, tmp_path_factory):
    """A gallery, in a folder whose name must be quoted in addresses."""
    folder = tmp_path_factory.mktemp("a gallery # 100%") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.papers.entry.find", tiny.find)
        build(results, folder)
    return folder

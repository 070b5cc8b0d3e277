"""Runs and sweeps of the tiny entry in one folder, the gallery built from it, and a browser that visits pages."""

import dataclasses

import pytest

import tiny
from saddlescope._shared.errors import InputError
from saddlescope.gallery import build
from saddlescope.reproduction import reproduce
from saddlescope.sweeps import Grid, sweep

FAILURE = f"no such thing as {tiny.HOSTILE}"
GRIDS = {  # one over two axes with failed points, one over an axis and seeds
    "words": (["stages=2,3,6", f"words=plain,{tiny.HOSTILE}"], ""),
    "seeds": (["stages=2,6"], "0:3"),
}


def fails_at_three(params, context):
    if params.stages == 3:
        raise InputError(FAILURE)
    return tiny.run(params, context)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Store runs, quick, default and one with a setting, and two sweeps; return their folder and the sweeps."""
    out = tmp_path_factory.mktemp("results")
    entry = dataclasses.replace(tiny.ENTRY, run=fails_at_three)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", lambda name: entry)
        for size, settings in (("quick", {}), ("default", {}), ("default", {"stages": "6"})):
            reproduce(entry, out=out, size=size, settings=settings)
        grids = {
            name: Grid.parse(entry, words, seeds=seeds, settings={"scales": "0.1,0.01"})
            for name, (words, seeds) in GRIDS.items()
        }
        return out, {name: sweep(entry, grid, out=out, processes=1) for name, grid in grids.items()}


@pytest.fixture(scope="session")
def results(made):
    """Return the folder of all runs and sweeps."""
    return made[0]


@pytest.fixture(scope="session")
def swept(made):
    """Return the sweeps by name."""
    return made[1]


@pytest.fixture(scope="session")
def site(results, tmp_path_factory):
    """Build a gallery in a folder whose name must be quoted in addresses."""
    folder = tmp_path_factory.mktemp("a gallery # 100%") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", tiny.find_entry)
        build(results, folder)
    return folder


@pytest.fixture
def visit(new_page, trouble):
    """Open a page and wait for its plots; every request must succeed."""

    def open_page(address, **options):
        page = new_page(**options)
        # what is saved to a file counts as an aborted visit
        page.on("requestfailed", lambda r: r.url.endswith(".nc") or trouble.append(f"{r.url}: {r.failure}"))
        page.on("response", lambda answer: answer.status < 400 or trouble.append(f"{answer.url}: {answer.status}"))
        page.goto(address)
        if page.locator("section.figure").count() and options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-drawn]", state="attached")
        return page

    return open_page

"""A results folder of the tiny entry in three sizes, the gallery built from it, and a browser that visits pages."""

import pytest

import tiny
from saddlescope.gallery import build
from saddlescope.reproduction import reproduce


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Stored runs: quick, default, and one with a setting."""
    out = tmp_path_factory.mktemp("results")
    for size, settings in (("quick", {}), ("default", {}), ("default", {"stages": "6"})):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("saddlescope.reproduction.entry.find_entry", tiny.find_entry)
            reproduce(tiny.ENTRY, out=out, size=size, settings=settings)
    return out


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

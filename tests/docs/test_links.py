"""Every relative link and anchor of the README, the changelog and all pages leads somewhere; others are well-formed."""

import json
import re
from urllib.parse import urlsplit

import pytest
from documentation import DOCS, ROOT, WRITTEN, extension

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted({*DOCS.rglob("*.md"), *WRITTEN}),
    *sorted(DOCS.rglob("*.ipynb")),
]
CODE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")


def _whole(page):
    """Return a page's Markdown; of one that exists only while the documentation is built, what is written then."""
    return WRITTEN[page] if page in WRITTEN else page.read_text()


def _text(page):
    """Return a page's Markdown without its code."""
    text = _whole(page)
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return CODE.sub("", text)


def _anchors(page):
    """Return the anchors of a page's headings, as GitHub and MyST name them; the first of two equal ones."""
    headings = re.findall(r"^#{1,3} (.+)$", re.sub(r"^```.*?^```", "", _whole(page), flags=re.S | re.M), re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def _fault(page, target):
    """Return the fault of a link, or an empty string."""
    if "://" in target:
        parts = urlsplit(target)
        return "" if parts.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc) else "is malformed"
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.is_relative_to(ROOT) or not (file.exists() or file in WRITTEN):
        return "is no file"
    return "is no heading there" if anchor and anchor not in _anchors(file) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    faults = [f"{target} {fault}" for target in LINK.findall(_text(page)) if (fault := _fault(page, target))]
    assert not faults


def test_every_page_is_in_one_table_of_contents():
    contents = extension("contents").CONTENTS
    listed = [page for pages in contents.values() for page in pages]
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", _whole(page), re.S | re.M):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed += [str((page.parent / name).resolve().relative_to(DOCS)) for name in names]
    pages = [str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if page.is_relative_to(DOCS)]
    assert sorted(listed) == sorted({*pages, "results"} - {"index"})  # computed when the site is built


def test_entries_that_pages_name_exist():
    from saddlescope.reproduction import entry_names

    papers = {name.partition("/")[0] for name in entry_names()}
    whole = re.compile(rf"`((?:{'|'.join(papers)})/[\w-]+)`")
    for page in PAGES:
        assert set(whole.findall(_whole(page))) <= set(entry_names()), page

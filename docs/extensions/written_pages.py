"""The pages of all verdicts and of the board, too long to be kept: they exist while the documentation is built."""

import json
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]


def write_pages(app: Sphinx) -> None:
    """Write verdicts.md and board.md from verdicts.json and benchmarks.json."""
    sys.path[:0] = [str(DOCS.parent / folder) for folder in ("scripts", "benchmarks")]
    from page import page
    from tables import every_claim

    for name, make, stored in (("verdicts", every_claim, "verdicts"), ("board", page, "benchmarks")):
        (DOCS / f"{name}.md").write_text(make(json.loads((DOCS / f"{stored}.json").read_text())))


def remove_pages(app: Sphinx, error: Exception | None) -> None:
    """Remove them: no other tool reads them."""
    for name in ("verdicts", "board"):
        (DOCS / f"{name}.md").unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources, and remove them at the end."""
    app.connect("builder-inited", write_pages)
    app.connect("build-finished", remove_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The pages of all verdicts and of the board, too long to be kept: written when the documentation is built."""

import json
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]


def write_pages(app: Sphinx) -> None:
    """Write verdicts.md and board.md from verdicts.json and benchmarks.json, where they differ."""
    sys.path[:0] = [str(DOCS.parent / folder) for folder in ("scripts", "benchmarks")]
    from page import page
    from tables import every_claim

    for name, make, stored in (("verdicts", every_claim, "verdicts"), ("board", page, "benchmarks")):
        text = make(json.loads((DOCS / f"{stored}.json").read_text()))
        file = DOCS / f"{name}.md"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

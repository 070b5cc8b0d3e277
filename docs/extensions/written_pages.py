"""Pages that exist while the docs are built: verdicts, errata, board, models, and plain references.

So does the page of other papers' results, which computes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
RESULTS = DOCS / "results.md"
STUB = """# {name}

```{{eval-rst}}
.. automodule:: saddlescope.{name}
   :members:
   :imported-members:
```
"""
PLAIN = ("explore", "flow", "gallery", "loss", "measure", "studies", "sweeps")  # references without words of their own


def written_pages() -> dict[Path, str]:
    """Return verdicts.md, errata.md, board.md and models.md, made from what is stored, and the plain references."""
    sys.path[:0] = folders = [str(DOCS.parent / folder) for folder in ("scripts", "benchmarks")]
    try:
        from models_page import models_page
        from page import page
        from tables import all_errata, every_claim
    finally:
        del sys.path[: len(folders)]
    made = {"verdicts": (every_claim, "verdicts"), "board": (page, "benchmarks")}
    made |= {"models": (models_page, "models")}
    stored_pages = {
        DOCS / f"{name}.md": make(json.loads((DOCS / f"{stored}.json").read_text()))
        for name, (make, stored) in made.items()
    }
    stored_pages[DOCS / "errata.md"] = all_errata()
    stored_pages = {file: f"---\nnosearch: true\n---\n\n{text}" for file, text in stored_pages.items()}
    return stored_pages | {DOCS / "reference" / f"{name}.md": STUB.format(name=name) for name in PLAIN}


def write_pages(app: Sphinx) -> None:
    """Write the pages."""
    for file, text in written_pages().items():
        file.write_text(text)
    sys.path.insert(0, str(DOCS.parent))
    from tests.results_of_papers import page

    RESULTS.write_text(page())


def remove_pages(app: Sphinx, error: Exception | None) -> None:
    """Remove them: no other tool reads them."""
    for file in (*written_pages(), RESULTS):
        file.unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for its sources, and remove them at the end."""
    app.connect("builder-inited", write_pages)
    app.connect("build-finished", remove_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Every table of numbers has a link that downloads it as CSV."""

import csv
import io
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

LEAST = 3  # rows below the heading; smaller tables are read at a glance
FOLDER = "_tables"


def rows_of(table: nodes.table) -> list[list[str]]:
    """Return the cells of a table as text, the heading first; an image is its description."""
    return [[_text(entry) for entry in row.findall(nodes.entry)] for row in table.findall(nodes.row)]


def _text(entry: nodes.entry) -> str:
    texts = [node["alt"] if isinstance(node, nodes.image) else node.astext() for node in entry.findall(_leaf)]
    return " ".join(" ".join(texts).split())


def _leaf(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Text) or (isinstance(node, nodes.image) and "alt" in node)


def _link_tables(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """Write the tables of a page beside it, and put a link below each."""
    if app.builder.format != "html":
        return
    tables = [table for table in doctree.findall(nodes.table) if "autosummary" not in table["classes"]]
    tables = [table for table in tables if len(rows_of(table)) > LEAST]
    for number, table in enumerate(tables, 1):
        file = Path(app.outdir) / FOLDER / f"{name}-{number}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows_of(table))
        file.write_text(text.getvalue(), encoding="utf-8")
        address = "../" * app.builder.get_target_uri(name).count("/") + f"{FOLDER}/{name}-{number}.csv"
        link = f'<p class="table-file"><a href="{address}" download>Download this table (CSV)</a></p>'
        table.parent.insert(table.parent.index(table) + 1, nodes.raw("", link, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Link the tables of every page."""
    app.connect("doctree-resolved", _link_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

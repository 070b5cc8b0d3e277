"""The table of contents of the site, so that the first page is plain Markdown, as a forge shows it."""

from sphinx.application import Sphinx

CONTENTS = {
    "Start here": (
        "installation",
        "stages",
        "tutorials/theorist",
        "tutorials/full-matrices",
        "tutorials/units",
        "tutorials/transformers",
        "tutorials/reader",
    ),
    "Guides": (
        "reproduce",
        "usage",
        "norms",
        "tracker",
        "training-loops",
        "models",
        "training-runs",
        "sweeps",
        "explore",
    ),
    "The papers": (
        "papers/gradual-rank",
        "papers/deep-relu",
        "papers/concept-learning",
        "papers/softmax-attention",
        "papers/beyond",
        "findings",
        "verdicts",
        "results",
        "errata",
    ),
    "Derivations": ("theory", "finite_scale", "full_weights", "escape", "concepts", "attention"),
    "Project": ("how-it-is-built", "contributing", "stability", "benchmarks", "board"),
    "Reference": ("reference/index",),
}


def _add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        for caption, pages in CONTENTS.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the tables to the first page when it is read."""
    app.connect("source-read", _add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

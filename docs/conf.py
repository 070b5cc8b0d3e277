"""Sphinx configuration: Markdown pages, the reference from the docstrings."""

project = "saddlescope"
author = "The saddlescope developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
html_theme = "furo"
html_title = "saddlescope"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_ivar = True


def _plain_text(app, what, name, obj, options, lines):
    """The docstrings write |x| for a modulus and *labels for axes, both of which reStructuredText reads."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[place] = line.replace("|", r"\|").replace("*labels", r"\*labels")


def setup(app):
    """Registers the reading of docstrings."""
    app.connect("autodoc-process-docstring", _plain_text)

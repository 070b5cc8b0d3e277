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


def _plain_bars(app, what, name, obj, options, lines):
    """The docstrings write |x| for an absolute value, which reStructuredText takes for a substitution."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines]


def setup(app):
    """Registers the reading of docstrings."""
    app.connect("autodoc-process-docstring", _plain_bars)

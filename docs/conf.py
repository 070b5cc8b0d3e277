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
nitpicky = False

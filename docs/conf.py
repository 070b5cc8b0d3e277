"""Sphinx configuration: Markdown pages and the reference from the docstrings.

The build fails where a page is in no table of contents, where a link leads nowhere,
where a public name of the package is missing from the reference (`public_names.py`),
and where a page loads from another host (`own_host.py`): the site works without a
network, from any folder of any host. The tests run the code of the pages.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "saddlescope"
author = "The saddlescope developers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.githubpages",  # .nojekyll: folders whose names begin with _ are served
    "commands",
    "contents",
    "own_host",
    "own_mathjax",
    "public_names",
    "table_files",
    "written_pages",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3  # headings can be linked to by their words, as on GitHub
mathjax_path = "mathjax.js"
html_static_path = ["../build/docs-static"]
html_theme = "furo"
html_title = "saddlescope"
html_show_copyright = False
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
autodoc_typehints_description_target = (
    "documented_params"  # the fields of a dataclass stand there once
)
default_role = "literal"  # what docstrings have between single backticks
autodoc_member_order = "bysource"
autosummary_generate = False  # its tables only: the pages are those of autodoc
napoleon_use_ivar = True


def _plain_text(app, what, name, obj, options, lines):
    """Escape |x| for a modulus and *labels for axes, which reStructuredText reads."""
    for place, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[place] = line.replace("|", r"\|").replace("*labels", r"\*labels")


def setup(app):
    """Registers the reading of docstrings."""
    app.connect("autodoc-process-docstring", _plain_text)

"""Pages of the documentation, those that are written while it is built, and the extensions that build it."""

import importlib.util
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = runpy.run_path(str(DOCS / "extensions" / "written_pages.py"))["written_pages"]()
"""Text of the pages that exist only while the documentation is built, by their files."""


def extension(name):
    """Return an extension of Sphinx as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

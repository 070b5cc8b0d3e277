"""Code shown in README and docs: each block runs alone, and prints what the page shows below it.

python tests/snippets.py docs/usage.md      # write the outputs of a page below its blocks
"""

import ast
import contextlib
import io
import math
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_RUN = {
    (
        "README.md",
        "train(model, optimizer)",
    ),  # they need other machines, or what the commands above them store; the second entry is in the block
    ("docs/sweeps.md", "SLURMCluster"),
    ("docs/tutorials/reader.md", "Reproduction.open"),
    ("docs/contributing.md", "class Params(EntryParams)"),
}
"""Blocks that tests run in another way."""

_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```$)?", re.M | re.S)
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
RELATIVE, ABSOLUTE = 2e-3, 1e-6  # of numbers: solvers stop at tolerances, and processors round differently


@dataclass(frozen=True)
class Snippet:
    """A block of Python on a page.

    Attributes:
        page: its path from the root.
        code: its text.
        shown: the output that the page shows below it; None if it shows none.
    """

    page: str
    code: str
    shown: str | None

    @property
    def runs(self) -> bool:
        """False for one of `NOT_RUN`."""
        return not any(self.page == page and words in self.code for page, words in NOT_RUN)

    @property
    def prints(self) -> bool:
        """True if the block calls `print` at its top level, or in a loop or with statement there."""
        calls = (node for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Call))
        return any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls)


def pages() -> list[str]:
    """Return every page of Markdown that has Python, by its path from the root."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files if "```python\n" in file.read_text(encoding="utf-8")]


@cache
def snippets(page: str) -> tuple[Snippet, ...]:
    """Return the blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return tuple(Snippet(page, code, shown or None) for code, shown in _BLOCK.findall(text))


def snippet(page: str, words: str) -> Snippet:
    """Return the one block of a page that contains these words."""
    (found,) = (one for one in snippets(page) if words in one.code)
    return found


def run(one: Snippet, folder: Path | None = None) -> dict:
    """Run a block in a namespace of its own, compare its output, and return its names.

    Args:
        one: the block.
        folder: the working directory; None: a temporary one.
    """
    names, printed = executed(one, folder)
    compare(one, printed)
    return names


def run_page(page: str) -> tuple[dict, str]:
    """Run all blocks of a page in order in one namespace, compare their outputs, and return names and output."""
    names: dict = {}
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        for one in snippets(page):
            names, printed = executed(one, Path(folder), names)
            compare(one, printed)
            outputs.append(printed)
    return names, "".join(outputs)


def compare(one: Snippet, printed: str) -> None:
    """Raise unless a block printed what the page shows."""
    if one.shown is not None:
        difference = differs(printed, one.shown)
        assert difference is None, f"{one.page}: {difference}\n{printed}"


def executed(one: Snippet, folder: Path | None = None, names: dict | None = None) -> tuple[dict, str]:
    """Run a block, in a namespace of its own unless one is given, and return its names and its output."""
    names = {"__name__": "__main__"} if names is None else names
    output = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as temporary,
        contextlib.redirect_stdout(output),
        contextlib.chdir(folder or temporary),
    ):
        exec(compile(one.code, one.page, "exec"), names)
    return names, output.getvalue()


def differs(printed: str, shown: str) -> str | None:
    """Return the first difference between two outputs; None if words are equal and numbers are close."""
    ours, theirs = (text.split() for text in (printed, shown))
    for word, expected in zip(ours, theirs, strict=False):
        if _NUMBER.sub("#", word) != _NUMBER.sub("#", expected):
            return f"{word!r} was printed, {expected!r} is shown"
        for a, b in zip(_NUMBER.findall(word), _NUMBER.findall(expected), strict=True):
            x, y = (float(number.replace("−", "-")) for number in (a, b))
            if not (math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(x) and math.isnan(y))):
                return f"{a} was printed, {b} is shown"
    return None if len(ours) == len(theirs) else f"{len(ours)} words were printed, {len(theirs)} are shown"


def write(page: str) -> None:
    """Run all blocks of a page, and write their outputs below them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for one in filter(lambda one: one.runs and one.prints, snippets(page)):
        _, printed = executed(one)
        block = f"```python\n{one.code}```\n"
        below = r"\s*```text\n.*?^```\n" if one.shown is not None else ""
        shown = f"\n```text\n{printed.rstrip()}\n```\n" if printed.strip() else ""
        text = re.sub(re.escape(block) + below, lambda _, new=block + shown: new, text, count=1, flags=re.M | re.S)
    (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        write(given)

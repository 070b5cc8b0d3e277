"""Report the public names that the tests use, at the end of `make test`.

Public is what the packages name in `__all__`, with the public methods of its classes, but not the entries of papers. A
name counts as used when a test (or an example, or code on a page) names it, a class also when a field or method of its
own is named, as results are seldom called by their type. That says that somebody thought of it, not that every line of
it is run: `make coverage` measures lines, which takes half as long again.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import saddlescope

ROOT = Path(__file__).parents[1]


def public() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """For each public name its public methods and properties, where it is a class of ours; and its fields."""
    found: dict[str, set[str]] = {}
    fields: dict[str, set[str]] = {}
    modules = pkgutil.walk_packages(saddlescope.__path__, "saddlescope.")
    packages = [m.name for m in modules if m.ispkg and not m.name.startswith("saddlescope.papers.")]
    for package in ["saddlescope", *packages]:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            methods = found.setdefault(name, set())
            if inspect.isclass(value) and value.__module__.startswith("saddlescope"):
                fields[name] = {field for field in inspect.get_annotations(value) if not field.startswith("_")}
                methods |= {
                    method
                    for method, held in vars(value).items()
                    if not method.startswith("_")
                    and (inspect.isfunction(held) or isinstance(held, property | classmethod | staticmethod))
                }
    return found, fields


def named() -> set[str]:
    """Every name that a test, an example, or code on a page uses."""
    words: set[str] = set()
    for file in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                words |= {part for alias in node.names for part in alias.name.split(".")}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # programs run in their own process
                words |= set(re.findall(r"\w+", node.value))
    for page in (ROOT / "docs").rglob("*.md"):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            words |= set(re.findall(r"\w+", block))
    return words


def main() -> None:
    """Prints the counts, and what is missing."""
    words, (names, fields) = named(), public()
    unused = sorted(name for name in names if not words & {name, *names[name], *fields.get(name, ())})
    methods = {f"{name}.{method}": method for name, held in names.items() for method in held}
    untold = sorted(whole for whole, method in methods.items() if method not in words)
    print(f"Public surface: {len(names) - len(unused)} of {len(names)} names are used by tests, ", end="")
    print(f"and {len(methods) - len(untold)} of {len(methods)} methods and properties.")
    if untold:
        print(f"  methods that no test names: {', '.join(untold)}")
    if unused:
        print(f"  names that no test uses: {', '.join(unused)}")


if __name__ == "__main__":
    main()

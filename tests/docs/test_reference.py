"""The reference has every public name, from `__all__` of every package, and every command of the command line."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from types import GenericAlias

import pytest
from documentation import DOCS, WRITTEN, extension

PAGES = {page.stem: page.read_text() for page in (DOCS / "reference").glob("*.md")}
PAGES |= {page.stem: text for page, text in WRITTEN.items() if page.parent.name == "reference"}


@pytest.fixture(scope="module")
def public():
    return extension("public_names")


def _documented():
    """Return the names that the pages' directives document: members of modules, as autodoc finds them, and others."""
    names = []
    for text in PAGES.values():
        for module, options in re.findall(r"\.\. automodule:: (\S+)\n((?:   :.*\n)*)", text):
            found = import_module(module)
            left_out = re.findall(r"[\w]+", "".join(re.findall(r":exclude-members:(.*)", options)))
            for name, member in ((name, getattr(found, name)) for name in dir(found)):
                reported = (
                    name in getattr(found, "__all__", [name]) and not name.startswith("_") and name not in left_out
                )
                if callable(member) and not isinstance(member, GenericAlias):
                    reported &= ":imported-members:" in options or member.__module__ == module
                else:  # a constant with its own words below it
                    reported &= bool(re.search(rf'^{name}\b.* = .*\n"""', inspect.getsource(found), re.M))
                names += [f"{module}.{name}"] * reported
        names += re.findall(r"\.\. auto(?:function|exception|data):: (\S+)", text)
        names += [f"{m}.{name}" for name, m in re.findall(r"\.\. py:data:: (\w+)\n   :module: (\S+)", text)]
    return names


def test_every_public_name_is_in_the_reference(public):
    assert len(public.public_names()) > 250
    assert public.absent(_documented()) == []


def test_every_command_has_a_section():
    from saddlescope.cli import app

    commands = dict(extension("command_list").commands())
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names <= {words.partition(" ")[2] for words in commands}
    assert "saddlescope data get" in commands
    assert all(command.help and all(p.help for p in command.params) for command in commands.values())
    assert "```{commands}" in PAGES["commands"]


@pytest.mark.slow
def test_the_pages_are_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in DOCS.rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(DOCS)).with_suffix(".html").exists()

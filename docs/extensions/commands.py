"""The directive `commands`: every command of the command line, its arguments and options, as its `--help` has them."""

import re
from typing import Any

from command_list import commands
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Commands(SphinxDirective):
    """One section a command: what it does, how it is called, and a list of its arguments and options."""

    def run(self) -> list[nodes.Node]:
        return [self._section(words, command) for words, command in commands()]

    def _section(self, words: str, command: Any) -> nodes.section:
        section = nodes.section(ids=[words.replace(" ", "-")], names=[words])
        section += nodes.title(text=words)
        for paragraph in (command.help or "").split("\n\n"):
            section += _paragraph(" ".join(paragraph.split()))
        reported = [p for p in command.params if not getattr(p, "hidden", False)]
        called = [words, *(_called(p) for p in reported)]
        section += nodes.literal_block(text=" ".join(called), language="console")
        section += _listed(reported)
        self.state.document.note_implicit_target(section, section)
        return section


def _called(parameter: Any) -> str:
    """A parameter as it stands in the line that calls the command."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    return "[" + _option(parameter) + "]" if not parameter.required else _option(parameter)


def _option(parameter: Any) -> str:
    name = "/".join([*parameter.opts, *getattr(parameter, "secondary_opts", [])])
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or parameter.name.upper()}"
    return f"{name}{value}"


def _listed(parameters: list[Any]) -> nodes.definition_list:
    """Each parameter with its help, its default and the environment variable that can stand for it."""
    found = nodes.definition_list()
    for parameter in parameters:
        argument = parameter.param_type_name == "argument"
        term = nodes.term("", "", nodes.literal(text=_called(parameter) if argument else _option(parameter)))
        reported = parameter.help or ""
        default = parameter.default
        if default not in (None, False, True, "") and not argument:
            reported += f" Default: {default}."
        if parameter.envvar:
            reported += f" Also taken from the environment variable {parameter.envvar}."
        found += nodes.definition_list_item("", term, nodes.definition("", _paragraph(reported)))
    return found


def _paragraph(text: str) -> nodes.paragraph:
    """A paragraph in which options, and what stands between backticks, are code."""
    found = nodes.paragraph()
    for k, part in enumerate(re.split(r"(`[^`]*`|(?<!\S)--[\w-]+)", text)):
        found += nodes.literal(text=part.strip("`")) if k % 2 else nodes.Text(part)
    return found


def setup(app: Any) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}

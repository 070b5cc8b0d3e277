"""The commands of the reader's tutorial can be given, and print what the page shows."""

import re
from pathlib import Path

import pytest

from saddlescope.cli import main
from saddlescope.reproduction import find_entry

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.fixture
def reader():
    """Return the commands of the reader's page with the last line shown of each, and its Python."""
    page = (TUTORIALS / "reader.md").read_text()
    blocks = re.findall(r"```(console|text|python)\n(.*?)```", page, re.S)
    steps: list[list[str]] = []
    before = ""
    for kind, text in blocks:
        if kind == "console":
            steps += [[line.removeprefix("saddlescope "), ""] for line in text.splitlines()]
        elif kind == "text" and before == "console":
            steps[-1][1] = text.strip()
        before = kind
    return steps, [text for kind, text in blocks if kind == "python"]


def test_a_readers_commands_can_be_given(reader):
    steps, _ = reader
    for command, _ in steps:
        words = command.split()
        if words[0] == "run":
            settings = dict(words[k + 1].split("=", 1) for k, word in enumerate(words) if word == "--set")
            assert find_entry(words[1]).configure(words[words.index("--size") + 1], settings)


@pytest.mark.slow
def test_a_reader_sees_what_the_page_shows(reader, tmp_path, monkeypatch, capsys, types_unchecked):
    monkeypatch.chdir(tmp_path)
    steps, blocks = reader
    with types_unchecked():
        _followed(steps, blocks, capsys)
    assert (tmp_path / "gallery" / "index.html").exists()


def _followed(steps, blocks, capsys):
    assert sum(bool(shown) for _, shown in steps) == 3
    for command, shown in steps:
        status = main(command.split())
        reported, faults = capsys.readouterr()
        assert status in (0, 1, 3), f"{command}: {faults}"
        for line in shown.splitlines():
            assert line in reported
    exec(blocks[0], {})  # reads what the commands stored
    assert "agrees" in capsys.readouterr().out

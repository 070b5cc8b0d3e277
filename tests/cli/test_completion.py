"""Shell completion at the tab key, and its installation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saddlescope import cli
from saddlescope.reproduction import entry_names, find_entry

FIGURE_2 = "gradual-rank/figure-2"


@pytest.fixture
def offered(monkeypatch, capsys):
    """Return the completions of the last word of a line, with the texts beside them."""

    def ask(line, shell="bash"):
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_SADDLESCOPE_COMPLETE", f"complete_{shell}")
        with pytest.raises(SystemExit) as left:
            cli.main([])
        assert not left.value.code
        return capsys.readouterr().out.split("\n")[:-1]

    return ask


def test_commands(offered):
    assert set(offered("saddlescope ")) >= {"list", "run", "check", "show", "gallery", "attention", "spectra", "data"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ru", ["run"]),
        *((f"{command} ", list(entry_names())) for command in ("run", "show")),
        ("show gradual-rank/figure-20", ["gradual-rank/figure-20"]),
        ("run nothing", [""]),
        (f"run {FIGURE_2} --size ", ["quick", "default", "reduced", "paper"]),
        (f"run {FIGURE_2} --size q", ["quick"]),
    ],
    ids=range(7),
)
def test_words_entries_and_sizes(offered, line, expected):
    assert offered(f"saddlescope {line}") == expected


@pytest.mark.parametrize("line", ["run {} --size quick --set ", "run {} --set ", "sweep {} --set ", "sweep {} --grid "])
def test_parameters_of_the_entry_typed_before(offered, line):
    fields = find_entry(FIGURE_2).parameters
    asked = f"saddlescope {line.format(FIGURE_2)}"
    assert offered(asked) == [f"{name}=" for name in fields]
    assert offered(asked + "se") == ["seed="]


def test_parameters_are_shown_with_their_descriptions(offered):
    (reported,) = offered(f"saddlescope run {FIGURE_2} --set se", "zsh")
    assert f'"seed=":"{find_entry(FIGURE_2).parameters["seed"].description}"' in reported


@pytest.mark.parametrize("line", ["saddlescope run --set ", "saddlescope run no/entry --set s", "saddlescope rnu "])
def test_nothing_where_there_is_nothing_to_offer(offered, line):
    assert not set(offered(line)) - {"", *offered("saddlescope ")}


def bash(program, *words, **home):
    """Run a program of bash in a home of its own."""
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    given = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SHELL": "/bin/bash"} | home
    command = ["bash", "--norc", "-c", program, "bash", sys.executable, *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


def test_bash_completes_a_line_with_the_script_it_is_shown(tmp_path):
    show = "from saddlescope.cli import main; main(['--show-completion'])"
    ask = """
        source <("$1" -c "$2")
        COMP_WORDS=(saddlescope run gradual-rank/figure-20); COMP_CWORD=2
        _saddlescope_completion saddlescope
        echo "${COMPREPLY[@]}"
    """
    done = bash(ask, show, HOME=str(tmp_path))
    assert done.stdout.split() == ["gradual-rank/figure-20"], done.stderr


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    install = "import sys; from saddlescope.cli import main; sys.exit(main(['--install-completion']))"
    done = bash('"$1" -c "$2"; exit $?', install, HOME=str(tmp_path / "file"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("Cannot use ")
    assert done.stderr.count("\n") == 1

"""The command line in odd environments: each ends as documented, without a traceback."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from saddlescope import cli
from saddlescope.reproduction import reproduce

TINY = [sys.executable, str(Path(__file__).parents[1] / "tiny.py")]
PROJECT = [sys.executable, "-m", "saddlescope"]
COMMANDS = "".join(
    f'{name}() {{ {shlex.join(words)} "$@"; }}\n' for name, words in {"saddlescope": PROJECT, "tiny": TINY}.items()
)


def shell(line, folder, **environment):
    """Run a line of the shell in which `saddlescope` is the command, and `tiny` the one with the tiny entry."""
    words, given = ["bash", "-c", COMMANDS + line], os.environ | environment
    return subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, check=False)


def test_closed_streams_and_an_unknown_backend_of_matplotlib_change_no_status_and_no_result(tmp_path):
    for line, status, shown in [
        ("saddlescope list >&-", 0, ""),
        ("saddlescope list 2>&-", 0, "gradual-rank/figure-2"),
        ("saddlescope list nothing 2>&-", 2, ""),
        ("tiny run tiny/staircase --out a <&- >&- 2>&-", 0, ""),
        ("tiny gallery a --site b <&- >&- 2>&-", 0, ""),
        ("tiny check a", 1, "fails"),  # the file has no foreign bytes
    ]:
        done = shell(line, tmp_path, MPLBACKEND="nonsense")  # which changes nothing either
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), (line, done.stderr)
        assert shown in done.stdout
    assert (tmp_path / "b" / "index.html").is_file()


@pytest.fixture(autouse=True)
def buffered(monkeypatch):
    """Buffer the standard streams, as for users: what they refuse, Python would write again as it exits."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def test_a_full_standard_output_is_one_sentence(tmp_path):
    for words, unbuffered in (
        ("tiny run tiny/staircase", ""),
        ("saddlescope list", "1"),
        ("saddlescope check --help", ""),
    ):
        done = shell(f"{words} >/dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
        assert done.returncode == 2, words
        *_, last = done.stderr.splitlines()
        assert last == "Cannot write to the standard output: No space left on device. What the command stored is kept."
        assert "Traceback" not in done.stderr
    assert (tmp_path / "results/tiny/staircase/default.nc").is_file()


def test_a_full_standard_error_changes_nothing(tmp_path):
    done = shell("tiny run tiny/staircase 2>/dev/full", tmp_path)
    assert done.returncode == 0
    assert "Stored in results" in done.stdout
    assert shell("saddlescope list nothing 2>/dev/full", tmp_path).returncode == 2


def test_a_refusal_that_nobody_reads_has_its_status(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [*PROJECT, "list", "nothing"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=writer, check=False)
    os.close(writer)
    assert (done.returncode, done.stdout) == (2, b"")


def test_styles_in_a_terminal_and_letters_in_any_encoding(tmp_path):
    for environment in ({"FORCE_COLOR": "1", "PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}):
        done = shell("tiny run tiny/staircase --size quick > out", tmp_path, **environment)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert rb"\x1b" not in (tmp_path / "out").read_bytes()


def test_a_deleted_working_directory_is_one_sentence(tiny, tmp_path):
    reproduce(tiny, out=tmp_path / "results", size="quick")
    gone = "mkdir gone && cd gone && rmdir ../gone && "
    done = shell(gone + f"tiny gallery {tmp_path}/results", tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("The working directory was deleted. Change to another one, then rerun the command.\n")
    done = shell(gone + "tiny run tiny/staircase", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert shell(gone + "saddlescope list", tmp_path).returncode == 0


def test_settings_that_jax_refuses_are_one_sentence(tmp_path):
    for name in ("JAX_ENABLE_X64", "JAX_PLATFORMS", "XLA_FLAGS"):
        value = "--nonsense" if name == "XLA_FLAGS" else "nonsense"
        done = shell("saddlescope run gradual-rank/figure-2 --size quick", tmp_path, **{name: value})
        assert done.returncode == 2, done.stderr
        *before, sentence = done.stderr.splitlines()
        assert sentence.startswith(f"JAX refuses the environment variable {name}={value!r} (")
        assert sentence.endswith(f"Correct it, or run `unset {name}`.")
        assert all("preparing" in line or "%" in line for line in before), before


def python(program, *words, folder, options=()):
    """Run a program in which the module of the tiny entry can be imported."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    given["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *options, "-c", program, *words]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)


def test_without_assertions_and_docstrings(tmp_path):
    """Run all lines in one process: without its cache, Python compiles every library anew."""
    lines = {"run tiny/staircase": 0, "check results": 1, "gallery results": 0, "show tiny/staircase": 0}
    program = "import sys, tiny\nsys.stdout.reconfigure(errors='backslashreplace')\n"
    program += "from saddlescope import cli\nfrom saddlescope.reproduction import catalogue, entry\n"
    program += "entry.find_entry, catalogue.entry_names = tiny.find_entry, lambda: tiny.NAMES\n"
    program += "catalogue.entry_heading = lambda name: tiny.HEADING\n"
    program += "print(__debug__, *(cli.main(line.split()) for line in sys.argv[1:]))"
    done = python(program, *lines, folder=tmp_path, options=["-OO"])
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["False", *map(str, lines.values())], done.stdout


@pytest.mark.parametrize(("options", "reported"), [([], ""), (["-W", "default"], "of a library")])
def test_warnings_of_libraries_are_not_shown_unless_asked_for(options, reported, tmp_path):
    program = "import sys, warnings, logging; from saddlescope import cli; from saddlescope.cli import app\n"
    program += "@app.command()\ndef warn():\n"
    program += "    warnings.warn('of a library', DeprecationWarning)\n    warnings.warn('of a library')\n"
    program += "    logging.getLogger('library').error('of a library')\nsys.exit(cli.main())"
    done = python(program, "warn", folder=tmp_path, options=options)
    assert done.returncode == 0
    shown = done.stderr.replace("saddlescope warn: preparing\n", "")
    assert shown == "" if not reported else reported in shown


def test_a_long_command_first_says_that_it_is_at_work(tmp_path):
    command = [*PROJECT, "run", "gradual-rank/figure-2", "--size", "quick"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert running.stderr is not None
    try:
        first = running.stderr.readline()
        assert first.startswith(("saddlescope run: preparing", "gradual-rank/figure-2 (quick):"))
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


def _options(command, path=""):
    for parameter in command.params:
        yield f"{path} {parameter.opts[0]}", parameter.type_descriptor
    for name, inner in getattr(command, "commands", {}).items():
        yield from _options(inner, f"{path} {name}")


def test_every_number_on_the_command_line_is_read_by_one_rule():
    """Python's own conversions would read other digits and underscores."""
    options = dict(_options(typer.main.get_command(cli.app)))
    numbers = {name: of.parameter_info.parser for name, of in options.items() if of.annotation in (int, float)}
    assert {" attention --seed", " extract-lora --energy", " spectra --top", " sweep --processes"} <= set(numbers)
    assert {parser and parser.__module__ for parser in numbers.values()} == {"saddlescope.cli.options"}


@pytest.mark.parametrize("typed", ["1_0", "٣", "0x10", "1 0"])
@pytest.mark.parametrize(
    "line",
    [
        "run tiny/staircase --set stages={}",
        "run tiny/staircase --set scales=0.1,{}",
        "sweep tiny/staircase --grid stages={}",
        "sweep tiny/staircase --grid stages=0:{}",
        "sweep tiny/staircase --grid scales=log:1e-3:{}:3",
        "sweep tiny/staircase --grid scales=linear:1:2:{}",
        "sweep tiny/staircase --seeds {}",
        "attention tokens.npz --seed {}",
        "attention tokens.npz --log-until {}",
        "spectra a b --heads {}",
        "spectra a b --layout Separate(wk,wq,wv,wo,heads={})",
    ],
)
def test_digits_of_other_scripts_and_underscores_are_refused_where_text_has_numbers(
    line, typed, tiny, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("{}", typed) for word in line.split(" ")]
    assert cli.main(words) == 2
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert not any(tmp_path.iterdir())

"""Command line: parses arguments, calls the package, prints results.

Exit status: 0 if the command did its work, 2 if the input cannot be used (one sentence on stderr), 130 if interrupted,
70 for a defect of saddlescope itself. Of `check` and `run --check`: 1 if a printed claim fails, 3 if none fails but
another one is outside its bounds or undecided. Of `sweep`: 1 if some points are not finished.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from saddlescope._shared.errors import FlowError, InputError
from saddlescope._shared.outside_causes import outside_cause, require_xla_flags
from saddlescope.cli.attention import attention
from saddlescope.cli.completion import VARIABLE
from saddlescope.cli.data import data
from saddlescope.cli.explore import explore
from saddlescope.cli.extract_lora import extract_lora
from saddlescope.cli.lora import lora
from saddlescope.cli.process import drop_unwritten, prepare_process
from saddlescope.cli.reproductions import check, gallery, list_entries, run, show
from saddlescope.cli.spectra import spectra
from saddlescope.cli.stages import stages
from saddlescope.cli.sweep import sweep
from saddlescope.cli.terminal import announce, print_text, say, settle, written
from saddlescope.cli.watch import watch

_HELP = "In which stages does a neural network learn? Predictions, simulations and measurements, compared."
_STATUS = (
    "Exit status: 0 done, 2 input that cannot be used, 130 interrupted, 70 a defect of saddlescope. Of check and"
    " run --check: 1 a printed claim fails, 3 none fails but another one is outside its bounds or undecided."
)
_UNTOUCHED = "Interrupted; what is stored is unchanged."
_SIMULATING = ("run", "sweep", "explore", "attention")
_INSTANT = ("list", "data", "-h", "--help", "--version", "--install-completion", "--show-completion")
_PRINTING = {"-h", "--help", "--show-completion"}  # printed by the parser, which writes nothing else

# Errors of the system about a path that no command can use, or a disk; any other is a defect.
_SYSTEM = {getattr(errno, name) for name in ("EACCES", "EDQUOT", "EIO", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOSPC")}
_SYSTEM |= {errno.ENOTDIR, errno.EPERM, errno.EROFS}

app = typer.Typer(help=_HELP, epilog=_STATUS, context_settings={"help_option_names": ["-h", "--help"]})
app.command("list")(list_entries)
for _command in (run, sweep, check, show, gallery, explore, watch, attention, spectra, stages):
    app.command()(_command)
app.command("extract-lora")(extract_lora)
app.add_typer(data, name="data")
app.add_typer(lora, name="lora")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from saddlescope import __version__

        print_text(f"saddlescope {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `saddlescope`.

    Args:
        arguments: the words after the command's name; by default those of the process.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if arguments is None:
        prepare_process(compiles=words[0] in _SIMULATING)
        if words[0] not in _INSTANT and not {"-h", "--help"} & set(words) and VARIABLE not in os.environ:
            announce(f"saddlescope {words[0]}")
    status, sentence = _status_and_sentence(words)
    settle()
    if sentence:
        with suppress(BrokenPipeError):  # the status says it, too
            say(sentence)
    if arguments is None:
        drop_unwritten()
    return status


def _status_and_sentence(words: list[str]) -> tuple[int, str]:
    try:
        command = typer.main.get_command(app)
        if VARIABLE in os.environ:
            command.main(words, prog_name="saddlescope", complete_var=VARIABLE)  # answers the shell, and exits
        if words[0] in _SIMULATING:
            require_xla_flags()
        with (
            written() if _PRINTING & set(words) else nullcontext(),
            command.make_context("saddlescope", [*words]) as context,  # its `main` would catch interrupts first
        ):
            status = command.invoke(context)
        with written():
            sys.stdout.flush()
    except typer.Exit as leaving:
        return leaving.exit_code, ""
    except InputError as error:
        return 2, str(error)
    except FlowError as error:
        return 2, f"The simulation ended early. {error}"
    except typer.TyperException as error:
        return 2, _usage(error)
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        return 130, str(interrupt) or _UNTOUCHED
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        sys.stdout = None  # type: ignore[assignment]
        return 141, ""
    except OSError as error:
        if error.errno == errno.ENOENT and not _has_working_directory():
            return 2, "The working directory was deleted. Change to another one, then rerun the command."
        if error.errno not in _SYSTEM and "--install-completion" not in words:  # which writes the shell's own files
            return _defect()
        return 2, f"Cannot use {error.filename or 'a file'}: {error.strerror}. Give another path, or free some space."
    except Exception as error:
        if (sentence := outside_cause(error)) is None:
            return _defect()
        return 2, str(sentence)
    return status if isinstance(status, int) else 0, ""


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _defect() -> tuple[int, str]:
    """Return the exit status of an unexpected error, and its report."""
    after = "This is a defect of saddlescope; nothing stored is lost. Please report the lines above."
    return 70, f"{traceback.format_exc()}\n{after}"


def _usage(error: Exception) -> str:
    """Return a usage error as one sentence with the nearest names and the help command."""
    sentence = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "saddlescope"
    return f"{sentence}{'' if sentence.endswith(('.', '?', ')')) else '.'} Try: {path} --help"

"""The command line: parses, calls, prints.

Exit status: 0 when every claim is reproduced, 1 when one is refuted, 3 when none is refuted but one is undecided,
2 when the input cannot be used (one sentence on stderr), 130 when interrupted, 70 for a defect of saddlescope itself.
For `sweep`: 0 when all points are finished, 1 when some are not, whatever their verdicts.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from saddlescope._shared.errors import InputError
from saddlescope.cli.attention import attention
from saddlescope.cli.completion import VARIABLE
from saddlescope.cli.data import data
from saddlescope.cli.extract_lora import extract_lora
from saddlescope.cli.reproductions import check, gallery, list_entries, run, show
from saddlescope.cli.spectra import spectra
from saddlescope.cli.sweep import sweep
from saddlescope.cli.terminal import say

_HELP = "In which stages does a neural network learn? Predictions, simulations and measurements, held together."
_STATUS = (
    "Exit status: 0 all claims reproduced, 1 one refuted, 3 none refuted but one undecided, 2 input that cannot be"
    " used, 130 interrupted, 70 a defect of saddlescope."
)
_RESUMED = ("run", "sweep", "data")  # the commands that keep what they finished

# What a system says of a path that no command can use, or of a disk; other errors of it are ours.
_SYSTEM = {getattr(errno, name) for name in ("EACCES", "EDQUOT", "EIO", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOSPC")}
_SYSTEM |= {errno.ENOTDIR, errno.EPERM, errno.EROFS}

app = typer.Typer(help=_HELP, epilog=_STATUS, context_settings={"help_option_names": ["-h", "--help"]})
app.command("list")(list_entries)
for _command in (run, sweep, check, show, gallery, attention, spectra):
    app.command()(_command)
app.command("extract-lora")(extract_lora)
app.add_typer(data, name="data")


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        from saddlescope import __version__

        typer.echo(f"saddlescope {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `saddlescope`.

    Args:
        arguments: the words after the command's name; those of the process when they are not given.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        command = typer.main.get_command(app)
        if VARIABLE in os.environ:
            command.main(words, prog_name="saddlescope", complete_var=VARIABLE)  # answers the shell, and leaves
        with command.make_context("saddlescope", [*words]) as context:  # its `main` would catch interrupts before us
            status = command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as leaving:
        return leaving.exit_code
    except InputError as error:
        say(str(error))
        return 2
    except typer.TyperException as error:
        say(_usage(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        resumed = "goes on where it was" if words[0] in _RESUMED else "starts again: nothing of this one was written"
        say(f"Interrupted; the same command {resumed}.")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        sys.stdout = None  # type: ignore[assignment]
        return 141
    except OSError as error:
        if error.errno not in _SYSTEM and "--install-completion" not in words:  # which writes where the shell reads
            return _defect()
        say(f"Cannot use {error.filename or 'a file'}: {error.strerror}. Name another, or make room.")
        return 2
    except Exception:
        return _defect()
    return status if isinstance(status, int) else 0


def _defect() -> int:
    """Tells of an error that nobody expected."""
    traceback.print_exc()
    say("This is a defect of saddlescope; nothing stored is lost. Please report the lines above.")
    return 70


def _usage(error: Exception) -> str:
    """A usage error as one sentence with the nearest names and the place to read on."""
    told = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "saddlescope"
    return f"{told}{'' if told.endswith(('.', '?', ')')) else '.'} Try: {path} --help"

"""Options shared by several commands."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from saddlescope._shared import typed_numbers
from saddlescope._shared.errors import InputError

if TYPE_CHECKING:
    from saddlescope.store.loss_logs import LossLog

_N = TypeVar("_N", int, float)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Base = Annotated[
    Path,
    typer.Argument(metavar="BASE", help="The checkpoint at the start: a file or a folder."),
]
Matrices = Annotated[
    list[str] | None,
    typer.Option(
        "--matrices",
        metavar="PATTERN",
        help='Single matrices by name, such as "*mlp*"; may be repeated.',
    ),
]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        "--heads",
        metavar="[PATTERN=]N",
        help="Number of attention heads, if config.json is absent; with several towers one per tower, such as "
        '"*vision*=16".',
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="KEY", help='State dict to read from files that hold several, such as "ema".'),
]


Site = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Build a page of pictures in this folder; an earlier one is replaced."),
]
LossFile = Annotated[
    Path | None,
    typer.Option(
        "--loss",
        metavar="LOG",
        help="Draw the loss of this training log beside the ranks: CSV, JSON (also trainer_state.json), text, or "
        "TensorBoard's folder.",
    ),
]
LossColumn = Annotated[
    str | None, typer.Option("--column", metavar="NAME", help="Column of the loss in the log of --loss.")
]


def whole_number(text: object) -> int:
    """Return the value of an option that takes a whole number; defaults pass through it, too."""
    try:
        return typed_numbers.whole_number(str(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 3.") from None


def number(text: object) -> float:
    """Return the value of an option that takes a number; defaults pass through it, too."""
    try:
        return typed_numbers.number(str(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number, such as 0.5.") from None


def between(read: Callable[[object], _N], low: int, high: int | None = None) -> Callable[[object], _N]:
    """Return a reader of numbers from `low` to `high`."""

    def bounded(text: object) -> _N:
        value = read(text)
        if not (value >= low and (high is None or value <= high)):  # NaN is neither
            limits = f"at least {low}" if high is None else f"between {low} and {high}"
            raise typer.BadParameter(f"{text!r} must be {limits}.")
        return value

    return bounded


def read_loss_file(file: Path | None, column: str | None) -> "LossLog | None":
    """Return the loss of `--loss LOG --column NAME`; None without the options.

    Raises:
        InputError: a column without a log, or a log without this loss.
    """
    from saddlescope.store.loss_logs import read_loss

    if file is None and column is not None:
        raise InputError(f"column must name a column of a log; got {column!r} alone. Add --loss LOG.")
    return None if file is None else read_loss(file, column)


def parse_heads(given: list[str] | None) -> int | dict[str, int] | None:
    """Return the numbers of heads of `--heads N`, or of `--heads PATTERN=N` once or repeated.

    Raises:
        InputError: a number that is none, or a plain number beside others.
    """
    if not given:
        return None
    counts: dict[str, int] = {}
    for one in given:
        pattern, equals, count = one.rpartition("=")
        if not (count.strip().isascii() and count.strip().isdigit()) or (equals and not pattern):
            raise InputError(f"heads must be a number, or PATTERN=NUMBER; got {one!r}.")
        if not equals and len(given) > 1:
            raise InputError(f"heads must have a pattern each if there are several; got {one!r}. Pass PATTERN={one}.")
        if pattern in counts:
            raise InputError(f"heads must have each pattern once; got {pattern!r} twice.")
        counts[pattern] = int(count)
    return counts.get("", counts)

"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from saddlescope._shared.errors import InputError

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


def parse_heads(given: list[str] | None) -> int | dict[str, int] | None:
    """Return the numbers of heads of `--heads N`, or of `--heads PATTERN=N` once or repeated.

    Raises:
        InputError: a number that is none, or a plain number beside others.
    """
    if not given:
        return None
    counts: dict[str, int] = {}
    for one in given:
        pattern, equals, number = one.rpartition("=")
        if not number.strip().isdecimal() or (equals and not pattern):
            raise InputError(f"heads must be a number, or PATTERN=NUMBER; got {one!r}.")
        if not equals and len(given) > 1:
            raise InputError(f"heads must have a pattern each if there are several; got {one!r}. Pass PATTERN={one}.")
        if pattern in counts:
            raise InputError(f"heads must have each pattern once; got {pattern!r} twice.")
        counts[pattern] = int(number)
    return counts.get("", counts)

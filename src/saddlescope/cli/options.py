"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

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
Heads = Annotated[int | None, typer.Option(metavar="N", help="Number of attention heads, if config.json is absent.")]

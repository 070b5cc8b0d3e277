"""Command `watch`: the page of a training run, built again with each record."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import other_than_file
from saddlescope.cli.options import LossColumn, LossFile, read_loss_file
from saddlescope.cli.terminal import print_text, say

if TYPE_CHECKING:
    from saddlescope.store.loss_logs import LossLog

_SECONDS = 5
"""Time after which the page loads itself again."""
_LOOK = 1.0  # seconds between two looks at the file


def watch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File that a tracker writes: RankTracker(model, file=FILE).")
    ],
    site: Annotated[
        Path, typer.Option(metavar="DIR", help="Build the page in this folder; an earlier one is replaced.")
    ] = Path("ranks"),
    loss: LossFile = None,
    column: LossColumn = None,
    once: Annotated[bool, typer.Option("--once", help="Build the page once, as for a finished run.")] = False,
) -> int:
    """Draw the ranks and their steps while a model trains; the page follows each record until Ctrl-C."""
    from saddlescope.gallery import build_training
    from saddlescope.gallery.site import require_gallery_folder

    require_gallery_folder(site)
    if loss is None:
        read_loss_file(loss, column)  # which refuses a column alone
    if once:
        print_text(f"Open {build_training(file, site, loss=read_loss_file(loss, column))} in a browser.")
        return 0
    if (kind := other_than_file(file)) is not None:  # such as a pipe, which never has a size
        raise InputError(f"{file} must be a file of records; got {kind}.")
    if not file.exists():
        say(f"Waiting for {file}; press Ctrl-C to end.")
    seen = 0  # bytes
    try:
        while True:
            size = file.stat().st_size if file.exists() else 0
            if size != seen:
                try:
                    page = build_training(file, site, live=_SECONDS, loss=_loss_so_far(loss, column))
                except InputError as error:  # a first record may be on its way; a run may begin again
                    say(str(error))
                else:
                    say(f"{time.strftime('%X')}  {page}" if seen else f"Open {page} in a browser; press Ctrl-C to end.")
                seen = size
            time.sleep(_LOOK)
    except KeyboardInterrupt:
        if not seen:
            raise
        page = build_training(file, site, loss=_loss_so_far(loss, column))
        print_text(f"Ended; {page} has all records and no longer reloads.")
        return 0


def _loss_so_far(loss: Path | None, column: str | None) -> "LossLog | None":
    """Return the loss of a log; None while the log is absent, or cannot be read, which is said."""
    if loss is not None and not loss.exists():
        return None
    try:
        return read_loss_file(loss, column)
    except InputError as error:  # its first line may be on its way
        say(f"The page has no loss: {error}")
        return None

"""Command `stages`: plateaus and drops of a loss in a training log."""

from pathlib import Path
from typing import Annotated

import typer

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_file
from saddlescope.cli.options import AsJson
from saddlescope.cli.terminal import print_json, print_text, say

_LISTED = 8  # other columns
_PICTURES = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}  # first bytes by suffix


def stages(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV, JSON, JSON lines, text, or a folder of TensorBoard's event files."),
    ],
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of the loss; by default one that is named as a loss.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Picture, PNG, SVG or PDF; stages.png by default, with --json none."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Find the plateaus and drops of a loss curve in a training log, and draw them."""
    picture = out if out is not None or as_json else Path("stages.png")
    if picture is not None:
        if (suffix := picture.suffix.lower()) not in _PICTURES:
            raise InputError(f"--out must be a picture, {', '.join(_PICTURES)}; got {str(picture)!r}.")
        require_writable_file(picture, begins=_PICTURES[suffix])
    from saddlescope.measure import find_plateaus
    from saddlescope.store.loss_logs import read_loss

    log = read_loss(file, column)
    found = find_plateaus(log.losses, steps=log.steps)
    changes = [log.rate_change(2 * drop.begin - drop.end, drop.step) for drop in found.drops]
    if as_json:
        parts = found.to_dict()
        for drop, change in zip(parts["drops"], changes, strict=True):
            drop["learning_rate_change"] = change
        names = {"file": str(file), "column": log.column, "step_column": log.step_column, "records": len(log.steps)}
        others = {"others": list(log.others), "log_loss": found.log_loss, "log_steps": found.log_steps}
        print_json(names | parts | others | {"remarks": [*log.remarks, *found.remarks]})
    else:
        others = ", ".join(log.others[:_LISTED]) + (" and more" if len(log.others) > _LISTED else "")
        print_text(f"{log.column} by {log.step_column}, {len(log.steps)} records.")
        if others:
            print_text(f"Other losses (--column): {others}.")
        print_text(str(found))
        for drop, change in zip(found.drops, changes, strict=True):
            if change is not None:
                print_text(f"The drop at {drop.step:.6g} is at a change of the learning rate, at step {change:.6g}.")
        for remark in (*log.remarks, *found.remarks):
            print_text(remark)
    if picture is not None:
        ax = found.plot()
        ax.set_xlabel(log.step_column, parse_math=False)
        ax.set_ylabel(log.column, parse_math=False)
        picture.parent.mkdir(parents=True, exist_ok=True)
        ax.figure.savefig(picture, dpi=150)  # type: ignore[union-attr]
        say(f"The picture is {picture}.")
    return 0

"""Commands `lora resize` and `lora merge`: adapters from adapters, and a base with their updates."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saddlescope._shared.errors import InputError
from saddlescope.cli.extract_lora import Dtype, Energy, MaxRank, Rank, print_extraction, record
from saddlescope.cli.options import AsJson, number
from saddlescope.cli.terminal import Faults, on_interrupt, print_json, print_text, progress, say, unwritten

if TYPE_CHECKING:
    from saddlescope.ranks.lora import Extraction

lora = typer.Typer(help="LoRA adapters: other ranks, sums of several. `extract-lora` makes one from checkpoints.")

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the result.")]
Form = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="peft, diffusers or kohya; that of the input by default.")
]


@lora.command("resize")
def resize(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The adapter: a file or a folder.")],
    out: Out,
    energy: Energy = None,
    rank: Rank = None,
    max_rank: MaxRank = None,
    form: Form = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
) -> int:
    """Write an adapter with lower ranks, the best one of these ranks by singular value decomposition.

    Without --energy and --rank, ranks are reduced only where nothing is lost. Exit status 2: some tensors could not be
    used; the adapter of all others is written, but none if a factor lacks its partner.
    """
    from saddlescope.ranks.lora import merge_lora

    make = partial(merge_lora, [adapter], out, energy=energy, rank=rank, max_rank=max_rank, format=form, dtype=dtype)
    return _written(make, out, as_json=as_json)


@lora.command("merge")
def merge(
    adapters: Annotated[
        list[Path], typer.Argument(metavar="ADAPTER [ADAPTER...]", help="The adapters: files or folders.")
    ],
    out: Out,
    weight: Annotated[
        list[float] | None,
        typer.Option(parser=number, metavar="W", help="Weight of an adapter, in their order; 1 by default."),
    ] = None,
    base: Annotated[
        Path | None, typer.Option(metavar="BASE", help="Write this checkpoint with the updates, not an adapter.")
    ] = None,
    energy: Energy = None,
    rank: Rank = None,
    max_rank: MaxRank = None,
    form: Form = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
) -> int:
    """Write the weighted sum of adapters as one adapter, or with --base merged into their base.

    Exit status 2: some tensors could not be used; the result with all others is written, but none if a factor lacks its
    partner.
    """
    from saddlescope.ranks.lora import merge_into_base, merge_lora
    from saddlescope.reproduction.formatting import number as rounded

    ranks = {"energy": energy, "rank": rank, "max_rank": max_rank, "format": form}
    if base is None:
        return _written(partial(merge_lora, adapters, out, weights=weight, dtype=dtype, **ranks), out, as_json=as_json)
    if any(one is not None for one in ranks.values()):
        raise InputError("base must be given without --energy, --rank, --max-rank and --format; got one of them.")

    faults = Faults()
    with on_interrupt(lambda: unwritten(out)), progress("lora merge") as report:
        made = merge_into_base(base, adapters, out, weights=weight, dtype=dtype, report=report, on_error=faults.add)
    for sentence in made.remarks:
        say(sentence)
    if as_json:
        changed = list(made.changed)
        print_json({"stored": str(made.folder), "rounding": made.rounding, "changed": changed, "faults": faults})
    else:
        print_text(
            f"{len(made.changed)} weights changed; rounding takes at most {rounded(made.rounding, 2)} of an update."
        )
        if made.rounding > 0.01:
            print_text("Pass --dtype float32 to keep more of it.")
        print_text(f"Stored in {made.folder}.")
    return faults.status


def _written(make: "Callable[..., Extraction]", out: Path, *, as_json: bool) -> int:
    """Write an adapter and print it; return the exit status."""
    faults = Faults()
    with on_interrupt(lambda: unwritten(out)), progress("lora") as report:
        made = make(report=report, on_error=faults.add)
    if made.left_out:
        faults.add(f"{made.adapter} does not hold {', '.join(made.left_out)}: merge the adapters into their base.")
    for sentence in made.remarks:
        say(sentence)
    if as_json:
        print_json(record(made) | {"faults": faults})
    else:
        print_extraction(made)
    return faults.status

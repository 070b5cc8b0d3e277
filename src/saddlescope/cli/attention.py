"""Command `attention`: the implicit bias of softmax attention on your token data."""

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from saddlescope._shared.errors import MissingExtraError
from saddlescope._shared.output_paths import NETCDF, require_writable_file
from saddlescope.cli.options import AsJson, Site, number, whole_number
from saddlescope.cli.terminal import on_interrupt, print_json, print_table, print_text, progress, unwritten


def attention(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.npz", help="Arrays X (n, L, d), z (n, d), y (n,) of 1 and -1, and v (d,).")
    ],
    loss: Annotated[str, typer.Option(help="exponential or logistic.")] = "exponential",
    log_until: Annotated[
        float, typer.Option(parser=number, metavar="LN_T", help="ln t at the end of the flows.")
    ] = 1e6,
    log_scale: Annotated[
        float,
        typer.Option(
            parser=number,
            metavar="LN",
            help="ln of the initial scale, the size of the margins of K and Q.",
            show_default="ln 0.1",
        ),
    ] = math.log(0.1),
    seed: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Seed of the initial keys and queries.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.nc", help="Store the flows over time in this file.")
    ] = None,
    site: Site = None,
    as_json: AsJson = False,
) -> int:
    """Find the norm that gradient flow on softmax attention minimises on these token data."""
    if out is not None:
        require_writable_file(out, begins=NETCDF)  # before the work
    from saddlescope import store

    with MissingExtraError.named("saddlescope attention", "jax"):
        from saddlescope.gallery import build_attention
        from saddlescope.gallery.site import require_gallery_folder
        from saddlescope.studies import implicit_bias

    if site is not None:
        require_gallery_folder(site)
    stop = store.stopwatch()
    with on_interrupt(lambda: unwritten(out)), progress(str(file)) as report:
        found = implicit_bias(file, loss=loss, log_until=log_until, log_scale=log_scale, seed=seed, report=report)
    command = shlex.join(["saddlescope", "attention", str(file)])
    found = replace(found, dataset=store.stamped(found.dataset, stop(), command=command))
    stored = store.write(found.dataset, out) if out is not None else None
    page = build_attention(found, site) if site is not None else None
    if as_json:
        print_json(found.summary())
        return 0
    print_text(f"{found.data!r}\n{found.assumptions!r}\n")
    print_table(*found.problems(), title="Support vector machines")
    print_table(*found.outcomes(), title=f"Gradient flows to ln t = {log_until:g}")
    if stored is not None:
        print_text(f"Stored in {stored}.")
    if page is not None:
        print_text(f"Open {page} in a browser.")
    return 0

"""Commands `data get` and `data list`: official data sets, from their publishers."""

from pathlib import Path
from typing import Annotated

import typer

from saddlescope.cli.options import AsJson
from saddlescope.cli.terminal import on_interrupt, print_json, print_table, print_text, progress

_KEPT = "Interrupted; what was downloaded is kept. Rerun the same command to resume after its last byte."

data = typer.Typer(help="Official data sets, from their publishers.")


@data.command("list")
def list_sources(as_json: AsJson = False) -> int:
    """List the data sets that can be downloaded: their files, origins and checksums."""
    from saddlescope.training.data.download_sources import SOURCES

    if as_json:
        print_json(
            [{"name": n, "url": s.urls[0], "md5": s.md5, "files": s.places} for n, of in SOURCES.items() for s in of]
        )
    else:
        rows = [(name, source.urls[0], source.md5) for name, sources in SOURCES.items() for source in sources]
        print_table(("data set", "from", "MD5"), rows)
    return 0


@data.command("get")
def get_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `saddlescope data list`.")],
    folder: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", envvar="SADDLESCOPE_DATA", help="Folder of data sets, created if absent."
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Download a data set and verify its checksum. Rerun the command to resume a broken download."""
    from saddlescope.training.data.download import download

    with on_interrupt(lambda: _KEPT), progress(f"data {name}") as report:
        files = download(name, folder, report=report)
    if as_json:
        print_json([str(file) for file in files])
    else:
        print_text("\n".join(map(str, files)))
    return 0

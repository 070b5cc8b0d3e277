"""Command `explore`: the live page."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from saddlescope._shared.errors import MissingExtraError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope.cli.completion import complete_entry
from saddlescope.cli.options import between, number, whole_number
from saddlescope.cli.reproductions import DataFolder, EntryFile, check_data, load_own
from saddlescope.cli.terminal import print_text


def explore(
    entry: Annotated[
        str,
        typer.Argument(metavar="[ENTRY]", help="A name from `saddlescope list`.", autocompletion=complete_entry),
    ] = "",
    results: Annotated[Path, typer.Option(metavar="DIR", help="Folder in which the page stores runs.")] = Path(
        "results"
    ),
    port: Annotated[
        int | None,
        typer.Option(
            parser=between(whole_number, 1, 65535), metavar="N", help="Port to listen on, on this machine alone."
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(parser=between(whole_number, 1, 16), metavar="N", help="Number of worker processes.")
    ] = 2,
    limit: Annotated[
        float, typer.Option(parser=between(number, 1), metavar="SECONDS", help="Stop a run after this time.")
    ] = 300.0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    data: DataFolder = None,
    entry_file: EntryFile = None,
) -> int:
    """Open a page on this machine in which you move the parameters of an entry and see its pictures change."""
    with MissingExtraError.named("saddlescope explore"):
        from saddlescope.explore import serve
        from saddlescope.explore.access import opening_page
    check_data(data)
    require_writable_folder(results)
    load_own(entry_file)

    def ready(address: str) -> None:
        print_text(f"Open {address} in a browser; press Ctrl-C to end.")
        if browser:
            import webbrowser

            webbrowser.open(opening_page(address).as_uri())

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does: nothing is left behind
    try:
        serve(
            entry, results=results, data=data, entry_file=entry_file, port=port, processes=processes, limit=limit,
            ready=ready,
        )  # fmt: skip
    except KeyboardInterrupt:
        print_text("Ended.")
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0

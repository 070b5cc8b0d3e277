"""Server of the live page, on this machine alone.

    GET  /                  the first page: the toys, and all entries
    GET  /entry/GROUP/NAME  an entry, with its parameters in the query
    POST /run               run an entry: lines of JSON with its progress, then its answer
    POST /save              store a run as `saddlescope run` does
    GET  /thumbnail/...     a toy's small picture, made by a worker
    GET  /assets/...        style, scripts, Plotly

All below the token (`access`). A request names an entry, a size and values that the entry's records check; nothing in
it is executed. A new run of a page stops its run before.
"""

import asyncio
import json
import socket
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from saddlescope._shared.errors import InputError
from saddlescope.explore.access import Access, persistent_token
from saddlescope.explore.answer import pages
from saddlescope.explore.connections import Connection
from saddlescope.explore.controls import checked_settings, make_controls
from saddlescope.explore.live_runs import LiveRuns
from saddlescope.explore.toys import SHAPES
from saddlescope.explore.worker import Folders
from saddlescope.explore.worker import Request as Task
from saddlescope.gallery.site import read_assets
from saddlescope.reproduction import catalogue, find_entry
from saddlescope.reproduction.device import compiled_code

PORT = 8642
"""Port unless it is taken or another one is given: a fixed one, so that bookmarks survive a restart."""

_LARGEST = 64_000  # bytes of a request
_REMEMBERED = 64  # answers that need no second run
_REMEMBERED_BYTES = 128_000_000
_QUIET = 3.0  # seconds without a run of a page, after which the server may compile in advance
_CLIENTS = 32  # pages that may wait for a run
_NAME = 100  # characters of a page's name
_TYPES = {".css": "text/css", ".js": "text/javascript"}


class _Answers:
    """Finished answers as JSON lines, the latest ones."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str | None:
        if key in self._lines:
            self._lines.move_to_end(key)
        return self._lines.get(key)

    def keep(self, key: str, line: str) -> None:
        self._lines[key] = line
        while len(self._lines) > _REMEMBERED or sum(map(len, self._lines.values())) > _REMEMBERED_BYTES:
            self._lines.popitem(last=False)


class Explorer:
    """State of the server: its workers, the answers, and the run of each page."""

    def __init__(self, live: LiveRuns, folders: Folders, entry: str) -> None:
        self.live, self.folders, self.entry = live, folders, entry
        self.answers = _Answers()
        self.current: dict[str, asyncio.Task[Any]] = {}
        self.asked_at = -_QUIET
        self.warming: dict[str, asyncio.Task[None]] = {}
        self.thumbnails: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self.pages = pages()
        self.assets = read_assets()
        own = files("saddlescope.explore").joinpath("assets")
        self.assets |= {name: own.joinpath(name).read_text("utf-8") for name in ("explore.css", "explore.js")}

    def routes(self) -> list[Route]:
        """Return the routes, below the token."""
        return [
            Route("/", self.first_page),
            Route("/entry/{name:path}", self.entry_page),
            Route("/run", self.run, methods=["POST"]),
            Route("/save", self.save, methods=["POST"]),
            Route("/thumbnail/{name:path}", self.thumbnail),
            Route("/assets/{name}", self.asset),
            Route("/alive", self.alive),
        ]

    async def first_page(self, request: Request) -> Response:
        """Show the toys and all entries."""
        toys = _headed(catalogue.toy_names())
        entries = _headed(catalogue.entry_names())
        return HTMLResponse(self.pages.get_template("first.html").render(toys=toys, entries=entries, root=""))

    async def entry_page(self, request: Request) -> Response:
        """Show the controls of an entry; its script runs it with the parameters of the address."""
        name = request.path_params["name"]
        entry = find_entry(name)
        toy, usual = name in catalogue.toy_names(), _usual_size(name)
        size = request.query_params.get("size", usual)
        page = self.pages.get_template("entry.html")
        lead = " ".join((entry.params.__doc__ or "").split())
        shown = {
            "entry": entry,
            "toy": toy,
            "size": size,
            "usual": usual,
            "lead": lead,
            "toys": _headed(catalogue.toy_names()),
        }
        return HTMLResponse(
            page.render(controls=make_controls(entry, size), root="../" * (name.count("/") + 1), **shown)
        )

    async def run(self, request: Request) -> Response:
        """Run an entry and stream its messages; the client that goes away, or asks again, stops it."""
        page, task = _asked(await _body(request), "run", self.folders)
        self.asked_at = time.monotonic()
        await self._make_way(task)
        if line := self.answers.get(task.key):
            self._stop(page)
            return Response(line, media_type="application/x-ndjson")
        if len(self.current) >= _CLIENTS and page not in self.current:
            raise HTTPException(429, "Too many pages wait for a run; close some.")
        return StreamingResponse(self._messages(page, task), media_type="application/x-ndjson")

    async def save(self, request: Request) -> Response:
        """Store a run as `saddlescope run` does."""
        page, task = _asked(await _body(request), "save", self.folders)
        return StreamingResponse(self._messages(page, task), media_type="application/x-ndjson")

    async def thumbnail(self, request: Request) -> Response:
        """Return the small pictures of a toy."""
        name = request.path_params["name"]
        if name not in catalogue.toy_names():
            raise HTTPException(404, f"There is no toy {name!r}.")
        return JSONResponse(await asyncio.shield(self._thumbnail(name)))

    async def asset(self, request: Request) -> Response:
        """Return a file of the page."""
        name = request.path_params["name"]
        if name not in self.assets:
            raise HTTPException(404, f"There is no asset {name!r}.")
        return Response(
            self.assets[name], media_type=_TYPES[Path(name).suffix], headers={"cache-control": "max-age=3600"}
        )

    async def alive(self, request: Request) -> Response:
        """Answer a page that waits for a new server."""
        return JSONResponse({"alive": True})

    async def warm(self) -> None:
        """Start a process, then make the pictures of the first page, unless the command names an entry."""
        self.live.prepare()
        for name in () if self.entry else catalogue.toy_names():
            await self._warm(Task("run", name, "default", {}, self.folders))
            await self._thumbnail(name)
        for name, several in SHAPES.items():
            for settings in several if self.entry in ("", name) else ():
                await self._warm(Task("run", name, "default", settings, self.folders))

    async def _warm(self, run: Task) -> None:
        """Run something before anyone asks, and again if it has to make way."""

        async def follow() -> None:
            async for _ in self._messages("", run):
                pass

        while run.key not in self.warming:
            while self.current or time.monotonic() - self.asked_at < _QUIET:
                await asyncio.sleep(0.5)
            task = self.warming[run.key] = asyncio.create_task(follow())
            try:
                await asyncio.wait({task})
            finally:
                del self.warming[run.key]
            if not task.cancelled():
                return

    async def _make_way(self, run: Task) -> None:
        """Wait for a run that is made in advance if it is this one, and stop any other."""
        for key, task in list(self.warming.items()):
            if key == run.key:
                await asyncio.wait({task})
            else:
                task.cancel()

    def _thumbnail(self, name: str) -> "asyncio.Task[dict[str, Any]]":
        async def make() -> dict[str, Any]:
            task = Task("thumbnail", name, "default", {}, self.folders)
            async with aclosing(self.live.ask(task)) as messages:
                async for message in messages:
                    if "done" in message:
                        return message["done"]
            return {}

        made = self.thumbnails.get(name)
        if made is None or (made.done() and (made.exception() or not made.result())):
            made = self.thumbnails[name] = asyncio.create_task(make())
        return made

    def _stop(self, page: str) -> None:
        if page in self.current:
            self.current.pop(page).cancel()

    async def _messages(self, page: str, run: Task) -> AsyncIterator[str]:
        """Yield the messages of a run of a page, or of none, as lines; errors are messages too."""
        self._stop(page)
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        task = asyncio.create_task(self._follow(run, lines.put_nowait))
        if page:
            self.current[page] = task
        try:
            while line := await lines.get():
                yield line
        finally:
            task.cancel()
            if self.current.get(page) is task:
                del self.current[page]

    async def _follow(self, run: Task, put: Callable[[str | None], None]) -> None:
        """Put the messages of a run as lines, then None."""
        try:
            async with aclosing(self.live.ask(run)) as messages:
                async for message in messages:
                    line = json.dumps(message, ensure_ascii=False) + "\n"
                    if run.do == "run" and "done" in message:
                        self.answers.keep(run.key, line)
                    put(line)
        except asyncio.CancelledError:
            put(json.dumps({"stopped": True}) + "\n")
            raise
        finally:
            put(None)


def _asked(body: Any, do: Literal["run", "save"], folders: Folders) -> tuple[str, Task]:
    """Return the page that asks for a run, a random name of its own, and the task, whose settings are checked.

    Raises:
        InputError: the body is not a record of strings, it has no name, or its entry, size or settings do not exist or
            do not fit.
    """
    fields = ("client", "entry", "size")
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in fields):
        raise InputError("A request must be a JSON object with the strings client, entry and size.")
    settings = body.get("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(value, str) for value in settings.values()):
        raise InputError("settings must be a JSON object of strings.")
    page, entry, size = (body[name] for name in fields)
    if not 0 < len(page) <= _NAME:
        raise InputError(f"client must have 1 to {_NAME} characters; got {len(page)}.")
    return page, Task(do, entry, size, checked_settings(find_entry(entry), size, settings), folders)


def _headed(names: Iterable[str]) -> list[tuple[str, catalogue.Heading]]:
    return [(name, catalogue.entry_heading(name)) for name in names]


def _usual_size(entry: str) -> str:
    """Return the size at which a page opens: the quick one, and the default one of toys."""
    return "default" if entry in catalogue.toy_names() else "quick"


async def _body(request: Request) -> Any:
    """Return the JSON of a request, of limited length."""
    if request.headers.get("content-type") != "application/json":
        raise HTTPException(415, "A request must be JSON.")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST:
            raise HTTPException(413, f"A request must have at most {_LARGEST} bytes.")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("A request must be JSON.") from error


async def _refused(request: Request, error: Exception) -> Response:
    """Return the sentence of an error: as a page, or to a script as JSON."""
    status, sentence = (error.status_code, error.detail) if isinstance(error, HTTPException) else (400, str(error))
    if request.method == "POST":
        return JSONResponse({"refused": sentence}, status)
    root = "../" * (request.url.path.count("/") - 2)  # without the token
    return HTMLResponse(pages().get_template("refusal.html").render(sentence=sentence, root=root), status)


def make_app(live: LiveRuns, token: str, folders: Folders, entry: str = "") -> Starlette:
    """Return the application.

    Args:
        live: the workers, which end with the application.
        token: the beginning of every path.
        folders: files of the server.
        entry: run first, so that it is ready; empty: the toys.
    """
    explorer = Explorer(live, folders, entry)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        warming = asyncio.create_task(explorer.warm())
        try:
            yield
        finally:
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)
            live.close()

    app = Starlette(
        routes=explorer.routes(),
        lifespan=lifespan,
        exception_handlers={InputError: _refused, HTTPException: _refused},
    )
    app.add_middleware(Access, token=token)
    return app


def serve(
    entry: str = "",
    *,
    results: Path,
    data: Path | None = None,
    entry_file: Path | None = None,
    port: int | None = None,
    processes: int = 2,
    limit: float = 300.0,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the live page until it is interrupted.

    Args:
        entry: name of the entry whose page the address is; empty: the first page.
        results: folder in which "Save this run" stores.
        data: folder of data sets in their official formats.
        entry_file: your Python file of entries, loaded already; the workers load it too.
        port: to listen on; None: 8642, or any other that is free.
        processes: largest number of worker processes.
        limit: seconds after which a run is stopped.
        ready: called with the address once the server listens.

    Raises:
        InputError: the entry does not exist, or the port is taken.
    """
    if entry:
        find_entry(entry)
    listening, token = _listen(port), persistent_token()
    with tempfile.TemporaryDirectory(prefix="saddlescope-explore-") as shared, listening:
        given = (results, Path(shared), data, entry_file)
        folders = Folders(*(path and path.absolute() for path in given))  # type: ignore[arg-type]
        live = LiveRuns(most=processes, limit=limit, environment=compiled_code())
        config = uvicorn.Config(
            make_app(live, token, folders, entry), log_level="warning", access_log=False, ws="none", loop="asyncio",
            http=Connection, timeout_graceful_shutdown=1, server_header=False,
        )  # fmt: skip
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
        ready(f"{address}entry/{entry}" if entry else address)
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    """Return a socket that listens on this machine alone."""
    reason = ""
    for one in (PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", one))
            listening.listen()
            return listening
        except OSError as error:
            listening.close()
            reason = error.strerror or str(error)
    raise InputError(f"port must be free; got {port}: {reason}. Leave --port out for another one.")

"""Runs of the live page in the worker processes of a pool, awaited by the server."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from saddlescope.explore.worker import Request
from saddlescope.reproduction.process_pool import Event, ProcessPool

_IMPORTS = ("saddlescope.explore.answer", "jax")  # what nearly every run needs


class LiveRuns:
    """Processes that answer requests.

    Args:
        most: largest number of processes.
        limit: seconds after which a run is stopped.
        environment: variables that the processes get unless this process sets them.
    """

    def __init__(self, *, most: int, limit: float, environment: Mapping[str, str] | None = None) -> None:
        self.limit = limit
        self._pool = ProcessPool(most, self._heard, environment=environment, imports=_IMPORTS)
        self._names = map(str, count())
        self._news: dict[str, asyncio.Queue[tuple[Event, Any]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, request: Request) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the messages of a request; the last has one of the keys done, refused, failed, stopped.

        Closing the generator stops the run. One whose process ends early, or that takes longer than the limit, failed.
        """
        name, final = next(self._names), False
        self._loop = asyncio.get_running_loop()
        news = self._news[name] = asyncio.Queue()
        self._pool.submit(name, request, kind=request.entry)
        try:
            async with asyncio.timeout(None) as timeout:
                while not final:
                    event, value = await news.get()
                    if event == "begun":  # waiting for a process, and its imports, do not count
                        timeout.reschedule(self._loop.time() + self.limit)
                        event, value = "progress", [0.0, ""]
                    final = event != "progress"
                    if event == "ended":  # the status is minus the signal that killed it
                        how = f"ended early (exit status {value}), perhaps for lack of memory"
                        event, value = "failed", f"The process of the run {how}. Choose less."
                    yield {event: value}
        except TimeoutError:
            limit = f"{self.limit:g} s, the limit of this page"
            yield {"failed": f"The run was stopped after {limit}. Choose less, give --limit, or use `saddlescope run`."}
        finally:
            del self._news[name]
            if not final:
                self._pool.stop(name)

    def prepare(self) -> None:
        """Start a process, before anyone asks."""
        self._pool.prepare()

    def close(self) -> None:
        """End all processes."""
        self._pool.close()

    def _heard(self, name: str, event: Event, value: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._put, name, event, value)

    def _put(self, name: str, event: Event, value: Any) -> None:
        if name in self._news:  # else nobody waits any more
            self._news[name].put_nowait((event, value))

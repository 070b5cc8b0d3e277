"""Warm worker processes of the live page: a few at most, each with one run at a time, awaited by the server."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from saddlescope.reproduction.process_pool import APART

_GRACE = 5.0  # seconds in which a stopped run may reach its next report; then its process is killed
_PATIENCE = 2.0  # seconds to wait for a warm process before another is started, such as for one that is stopping
_FINAL = ("done", "refused", "failed", "stopped")  # keys of the last message of a run


class WorkerEndedError(Exception):
    """The process of a run ended early; its exit status is minus the signal that killed it."""


class _Worker:
    """One process and the messages of its current run."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.number = process, 0
        self.entries: set[str] = set()  # what it has run, and compiled
        self.messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                length = int.from_bytes(await self.process.stdout.readexactly(8))
                await self.messages.put(json.loads(await self.process.stdout.readexactly(length)))
        except asyncio.IncompleteReadError:
            await self.messages.put(None)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a request; a process that has ended does not read it, which `messages` shows."""
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def next_message(self) -> dict[str, Any]:
        """Return the next message of the current run."""
        while True:
            message = await self.messages.get()
            if message is None:
                raise WorkerEndedError(f"exit status {await self.process.wait()}")
            if message["id"] == self.number:
                return message

    async def close(self) -> None:
        """Kill the process."""
        self.listener.cancel()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


def _is_final(message: Mapping[str, Any]) -> bool:
    return any(key in message for key in _FINAL)


class WorkerPool:
    """Processes that answer requests.

    Args:
        folders: of results, data and shared parts, and the file of your own entries, as the worker reads them.
        most: largest number of processes.
        limit: seconds after which a run is stopped.
        cache: folder in which JAX keeps what it compiled, so that the next server starts warm.
    """

    def __init__(self, folders: Mapping[str, str | None], *, most: int, limit: float, cache: Path | None) -> None:
        self.folders, self.most, self.limit, self.cache = dict(folders), most, limit, cache
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starting = 0
        self._changed = asyncio.Condition()
        self._settling: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the messages of a request; the last has one of the keys done, refused, failed, stopped.

        Closing the generator stops the run.

        Raises:
            WorkerEndedError: the process ended early.
            TimeoutError: the run took longer than the limit.
        """
        worker = await self._worker_for(request["entry"])
        worker.number += 1
        worker.entries.add(request["entry"])
        worker.tell({**request, "id": worker.number})
        finished = False
        try:
            async with asyncio.timeout(None) as timeout:
                while not finished:
                    message = await worker.next_message()
                    if timeout.when() is None:  # the run has begun; the imports of a new process do not count
                        timeout.reschedule(asyncio.get_running_loop().time() + self.limit)
                    finished = _is_final(message)
                    if finished:
                        await self._release(worker)
                    yield message
        except WorkerEndedError:
            finished = True
            await self._release(worker, ended=True)
            raise
        finally:
            if not finished and not self._closed:
                worker.tell({"stop": worker.number})
                task = asyncio.create_task(self._settle(worker))
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)

    async def prepare(self) -> None:
        """Start a process, before anyone asks."""
        await self._release(await self._worker_for(""))

    async def close(self) -> None:
        """Kill all processes."""
        self._closed = True
        settling = [*self._settling]
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)
        for worker in (*self._idle, *self._busy):
            await worker.close()

    async def _worker_for(self, entry: str) -> _Worker:
        """Return an idle worker, one that has run this entry if possible, or a new one; else wait for one."""
        async with self._changed:
            try:
                async with asyncio.timeout(_PATIENCE if self._busy else 0):
                    await self._changed.wait_for(self._has_idle)
            except TimeoutError:
                await self._changed.wait_for(lambda: self._has_idle() or len(self._busy) + self._starting < self.most)
            if self._has_idle():
                worker = next((one for one in self._idle if entry in one.entries), self._idle[-1])
                self._idle.remove(worker)
                self._busy.add(worker)
                return worker
            self._starting += 1
        try:
            worker = _Worker(await self._start())
            self._busy.add(worker)
            return worker
        finally:
            self._starting -= 1

    def _has_idle(self) -> bool:
        """Return True if a process is idle, and forget those that were killed meanwhile."""
        self._idle = [worker for worker in self._idle if worker.process.returncode is None]
        return bool(self._idle)

    async def _start(self) -> asyncio.subprocess.Process:
        compiled = {
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        cache = {"JAX_COMPILATION_CACHE_DIR": str(self.cache), **compiled} if self.cache else {}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "saddlescope.explore.worker", json.dumps(self.folders)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**cache, **os.environ},
            **APART,
        )

    async def _release(self, worker: _Worker, *, ended: bool = False) -> None:
        if ended:
            await worker.close()
        async with self._changed:
            self._busy.discard(worker)
            if not ended:
                self._idle.append(worker)
            self._changed.notify_all()

    async def _settle(self, worker: _Worker) -> None:
        """Wait until a stopped run has ended, and kill the process of one that does not."""
        try:
            async with asyncio.timeout(_GRACE):
                while not _is_final(await worker.next_message()):
                    pass
        except (TimeoutError, WorkerEndedError):
            await self._release(worker, ended=True)
        else:
            await self._release(worker)

"""Worker process: runs entries one after the other and stays warm, so that nothing is imported or compiled twice.

Requests are lines of JSON on standard input: {"id": 7, "do": "run", ...} with one of the tasks below, or {"stop": 7}.
Messages are frames on standard output, a length of eight bytes and JSON of that length: {"id": 7, "progress": [0.5,
"a note"]} any number of times, then one with "done", "refused", "failed" or "stopped".

A run stops at its next report of progress. When standard input closes, the parent is gone and the process ends.
"""

import json
import os
import queue
import sys
import tempfile
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report

_OFTEN = 0.1  # seconds between two messages of progress
_KEPT = 8  # runs that can be saved without another run


class _StopRun(BaseException):
    """The current run is to stop; no entry can catch it by accident."""


class _Worker:
    """State of the process: the folders, the latest runs, and the number of the run to stop."""

    def __init__(self, folders: dict[str, str | None], send: Callable[[dict[str, Any]], None]) -> None:
        self.results = Path(folders["results"] or "results")
        self.data = Path(folders["data"]) if folders["data"] else None
        self.shared = Path(folders["shared"] or "")
        self.send = send
        self.stopped = -1
        self.kept: OrderedDict[str, xr.Dataset] = OrderedDict()
        self.own: dict[str, str] = {}  # files of your own entries, by name
        if file := folders["entry_file"]:
            from saddlescope.reproduction import load_entries

            self.own = dict.fromkeys(load_entries(file), file)

    def handle(self, request: dict[str, Any]) -> None:
        """Do one task and send its messages."""
        number = request["id"]
        task = {"run": self._run, "save": self._save, "thumbnail": self._thumbnail}[request["do"]]
        report = self._reporter(number)
        try:
            report(0.0, "")
            done = task(request, report)
        except _StopRun:
            self.send({"id": number, "stopped": True})
        except InputError as error:
            self.send({"id": number, "refused": str(error)})
        except MemoryError:
            self.send({"id": number, "refused": "The run needs more memory than this machine has; choose less."})
        except Exception as error:
            traceback.print_exc()
            self.send({"id": number, "failed": f"{type(error).__name__}: {error}"})
        else:
            self.send({"id": number, "done": done})

    def _reporter(self, number: int) -> Report:
        last = 0.0

        def report(fraction: float, note: str) -> None:
            nonlocal last
            if self.stopped == number:
                raise _StopRun
            now = time.monotonic()
            if now - last >= _OFTEN:
                last = now
                self.send({"id": number, "progress": [fraction, note]})

        return report

    def _made(self, request: dict[str, Any], report: Report) -> xr.Dataset:
        """Return the stamped run of a request: a kept one, or a new one."""
        from saddlescope.reproduction import RunContext, find_entry
        from saddlescope.reproduction.runner import stamped_run

        key = json.dumps([request["entry"], request["size"], request["settings"]])
        if key not in self.kept:
            entry = find_entry(request["entry"])
            params = entry.configure(request["size"], request["settings"])
            with tempfile.TemporaryDirectory(dir=self.shared) as scratch:
                read = entry.checksums(params, self.data, report=report)
                context = RunContext(Path(scratch), report, self.data, self.shared / "parts", data_sets=read)
                run = stamped_run(entry, params, context, request["size"], request["settings"])
            self.kept[key] = run.load()
        self.kept.move_to_end(key)
        while len(self.kept) > _KEPT:
            self.kept.popitem(last=False)
        return self.kept[key]

    def _run(self, request: dict[str, Any], report: Report) -> dict[str, Any]:
        from saddlescope.explore.answer import answer
        from saddlescope.reproduction import find_entry

        began = time.monotonic()
        run = self._made(request, report)
        name = request["entry"]
        made = answer(find_entry(name), run, request["size"], request["settings"], self.own.get(name))
        return made | {"seconds": round(time.monotonic() - began, 3)}

    def _save(self, request: dict[str, Any], report: Report) -> dict[str, Any]:
        from saddlescope.reproduction import find_entry
        from saddlescope.reproduction.runner import store_run

        entry = find_entry(request["entry"])
        stored = store_run(entry, self._made(request, report), out=self.results)
        return {"file": str(stored.file)}

    def _thumbnail(self, request: dict[str, Any], report: Report) -> dict[str, str]:
        from saddlescope.explore.answer import thumbnails
        from saddlescope.reproduction import find_entry

        return thumbnails(find_entry(request["entry"]).figures(self._made(request, report))[0])


def _preload() -> None:
    """Import what nearly every run needs, before anyone asks."""
    import saddlescope.explore.answer  # noqa: F401

    with suppress(ImportError):
        import jax  # noqa: F401


def _serve() -> None:
    """Answer requests until standard input closes."""
    pipe, lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    os.dup2(2, 1)  # other output is no message
    requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def send(message: dict[str, Any]) -> None:
        content = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
        try:
            with lock:
                pipe.write(len(content).to_bytes(8) + content)
                pipe.flush()
        except OSError:
            os._exit(1)

    worker = _Worker(json.loads(sys.argv[1]), send)

    def listen() -> None:
        for line in iter(sys.stdin.buffer.readline, b""):
            request = json.loads(line)
            if "stop" in request:
                worker.stopped = request["stop"]
            else:
                requests.put(request)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    _preload()
    while True:
        worker.handle(requests.get())


if __name__ == "__main__":
    _serve()

"""Pool of worker processes that end with their parent, however it ends: of entries, their parts, sweeps, the live page.

Workers are started afresh, not forked, since JAX and PyTorch do not survive a fork; and not by `multiprocessing`, which
would run the caller's main program once more. A worker is started once and runs many tasks, since the imports of a
task can take longer than the task.

No library keeps what is promised here: in loky, and so in joblib, one worker that dies breaks the whole pool, the task
that died has no name, and there is no channel for progress; Dask's local workers outlive a client that is killed.

A worker receives frames, a length of eight bytes and a pickle of that length, or `_STOP`; a frame of length 0 is the
last. It answers in lines of JSON, one key each: an event.
"""

import contextlib
import itertools
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, Literal

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report

Task = Callable[[Report], Any]
"""Work of one process, given a progress callback: a function, or an instance of a class, of a module, since it is
pickled. What it returns must be a JSON value."""

Event = Literal["begun", "progress", "done", "refused", "failed", "stopped", "ended"]
"""Event of a task, with a value: [fraction, note] of *progress*; what it returned when *done*; the sentence of its
InputError if it is *refused*; the type and message of any other error if it has *failed*; the exit status of its
process if that has *ended* early, minus the signal that killed it. All but the first two are the last of a task."""

_LENGTH = 8  # bytes of a frame's length
_STOP = b"stop"  # no pickle begins like this
_OFTEN = 0.1  # seconds between two events of progress
_GRACE = 5.0  # seconds in which a stopped task may reach its next report; then its process is killed
_PATIENCE = 2.0  # seconds to wait for the process of a stopped task before another one is started


class ProcessPool:
    """Worker processes that run tasks, each one at a time, and call back with what happens.

    Args:
        most: largest number of processes, at least 1.
        heard: called with the name of a task, an event and its value, from threads of the pool.
        environment: variables that the workers get unless this process sets them.
        imports: modules that each worker imports as it starts, where they are installed.
    """

    def __init__(
        self,
        most: int,
        heard: Callable[[str, Event, Any], None],
        *,
        environment: Mapping[str, str] | None = None,
        imports: Iterable[str] = (),
    ) -> None:
        self._most, self._heard = most, heard
        self._environment, self._imports = dict(environment or {}), tuple(imports)
        self._waiting: deque[_Job] = deque()
        self._processes: list[_Process] = []
        self._lock = threading.RLock()
        self._closed = False

    def submit(self, name: str, task: Task, *, kind: str = "") -> None:
        """Run a task as soon as a process is free, in the order of calls.

        Args:
            name: of the task, among all that are not finished.
            task: the work.
            kind: a task prefers the process that has run one of its kind, which has imported and compiled its code.
        """
        with self._lock:
            self._waiting.append(_Job(name, pickle.dumps(task), kind))
            self._fill()

    def prepare(self) -> None:
        """Start a process before a task asks for it, unless there is one."""
        with self._lock:
            if not self._processes:
                self._start()

    def stop(self, name: str) -> None:
        """Stop a task at its next report, or before it begins; its process is killed if it does not report."""
        with self._lock:
            self._waiting = deque(job for job in self._waiting if job.name != name)
            for process in self._processes:
                if process.job is not None and process.job.name == name:
                    process.stop(self._fill_later)

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            processes = tuple(self._processes)
            for process in processes:
                process.end()
        for process in processes:
            process.wait(_PATIENCE)

    def _fill_later(self) -> None:
        with self._lock:
            self._fill()

    def _fill(self) -> None:
        """Give the waiting tasks to idle processes, and start others."""
        while self._waiting and not self._closed:
            idle = [process for process in self._processes if process.job is None and process.runs]
            if not idle and (len(self._processes) >= self._most or any(one.stops for one in self._processes)):
                return
            job = self._waiting.popleft()
            process = next((one for one in idle if job.kind in one.kinds), idle[-1]) if idle else self._start()
            process.give(job, movable=bool(idle))

    def _start(self) -> "_Process":
        process = _Process(self._environment, self._imports)
        self._processes.append(process)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: "_Process") -> None:
        for event, value in process.events():
            with self._lock:
                job = process.job
                if event == "begun":
                    process.movable = False
                if event == "ended":
                    self._processes.remove(process)
                    if job is not None and process.movable:
                        self._waiting.appendleft(job)
                        job = None
                if event not in ("begun", "progress"):
                    process.job = None
                self._fill()
            if job is not None:  # else an idle process that was killed from outside
                self._heard(job.name, event, value)


@dataclass(frozen=True)
class _Job:
    """A task in its place among the others."""

    name: str
    content: bytes
    kind: str


class _Process:
    """A worker process, the job that it is at, and the kinds of those before.

    Attributes:
        movable: whether the job goes to another process if this one ends: until it has begun, if this process was idle
            before, since it may have been killed a moment ago without a sign yet.
    """

    def __init__(self, environment: Mapping[str, str], imports: Iterable[str]) -> None:
        self.job: _Job | None = None
        self.kinds: set[str] = set()
        self.movable = False
        self._stopped_at = -_PATIENCE
        self._popen = subprocess.Popen(  # noqa: S603 (this very Python and module)
            [sys.executable, "-P", "-m", __name__, *imports],  # -P: no module of the working folder is loaded instead
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **os.environ},
            start_new_session=True,  # so that no interrupt from the keyboard reaches it
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def events(self) -> Iterable[tuple[Event, Any]]:
        """Yield what the worker sends, and at last the end of the process."""
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            for line in output:
                with contextlib.suppress(ValueError):  # half a line, of a process killed in the middle of it
                    yield next(iter(json.loads(line).items()))
        yield "ended", self.wait()

    @property
    def runs(self) -> bool:
        """True while the process has not ended."""
        return self._popen.poll() is None

    @property
    def stops(self) -> bool:
        """True if the process is about to be free, since its task was just stopped."""
        return self.job is not None and time.monotonic() - self._stopped_at < _PATIENCE

    def give(self, job: _Job, *, movable: bool) -> None:
        """Send the next task."""
        self.job, self.movable = job, movable
        self.kinds.add(job.kind)
        self._stopped_at = -_PATIENCE
        self._write(job.content)

    def stop(self, later: Callable[[], None]) -> None:
        """Ask the worker to stop its task; call `later` if it has not within two seconds, and kill it after five."""
        job, self._stopped_at, self.movable = self.job, time.monotonic(), False
        self._write(_STOP)

        def kill() -> None:
            if self.job is job:
                self._popen.kill()

        for seconds, act in ((_PATIENCE, later), (_GRACE, kill)):
            timer = threading.Timer(seconds, act)
            timer.daemon = True
            timer.start()

    def end(self) -> None:
        """Announce that no task follows, or kill the process in the middle of one."""
        if self.job is None:
            self._write(b"")
        else:
            self._popen.kill()

    def wait(self, seconds: float | None = None) -> int:
        """Return the exit status of the process once it has ended; kill one that has not after so many seconds."""
        try:
            status = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # content that it never read
            self._popen.stdin.close()
        return status

    def _write(self, content: bytes) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        with contextlib.suppress(OSError, ValueError):  # the process has ended; its status says how
            pipe.write(len(content).to_bytes(_LENGTH) + content)
            pipe.flush()  # and stays open: its end is the parent's end


def run_tasks(
    tasks: Mapping[str, Task],
    *,
    processes: int,
    report: Report,
    ended: Callable[[str, int], None],
    environment: Mapping[str, str] | None = None,
    tries: int = 1,
) -> None:
    """Run tasks in worker processes, which end with this call.

    Args:
        tasks: by their names, started in this order.
        processes: largest number of worker processes.
        report: called with the mean of the tasks' fractions, and the name and the note of the one that reports.
        ended: called with the name of a task whose process ended early so many times, and its last exit status.
        environment: variables that the workers get unless this process sets them.
        tries: number of tries of a task whose process ends early.

    Raises:
        InputError: the sentence of the first task that raised it.
        RuntimeError: a task failed; standard error has its traceback.
    """
    news: queue.Queue[tuple[str, Event, Any]] = queue.Queue()
    fractions, left = dict.fromkeys(tasks, 0.0), dict.fromkeys(tasks, tries)
    pool = ProcessPool(min(processes, len(tasks)), lambda *of: news.put(of), environment=environment)
    with contextlib.closing(pool):
        for name, task in tasks.items():
            pool.submit(name, task)
        while left:
            try:
                name, event, value = news.get(timeout=_PATIENCE)  # without one, Ctrl-C would wait on Windows
            except queue.Empty:
                continue
            if event == "ended" and left[name] > 1:
                left[name] -= 1
                pool.submit(name, tasks[name])
            elif event == "ended":
                del left[name]
                ended(name, value)
            elif event == "refused":
                raise InputError(value)
            elif event == "failed":
                raise RuntimeError(f"{name} failed, {value}; see its traceback above.")
            elif event != "begun":
                fractions[name], note = value if event == "progress" else (1.0, "done")
                report(sum(fractions.values()) / len(fractions), f"{name}, {note}")
                if event == "done":
                    del left[name]


class _StoppedError(BaseException):
    """The current task is to stop; no task can catch it by accident."""


class _Inbox:
    """Tasks that arrive on standard input, and the number of the last one that is to stop."""

    def __init__(self) -> None:
        self.tasks: queue.Queue[bytes] = queue.Queue()
        self.stopped = 0
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        """Take the frames; end this process at once when the parent has closed the pipe."""
        number = 0
        while content := self._read(int.from_bytes(self._read(_LENGTH))):
            if content == _STOP:
                self.stopped = number  # of the task that was sent last: the parent sends one after the other
            else:
                number += 1
                self.tasks.put(content)
        self.tasks.put(b"")

    @staticmethod
    def _read(count: int) -> bytes:
        content = b""
        while len(content) < count:
            # not through the buffered reader, whose lock would break a normal exit
            if not (part := os.read(0, count - len(content))):
                os._exit(1)
            content += part
        return content


def _work(imports: Iterable[str]) -> None:
    """Run the tasks that arrive on standard input, and report their events on standard output."""
    lines: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output is no event
    inbox = _Inbox()
    for module in imports:
        with contextlib.suppress(ImportError):
            import_module(module)

    def send(event: Event, value: Any = None) -> None:
        content = json.dumps({event: value}, ensure_ascii=False).encode(errors="backslashreplace")
        try:
            lines.write(content + b"\n")
            lines.flush()
        except OSError:  # the parent is gone, which is no failure of the task
            os._exit(1)

    def run(content: bytes, number: int) -> Any:
        task, sent_at = pickle.loads(content), 0.0  # noqa: S301 (written by `_Process.give`)
        send("begun")

        def report(fraction: float, note: str) -> None:
            nonlocal sent_at
            if inbox.stopped == number:
                raise _StoppedError
            if (now := time.monotonic()) - sent_at >= _OFTEN:
                sent_at = now
                send("progress", [fraction, note])

        return task(report)

    for number in itertools.count(1):
        if not (content := inbox.tasks.get()):
            return
        try:
            done = run(content, number)
        except _StoppedError:
            send("stopped")
        except InputError as error:
            send("refused", str(error))
        except Exception as error:
            traceback.print_exc()
            send("failed", f"{type(error).__name__}: {error}")
        else:
            send("done", done)


if __name__ == "__main__":
    _work(sys.argv[1:])

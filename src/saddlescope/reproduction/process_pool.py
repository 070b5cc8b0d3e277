"""Pool of worker processes that end with their parent, however it ends.

Workers are started afresh, not forked, since JAX and PyTorch do not survive a fork; and not by `multiprocessing`, which
would run the caller's main program once more. A worker is started once and runs many tasks, since the imports of a
task can take longer than the task.

A worker receives frames, a length of eight bytes and a pickle of that length; a frame of length 0 is the last. It
answers in lines of JSON.
"""

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report

APART: dict[str, Any] = {"start_new_session": True, "creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
"""Options of a process that an interrupt from the keyboard does not reach, on POSIX and on Windows."""

Task = Callable[[Report], None]
"""Work of one process, given a progress callback; pickled, so a function or an instance of a class of a module."""

_LENGTH = 8  # bytes of a frame's length


@dataclass(frozen=True)
class TaskProgress:
    """Progress of a task."""

    name: str
    fraction: float
    note: str


@dataclass(frozen=True)
class TaskDone:
    """Completion of a task."""

    name: str


@dataclass(frozen=True)
class TaskRefused:
    """InputError of a task, with its sentence."""

    name: str
    sentence: str


@dataclass(frozen=True)
class TaskFailed:
    """Any other error of a task; standard error has its traceback."""

    name: str
    error: str


@dataclass(frozen=True)
class TaskEnded:
    """Early end of the process of a task, with its exit status: minus the signal that killed it."""

    name: str
    status: int


TaskEvent = TaskProgress | TaskDone | TaskRefused | TaskFailed | TaskEnded


def run_parallel(
    tasks: Mapping[str, Task], *, processes: int, environment: Mapping[str, str] | None = None
) -> Generator[TaskEvent, None, None]:
    """Run tasks in worker processes and yield the events of each as they happen.

    Args:
        tasks: by their names, started in this order.
        processes: number of worker processes, at least 1.
        environment: variables that the workers get unless this process sets them.

    Yields:
        For every task any number of `TaskProgress`, then one of the others. Closing the iterator kills the processes.
    """
    waiting = deque(tasks)
    messages: queue.Queue[tuple[_Process, Any]] = queue.Queue()
    idle: list[_Process] = []
    busy: dict[_Process, str] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                process = idle.pop() if idle else _Process(messages, environment or {})
                busy[process] = waiting.popleft()
                process.give(tasks[busy[process]])
            process, message = messages.get()
            if process not in busy:  # an idle one that was killed from outside
                idle = [other for other in idle if other is not process]
                process.close()
                continue
            name = busy[process]
            match message:
                case [fraction, note]:
                    yield TaskProgress(name, fraction, note)
                    continue
                case None:
                    del busy[process]
                    yield TaskEnded(name, process.close())
                    continue
                case {"refused": sentence}:
                    event: TaskEvent = TaskRefused(name, sentence)
                case {"failed": error}:
                    event = TaskFailed(name, error)
                case _:
                    event = TaskDone(name)
            del busy[process]
            idle.append(process)
            yield event
        for process in idle:
            process.finish()
    finally:
        for process in (*busy, *idle):
            process.close()


class _Process:
    """A worker process, and a thread that puts its messages into the queue, and None at its end."""

    def __init__(self, messages: "queue.Queue[tuple[_Process, Any]]", environment: Mapping[str, str]) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 (this very Python and module)
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **os.environ},
            **APART,
        )
        assert self._popen.stdout is not None
        threading.Thread(target=self._listen, args=(self._popen.stdout, messages), daemon=True).start()

    def _listen(self, output: IO[bytes], messages: "queue.Queue[tuple[_Process, Any]]") -> None:
        with output:
            for line in output:
                with contextlib.suppress(json.JSONDecodeError):  # half a line, of a process killed in the middle of it
                    messages.put((self, json.loads(line)))
        messages.put((self, None))

    def give(self, task: Task) -> None:
        """Send the next task."""
        self._write(pickle.dumps(task))

    def finish(self) -> None:
        """Announce that no task follows, and wait for the end of the process."""
        self._write(b"")
        self._popen.wait()

    def close(self) -> int:
        """Kill the process if it runs, and return its exit status."""
        self._popen.kill()
        status = self._popen.wait()
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # content that it never read
            self._popen.stdin.close()
        return status

    def _write(self, content: bytes) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        with contextlib.suppress(OSError):  # the process has ended; its status says how
            pipe.write(len(content).to_bytes(_LENGTH) + content)
            pipe.flush()  # and stays open: its end is the parent's end


def _work() -> None:
    """Run the tasks that arrive on standard input, and report their events on standard output."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output is no message
    frames: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_receive, args=(frames,), daemon=True).start()

    def send(message: Any) -> None:
        try:
            print(json.dumps(message), file=lines, flush=True)
        except OSError:  # the parent is gone, which is no failure of the task
            os._exit(1)

    while frame := frames.get():
        try:
            task = pickle.loads(frame)  # noqa: S301 (written by `_Process.give`)
            task(lambda fraction, note: send([fraction, note]))
        except InputError as error:
            send({"refused": str(error)})
        except Exception as error:
            traceback.print_exc()
            send({"failed": f"{type(error).__name__}: {error}"})
        else:
            send({"done": True})


def _receive(frames: queue.Queue[bytes]) -> None:
    """Put the frames into the queue; end this process at once when the parent has closed the pipe."""

    def read(count: int) -> bytes:
        content = b""
        while len(content) < count:
            # not through the buffered reader, whose lock would break a normal exit
            if not (part := os.read(0, count - len(content))):
                os._exit(1)
            content += part
        return content

    while length := int.from_bytes(read(_LENGTH)):
        frames.put(read(length))
    frames.put(b"")


if __name__ == "__main__":
    _work()

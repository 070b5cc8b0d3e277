"""Processes that make one task after another, side by side, and end with their parent, however it ends.

They are started afresh, not forked, since JAX and PyTorch do not survive that; and not by `multiprocessing`, which
would run the main program of whoever calls once more. A process is started once and given many tasks, since what a
task imports takes longer than many a task.

A process is given frames, a length of eight bytes and a pickle of that length; one of length 0 is the last. It answers
in lines of JSON.
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

Report = Callable[[float, str], None]
Task = Callable[[Report], None]
"""What a process makes, given where to report; pickled, so an instance of a module's class, or a module's function."""

_LENGTH = 8  # bytes of a frame's length


@dataclass(frozen=True)
class TaskProgress:
    """A task has done a part of its work."""

    name: str
    fraction: float
    note: str


@dataclass(frozen=True)
class TaskDone:
    """A task is done."""

    name: str


@dataclass(frozen=True)
class TaskRefused:
    """A task raised an InputError that says this."""

    name: str
    sentence: str


@dataclass(frozen=True)
class TaskFailed:
    """A task raised another error; standard error has its traceback."""

    name: str
    error: str


@dataclass(frozen=True)
class TaskEnded:
    """The process of a task ended in the middle of it, with this exit status: minus the signal that killed it."""

    name: str
    status: int


TaskEvent = TaskProgress | TaskDone | TaskRefused | TaskFailed | TaskEnded


def run_parallel(
    tasks: Mapping[str, Task], *, processes: int, environment: Mapping[str, str] | None = None
) -> Generator[TaskEvent, None, None]:
    """Makes tasks in processes of their own, and tells what happens to each as it happens.

    Args:
        tasks: by their names, begun in this order.
        processes: how many there are at a time, at least 1.
        environment: variables that the processes have where this one has none of the name.

    Yields:
        For every task any number of `TaskProgress`, then one of the others. Closing the iterator kills the processes.
    """
    waiting = deque(tasks)
    told: queue.Queue[tuple[_Process, Any]] = queue.Queue()
    idle: list[_Process] = []
    busy: dict[_Process, str] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                process = idle.pop() if idle else _Process(told, environment or {})
                busy[process] = waiting.popleft()
                process.give(tasks[busy[process]])
            process, message = told.get()
            if process not in busy:  # an idle one that somebody has killed
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
                    news: TaskEvent = TaskRefused(name, sentence)
                case {"failed": error}:
                    news = TaskFailed(name, error)
                case _:
                    news = TaskDone(name)
            del busy[process]
            idle.append(process)
            yield news
        for process in idle:
            process.send_away()
    finally:
        for process in (*busy, *idle):
            process.close()


class _Process:
    """A process, and a thread that listens to it; what it says goes into the queue, None at its end."""

    def __init__(self, told: "queue.Queue[tuple[_Process, Any]]", environment: Mapping[str, str]) -> None:
        self._popen = subprocess.Popen(  # noqa: S603 (this very Python and module)
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt from the keyboard is the parent's matter
            env={**environment, **os.environ},
        )
        assert self._popen.stdout is not None
        threading.Thread(target=self._listen, args=(self._popen.stdout, told), daemon=True).start()

    def _listen(self, said: IO[bytes], told: "queue.Queue[tuple[_Process, Any]]") -> None:
        with said:
            for line in said:
                with contextlib.suppress(json.JSONDecodeError):  # half a line, of a process killed in the middle of it
                    told.put((self, json.loads(line)))
        told.put((self, None))

    def give(self, task: Task) -> None:
        """Its next task."""
        self._write(pickle.dumps(task))

    def send_away(self) -> None:
        """There are no more tasks: it ends by itself."""
        self._write(b"")
        self._popen.wait()

    def close(self) -> int:
        """Kills it if it runs; its exit status."""
        self._popen.kill()
        status = self._popen.wait()
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it never read
            self._popen.stdin.close()
        return status

    def _write(self, content: bytes) -> None:
        given = self._popen.stdin
        assert given is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already, and its status will say how
            given.write(len(content).to_bytes(_LENGTH) + content)
            given.flush()  # and stays open: its end is the parent's end


def _work() -> None:
    """What a process does: makes the tasks it is given, and tells what becomes of them."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no message
    given: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_receive, args=(given,), daemon=True).start()

    def tell(message: Any) -> None:
        try:
            print(json.dumps(message), file=lines, flush=True)
        except BrokenPipeError:  # the parent is gone, which is no failure of the task
            os._exit(1)

    while frame := given.get():
        try:
            task = pickle.loads(frame)  # noqa: S301 (written by `_Process.give`)
            task(lambda fraction, note: tell([fraction, note]))
        except InputError as error:
            tell({"refused": str(error)})
        except Exception as error:
            traceback.print_exc()
            tell({"failed": f"{type(error).__name__}: {error}"})
        else:
            tell({"done": True})


def _receive(given: queue.Queue[bytes]) -> None:
    """Puts the frames into the queue; ends this process at once when nobody can write to it any more."""

    def read(count: int) -> bytes:
        content = b""
        while len(content) < count:
            # not through the buffered reader, whose lock would break a usual end
            if not (part := os.read(0, count - len(content))):
                os._exit(1)
            content += part
        return content

    while length := int.from_bytes(read(_LENGTH)):
        given.put(read(length))
    given.put(b"")


if __name__ == "__main__":
    _work()

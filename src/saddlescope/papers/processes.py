"""Parts of a run that are made side by side, each in a process of its own.

For parts that keep one processor busy whatever they are given: small networks in PyTorch, whose threads wait for each
other longer than they work. A part is made as `RunContext.kept` makes it, so that a killed run goes on with what is
finished, and each part with its own checkpoint; the number of processes changes no result.

Processes are started afresh, not forked, since JAX and PyTorch do not survive that; and not by `multiprocessing`, which
would run the main program of whoever calls once more. They end with their parent, however it ends.
"""

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from saddlescope.errors import InputError
from saddlescope.papers.context import RunContext

if TYPE_CHECKING:
    import xarray as xr

_REFUSED = 2  # exit status of a process that said in one sentence why it cannot go on


def kept_side_by_side(
    context: RunContext, parts: "Mapping[str, Callable[[RunContext], xr.Dataset]]", *, processes: int
) -> "list[xr.Dataset]":
    """The parts of the run of those names: what a killed run has finished already, else what the callables make.

    Args:
        context: of the run; its progress is the mean of that of the parts.
        parts: what makes each, given a context of its own; with more than one process it is pickled, so it must be a
            function of a module, or an instance of its class.
        processes: how many parts are made at a time; 1 makes them here, one after the other.

    Returns:
        The parts in their order.

    Raises:
        InputError: what a part raised, or its process was killed; finished parts stay.
        RuntimeError: a part failed; standard error has its traceback.
    """
    missing = [name for name in parts if not context.has(name)]
    if min(processes, len(missing)) > 1:
        _make(context, parts, missing, processes)
    share = 1 / len(parts)
    here = [context.within(k * share, (k + 1) * share) for k in range(len(parts))]
    return [
        context.kept(name, partial(part, own)) for (name, part), own in zip(parts.items(), here, strict=True)
    ]  # fmt: skip


def _make(
    context: RunContext,
    parts: "Mapping[str, Callable[[RunContext], xr.Dataset]]",
    missing: list[str],
    processes: int,
) -> None:
    waiting, running = deque(missing), dict[str, subprocess.Popen[bytes]]()
    fractions = {name: float(name not in missing) for name in parts}
    told: queue.Queue[tuple[str, Any]] = queue.Queue()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name = waiting.popleft()
                running[name] = _start(name, parts[name], context, told)
            name, message = told.get()
            match message:
                case [fraction, note]:
                    fractions[name] = fraction
                    context.report(sum(fractions.values()) / len(fractions), note)
                case {"refused": sentence}:
                    raise InputError(sentence)
                case None:
                    _finish(name, running.pop(name))
                    fractions[name] = 1.0
    finally:
        for process in running.values():
            process.kill()
            _close(process)


def _start(
    name: str, part: "Callable[[RunContext], xr.Dataset]", context: RunContext, told: "queue.Queue[tuple[str, Any]]"
) -> "subprocess.Popen[bytes]":
    """A process that makes one part; what it says goes into the queue, None at its end."""
    process = subprocess.Popen(  # noqa: S603 (this very Python and module)
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the keyboard is the parent's matter
    )
    given, said = process.stdin, process.stdout
    assert given is not None
    assert said is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already, and its status will say how
        given.write(pickle.dumps((name, part, context.scratch, context.data)))
        given.flush()  # and stays open: its end is the parent's end

    def listen(said: IO[bytes]) -> None:
        with said:
            for line in said:
                with contextlib.suppress(json.JSONDecodeError):  # half a line, of a process killed in the middle of it
                    told.put((name, json.loads(line)))
        told.put((name, None))

    threading.Thread(target=listen, args=(said,), daemon=True).start()
    return process


def _close(process: "subprocess.Popen[bytes]") -> int:
    """Its exit status, when it has ended; what it said is closed by whoever listens."""
    status = process.wait()
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # what it never read
        process.stdin.close()
    return status


def _finish(name: str, process: "subprocess.Popen[bytes]") -> None:
    """What is to be said of a process that has ended."""
    status = _close(process)
    if status < 0:
        raise InputError(
            f"processes must be few enough for the memory there is; the one of {name} was killed by signal {-status}. "
            "The same command goes on; a smaller processes= takes less memory."
        )
    if status:
        raise RuntimeError(f"The process of {name} failed with status {status}; its error stands above.")


def _work() -> None:
    """What a process does: makes the part it is given, and tells its progress in lines of JSON."""
    name, part, scratch, data = pickle.load(sys.stdin.buffer)  # noqa: S301 (written by `_start`)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lines, sys.stdout = sys.stdout, sys.stderr  # what others print is no message

    def tell(message: Any) -> None:
        print(json.dumps(message), file=lines, flush=True)

    context = RunContext(scratch=scratch, report=lambda fraction, note: tell([fraction, note]), data=data)
    try:
        context.kept(name, partial(part, context))
    except InputError as error:
        tell({"refused": str(error)})
        sys.exit(_REFUSED)


def _end_with_parent() -> None:
    """Ends this process at once when nobody can write to it any more."""
    os.read(sys.stdin.fileno(), 1)  # not through the buffered reader, whose lock would break a usual end
    os._exit(1)


if __name__ == "__main__":
    _work()

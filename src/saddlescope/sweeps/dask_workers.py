"""Points of a sweep on many machines, through a Dask scheduler.

A worker that sees the client's folder, which a token in it proves, stores its points there itself: completed points
survive any crash, and interrupted points resume. A worker that does not see it sends the content of the file back.
"""

import dataclasses
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope._shared.file_locks import file_lock, remove_unheld
from saddlescope._shared.output_paths import new_folder
from saddlescope._shared.progress import Report
from saddlescope.reproduction.own_code import described
from saddlescope.sweeps.point import Point

if TYPE_CHECKING:
    from distributed import Client

_MARK = ".seen-by-"  # beginning of names
_PATIENCE = 10  # seconds to wait for an answer of the scheduler


@dataclasses.dataclass(frozen=True)
class _Remote:
    """Task of a worker: a point, the folder of data and the version of the client, and its token."""

    point: Point
    data: Path | None
    version: str
    token: Path

    def require_fit(self) -> None:
        """Raise InputError if this worker cannot run any point."""
        if (here := version("saddlescope")) != self.version:
            raise InputError(
                f"A worker has saddlescope {here}, and the client has {self.version}: install the same version."
            )
        if self.data is not None and not self.data.is_dir():
            raise InputError(
                f"A worker does not see the folder of data {self.data}: give a folder that all machines see."
            )

    def __call__(self) -> bytes | str | None:
        """Run the point; return None if it is stored, else its content or its error."""
        self.require_fit()
        if os.access(self.token, os.F_OK):  # this machine sees the client's folder
            self.point.run(self.data)
            return None
        with TemporaryDirectory(prefix="saddlescope-") as folder:
            own = dataclasses.replace(self.point, out=Path(folder))
            own.run(self.data)
            return own.error or own.file.read_bytes()


def run_on_cluster(
    points: Sequence[Point],
    scheduler: "str | Client",
    data: Path | None,
    report: Report,
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """Run the points on the workers of a scheduler.

    Args:
        points: the missing points, at least one.
        scheduler: its address, such as `tcp://10.0.0.1:8786`, or a client of it.
        data: folder of data sets, which the workers must see.
        report: called with the share of finished points.
        say: called with sentences about the workers.

    Returns:
        Reasons why points were not run, by their labels, other than their own failures.

    Raises:
        MissingExtraError: Dask is not installed.
        InputError: the scheduler does not answer, or ends; a worker has another saddlescope, or does not see the data.
        StorageError: the folder cannot be written or the disk is full, here or at a worker.
    """
    try:
        from distributed import as_completed
    except ImportError as error:
        raise MissingExtraError("A sweep over many machines", "distributed", "sweep") from error

    notes: dict[str, str] = {}
    with _connected(scheduler) as client, _token(points[0].file.parent) as token:
        made_here = (data and data.resolve(), version("saddlescope"), token)
        tasks = [_Remote(dataclasses.replace(point, out=point.out.resolve()), *made_here) for point in points]
        answers: Any = client.run(tasks[0].require_fit, on_error="return")
        if not answers:
            say("The scheduler has no worker yet. Waiting for one.")
        for answer in filter(None, answers.values()):
            raise InputError(_lack(answer)) from answer
        # One key per call, since a scheduler would answer an old key from memory.
        futures = {
            client.submit(task, key=f"saddlescope-{point.run_folder.digest}{token.name}", pure=False): point
            for task, point in zip(tasks, points, strict=True)
        }
        for done, future in enumerate(as_completed(futures, loop=client.loop), 1):
            point = futures.pop(future)
            if note := _take(point, future):
                notes[point.label] = note
            future.release()
            report(done / len(points), f"{point.label} done")
    return notes


def _lack(error: Exception) -> str:
    """Return what a worker lacks, in a sentence."""
    if isinstance(error, ModuleNotFoundError):
        return f"The workers must have the packages of the client; one lacks {error.name}."
    return str(error) if isinstance(error, InputError) else f"A worker cannot be used: {described(error)}."


def _take(point: Point, future: Any) -> str:
    """Store the result of a worker; return a sentence if the point was not run, though it did not fail."""
    from distributed import CancelledError, KilledWorker

    try:
        result = future.result()
    except KilledWorker as error:
        point.fail(
            f"The workers that ran it ended early, {error.allowed_failures + 1} times, as they do if memory is short."
        )
        return ""
    except (CancelledError, TimeoutError, OSError) as error:
        raise InputError(
            "The scheduler ended, or no longer answers. Finished points are stored: rerun the same command, with a "
            "running scheduler, to resume."
        ) from error
    except InputError:  # of a disk, or of a worker that joined later
        raise
    except ModuleNotFoundError as error:
        raise InputError(_lack(error)) from error
    except Exception as error:
        return f"A worker could not run it: {described(error)}"
    if isinstance(result, bytes):
        point.store_run(result)
    elif result is not None:
        point.fail(result)
    return ""


@contextmanager
def _connected(scheduler: "str | Client") -> "Iterator[Client]":
    """Yield a client of the scheduler; close it at the end unless it was passed."""
    from distributed import Client

    if isinstance(scheduler, Client):
        yield scheduler
        return
    logger = logging.getLogger("distributed.client")

    def never(record: logging.LogRecord) -> bool:
        """Refuse all: our own error reports the end of the scheduler, in one sentence."""
        return False

    logger.addFilter(never)  # of this call alone, since calls may overlap
    try:
        try:
            client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            raise InputError(
                "scheduler must be the address of a running Dask scheduler, such as tcp://10.0.0.1:8786; got "
                f"{scheduler!r}."
            ) from error
        try:
            yield client
        finally:
            with suppress(OSError, TimeoutError):
                client.close(timeout=_PATIENCE)
    finally:
        logger.removeFilter(never)


@contextmanager
def _token(folder: Path) -> Iterator[Path]:
    """Keep a file with a random name in the folder while the sweep lasts, and remove those of killed clients."""
    token = folder.resolve() / f"{_MARK}{secrets.token_hex(8)}"
    with new_folder(folder), file_lock(token, ""):
        for path in folder.glob(f"{_MARK}*"):
            remove_unheld(path)
        yield token

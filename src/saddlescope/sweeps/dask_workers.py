"""Making points on many machines, through a Dask scheduler.

A worker that sees the client's folder, which a token in it proves, stores its points there itself: what it has finished
stays, whoever is killed, and a point that was interrupted goes on where it was. One that does not see it sends the
content of the file back.
"""

import dataclasses
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from saddlescope import store
from saddlescope._shared.errors import InputError, MissingExtraError, StorageError
from saddlescope.reproduction.process_pool import Report
from saddlescope.sweeps.point import Point, sentence

if TYPE_CHECKING:
    from distributed import Client

_PATIENCE = 10  # seconds to wait for an answer of the scheduler


@dataclasses.dataclass(frozen=True)
class _Token:
    """A file of the client's folder and what stands in it."""

    file: Path
    text: str

    def seen(self) -> bool:
        """Whether this machine sees the folder."""
        with suppress(OSError, UnicodeDecodeError):
            return self.file.read_text() == self.text
        return False


@dataclasses.dataclass(frozen=True)
class _Unfit:
    """Why a worker cannot make a point, whatever the point."""

    sentence: str


@dataclasses.dataclass(frozen=True)
class _Needs:
    """What a worker must have."""

    data: Path | None
    version: str

    def __call__(self) -> str:
        """What this one lacks, in a sentence; empty when it is fit."""
        if (here := version("saddlescope")) != self.version:
            return f"A worker has saddlescope {here}, and the client has {self.version}: install the same."
        if self.data is not None and not self.data.is_dir():
            return f"A worker does not see the folder of data {self.data}: give one that all machines see."
        return ""


@dataclasses.dataclass(frozen=True)
class _Remote:
    """What a worker is given: a point, and what it must know of the client."""

    point: Point
    needs: _Needs
    token: _Token

    def __call__(self) -> bytes | str | _Unfit | None:
        """Makes the point: None when it is stored, else its content, why it failed, or why this worker is unfit."""
        if lacks := self.needs():
            return _Unfit(lacks)
        data = self.needs.data
        if self.token.seen():
            self.point.run(data)
            return None
        with TemporaryDirectory(prefix="saddlescope-") as folder:
            own = dataclasses.replace(self.point, out=Path(folder))
            own.run(data)
            return own.error or own.file.read_bytes()


def make_on_cluster(
    points: Sequence[Point],
    scheduler: "str | Client",
    data: Path | None,
    report: Report,
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """Makes the points on the workers of a scheduler.

    Args:
        points: what is missing, at least one.
        scheduler: its address, such as `tcp://10.0.0.1:8786`, or a client of it.
        data: folder of data sets, which the workers must see.
        report: called with the share of points that are done.
        say: called with a sentence on what is going on.

    Returns:
        Why points were not made, by their labels, where it is no failure of theirs.

    Raises:
        MissingExtraError: Dask is not installed.
        InputError: the scheduler does not answer, or ends; the workers have no saddlescope.
        StorageError: the folder cannot be written or the disk is full, here or at a worker.
    """
    try:
        from distributed import as_completed
    except ImportError as error:
        raise MissingExtraError("A sweep over many machines", "distributed", "sweep") from error

    notes: dict[str, str] = {}
    with _connected(scheduler) as client, _token(points[0].file.parent) as token:
        needs = _Needs(data.resolve() if data is not None else None, version("saddlescope"))
        chosen = _fit_workers(client, needs, say)
        there = [dataclasses.replace(point, out=point.out.resolve()) for point in points]
        tasks = [_Remote(point, needs, token) for point in there]
        # A key of its own for every call, since a scheduler would answer an old one from memory.
        futures = {
            client.submit(task, key=f"saddlescope-{point.place.digest}-{token.text}", pure=False, workers=chosen): point
            for task, point in zip(tasks, points, strict=True)
        }
        for done, future in enumerate(as_completed(futures, loop=client.loop), 1):
            point = futures.pop(future)
            if note := _take(point, future):
                notes[point.label] = note
            future.release()
            report(done / len(points), f"{point.label} done")
    return notes


def _fit_workers(client: "Client", needs: _Needs, say: Callable[[str], None]) -> list[str] | None:
    """The workers to use; None for all, with those that join later.

    One that is unfit must not take points: it is done with each in no time, and would take nearly all.

    Raises:
        InputError: there are workers, and all are unfit.
    """
    found: Any = client.run(needs, on_error="return")
    if not found:
        say("The scheduler has no worker yet: waiting for one.")
    unfit = {address: _lack(told) for address, told in found.items() if told != ""}
    if not unfit:
        return None
    if len(unfit) == len(found):
        raise InputError(next(iter(unfit.values())))
    say(f"{len(unfit)} of {len(found)} workers are left out. {next(iter(unfit.values()))}")
    return [address for address in found if address not in unfit]


def _lack(told: str | Exception) -> str:
    """What a worker lacks, in a sentence."""
    if isinstance(told, ModuleNotFoundError):
        return f"The workers must have what the client has; one lacks {told.name}."
    return told if isinstance(told, str) else f"A worker cannot be used: {sentence(told)}."


def _take(point: Point, future: Any) -> str:
    """Stores what a worker has sent; a sentence where the point was not made through no fault of its own."""
    from distributed import CancelledError, KilledWorker

    try:
        made = future.result()
    except KilledWorker as error:
        point.fail(
            f"The workers that made it ended in the middle, {error.allowed_failures + 1} times, as they do where "
            "memory is short."
        )
        return ""
    except (CancelledError, TimeoutError, OSError) as error:
        raise InputError(
            "The scheduler ended, or does not answer any more. What is finished is stored: the same command, with a "
            "scheduler that runs, goes on."
        ) from error
    except StorageError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(_lack(error)) from error
    except Exception as error:
        return f"A worker could not make it: {sentence(error)}"
    match made:
        case bytes():
            point.keep(made)
        case str():
            point.fail(made)
        case _Unfit(told):
            return told
    return ""


@contextmanager
def _connected(scheduler: "str | Client") -> "Iterator[Client]":
    """A client of the scheduler; closed at the end unless it was given."""
    from distributed import Client

    if isinstance(scheduler, Client):
        yield scheduler
        return
    with _told_by_us("distributed.client"):
        try:
            client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, TypeError, ValueError) as error:
            raise InputError(
                "The scheduler must be the address of a Dask scheduler that answers, such as tcp://10.0.0.1:8786; got "
                f"{scheduler!r}."
            ) from error
        try:
            yield client
        finally:
            with suppress(OSError, TimeoutError):
                client.close(timeout=_PATIENCE)


@contextmanager
def _told_by_us(name: str) -> Iterator[None]:
    """Keeps a logger silent: that the scheduler ended is told by an error of ours, not by pages of its own."""
    logger = logging.getLogger(name)

    def silent(record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(silent)
    try:
        yield
    finally:
        logger.removeFilter(silent)


@contextmanager
def _token(folder: Path) -> Iterator[_Token]:
    """A token in the folder, while the sweep lasts."""
    text = secrets.token_hex(8)
    token = _Token(folder.resolve() / f".seen-by-{text}", text)
    store.write_bytes(text.encode(), token.file)
    try:
        yield token
    finally:
        with suppress(OSError):
            token.file.unlink()

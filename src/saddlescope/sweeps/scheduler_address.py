"""Check of a scheduler's address, before any work: Dask's own client gives up on a wrong one after half a minute."""

import asyncio
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from saddlescope._shared.errors import InputError, MissingExtraError

_ADDRESS = re.compile(
    r"(?:(?P<protocol>[a-z]+)://)?(?:\[(?P<six>[0-9a-fA-F:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})/?"
)
_PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx", "ucxx", "inproc")
_PATIENCE = 2.0  # seconds in which a machine answers that exists and is reached
_BUSY = 10.0  # seconds in which a scheduler answers that may be busy


def require_scheduler(address: str) -> None:
    """Raise unless a Dask scheduler answers at an address such as `tcp://10.0.0.1:8786`.

    Raises:
        MissingExtraError: Dask is not installed.
        InputError: it is no address, its host is unknown or silent, or something else answers there.
    """
    if find_spec("distributed") is None:
        raise MissingExtraError("A sweep over many machines", "distributed", "sweep")
    if address.startswith("inproc://"):  # a scheduler in this process, known to Dask alone
        return
    found = _ADDRESS.fullmatch(address)
    if found is None or (found["protocol"] or "tcp") not in _PROTOCOLS or not 0 < int(found["port"]) < 2**16:
        raise _unfit(address, "it is no PROTOCOL://HOST:PORT")
    if (found["protocol"] or "tcp").startswith("ucx"):
        return
    try:
        socket.create_connection((found["six"] or found["host"], int(found["port"])), timeout=_PATIENCE).close()
    except TimeoutError:
        raise _unfit(address, f"no answer within {_PATIENCE:g} seconds") from None
    except socket.gaierror:
        raise _unfit(address, "the host is unknown") from None
    except OSError as error:
        raise _unfit(address, (error.strerror or "it cannot be reached").lower()) from None
    if found["protocol"] in (None, "tcp"):  # others need certificates or paths, which only the client knows
        _require_answer(address)


def _require_answer(address: str) -> None:
    with ThreadPoolExecutor(1) as own:  # a notebook's thread has a running loop already
        try:
            kind = own.submit(asyncio.run, _identity(address)).result()
        except Exception:  # foreign bytes make Dask raise anything, such as MemoryError for a length
            kind = None
    if kind != "Scheduler":
        raise _unfit(address, "a worker answers there" if kind == "Worker" else "something else answers there")


async def _identity(address: str) -> Any:
    """Return the kind of Dask's server at an address, "Scheduler" or "Worker"; None for anything else."""
    from distributed.comm.core import connect

    comm = await asyncio.wait_for(connect(address, timeout=_PATIENCE), 2 * _PATIENCE)
    try:
        await comm.write({"op": "identity", "reply": True})
        answer = await asyncio.wait_for(comm.read(), _BUSY)
        return answer.get("type") if isinstance(answer, dict) else None
    finally:
        await comm.close()


def _unfit(address: str, reason: str) -> InputError:
    return InputError(
        "scheduler must be the address of a running Dask scheduler, such as tcp://10.0.0.1:8786; got "
        f"{address!r}: {reason}."
    )

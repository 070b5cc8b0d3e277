"""Check of a scheduler's address, before any work: Dask's own client gives up on a wrong one after half a minute."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from saddlescope._shared.errors import InputError, MissingExtraError

_OTHERS = ("tls", "ws", "wss", "ucx", "ucxx", "inproc")  # need certificates or paths, which only the client knows


def require_scheduler(address: str, *, reached: float = 2.0, answered: float = 10.0) -> None:
    """Raise unless a Dask scheduler answers at an address such as `tcp://10.0.0.1:8786`.

    Args:
        address: of the scheduler.
        reached: seconds in which a machine answers that exists and is reached.
        answered: seconds in which a scheduler answers that may be busy.

    Raises:
        MissingExtraError: Dask is not installed.
        InputError: it is no address, its host is unknown or silent, or something else answers there.
    """
    if find_spec("distributed") is None:
        raise MissingExtraError("A sweep over many machines", "distributed", "sweep")
    protocol, _, rest = address.rpartition("://")
    if rest and protocol in _OTHERS:
        return
    with ThreadPoolExecutor(1) as own:  # a notebook's thread has a running loop already
        try:
            kind = own.submit(asyncio.run, _identity(address, reached, answered)).result()
        except Exception:  # foreign bytes make Dask raise anything, such as MemoryError for a length
            kind = None
    if kind != "Scheduler":
        raise InputError(
            "scheduler must be the address of a running Dask scheduler, such as tcp://10.0.0.1:8786; got "
            f"{address!r}: {'a worker' if kind == 'Worker' else 'none'} answers there."
        )


async def _identity(address: str, reached: float, answered: float) -> Any:
    """Return the kind of Dask's server at an address, "Scheduler" or "Worker"; None for anything else."""
    from distributed.comm.core import connect

    comm = await asyncio.wait_for(connect(address, timeout=reached), 2 * reached)
    try:
        await comm.write({"op": "identity", "reply": True})
        answer = await asyncio.wait_for(comm.read(), answered)
        return answer.get("type") if isinstance(answer, dict) else None
    finally:
        await comm.close()

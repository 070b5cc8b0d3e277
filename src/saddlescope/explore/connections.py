"""Connections of the live page: strangers on this machine may open many, and cannot stop it with them."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_PATIENCE = 5.0  # seconds in which a connection must have sent a whole request
_MOST = 200  # connections; a process may have 1024 files open, or fewer


class Connection(H11Protocol):
    """Connection that is closed unless a request is being answered, or arrives within five seconds.

    Each byte of a header or a body ends uvicorn's own timer, which starts after a response. Beyond 200 connections the
    oldest one without a request is closed.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._made_at = self.loop.time()
        self._wait()
        others = [one for one in self.connections if isinstance(one, Connection) and not one._answers]
        if len(self.connections) > _MOST:
            min(others, key=lambda one: one._made_at).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    @property
    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_PATIENCE, self._close_unless_it_answers)

    def _close_unless_it_answers(self) -> None:
        if not self._answers and not self.transport.is_closing():
            self.transport.close()

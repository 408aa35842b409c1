"""HTTP as uvicorn speaks it, with a limit on how long a client may take to say what it wants."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""From the start of a connection, or the end of an answer, to the end of the next request's headers."""


class PatientProtocol(H11Protocol):
    """Closes connections whose request does not come: clients that send a byte now and then would keep all of them."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin the time for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop the time for a request when its headers are complete."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop()

    def on_response_complete(self) -> None:
        """Begin the time for the next request when an answer is out."""
        self._stop()
        self._wait()
        before = self.cycle
        super().on_response_complete()
        if self.cycle is not before:  # the next request was there already
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time: nobody waits any more."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

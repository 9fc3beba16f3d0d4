"""The client of nats-py, held to our rules where its own are too trusting.

Owns four differences: a message is handed on as the bytes it is, for nats-py stops reading for good when a subject is
no UTF-8; the end of a connection is told and nothing more, because nats-py would wait for a stuck server to read what
is left; to a server that should be encrypted and is not, nothing is said, not even who we are; and a connection can be
cut. They reach into its inside, so the version is pinned to the last dot; each has a test that fails without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nats import errors
from nats.aio.client import Client

Arrived = Callable[[str, bytes, bytes, bytes], object]
"""Told the subject that was subscribed to, that of the message, its headers and its data. Must not raise."""

CONNECTING = 5
"""Seconds for each step of a connection: the network, TLS, the greeting."""

CLOSING = 2.0
"""Seconds for what a connection leaves behind, once it is cut."""

PENDING = 4 << 20
"""Bytes that nats-py may hold before publishing waits. Our own queue is before it, so it is never full."""

NEVER = 10**9
"""Seconds between its own heartbeats: we have one that bounds how long an answer may take."""


class NatsClient(Client):
    """One connection, from its beginning to its end; it does not come back."""

    def __init__(self, arrived: Arrived, *, encrypted: bool) -> None:
        super().__init__()
        self._arrived = arrived
        self._encrypted = encrypted
        self.over = asyncio.Event()
        """Set when the connection cannot be used any more."""
        self.trouble: Exception | None = None
        """What went wrong last."""

    async def join(self, url: str, refused: Callable[[str], object], **options: Any) -> None:
        """Connect, with one try; raises what nats-py raises. `refused` is told what the server forbids us."""

        async def told(error: Exception) -> None:
            if "permissions violation" in str(error):
                refused(str(error))
            else:
                self.trouble = error

        async def closed() -> None:
            self.over.set()

        await self.connect(
            url,
            error_cb=told,
            closed_cb=closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECTING,
            ping_interval=NEVER,
            no_echo=True,
            pending_size=PENDING,
            **options,
        )

    async def end(self) -> None:
        """Cut the connection now, whatever has not been written yet, and let go of everything."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        with suppress(Exception):  # of a connection that is gone, nothing has to be said any more
            await asyncio.wait_for(self.close(), CLOSING)

    # Where nats-py is too trusting.

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        subscription = self._subs.get(sid)
        if subscription is not None:
            self._arrived(subscription.subject, subject, headers or b"", data)
        await asyncio.sleep(0)  # a flood of messages must not keep everybody else from their turn

    async def _process_op_err(self, e: Exception) -> None:
        self.trouble = e
        self.over.set()

    async def _read_loop(self) -> None:
        try:
            await super()._read_loop()
        finally:
            self.over.set()

    def _connect_command(self) -> bytes:
        if self._encrypted and not self._server_info.get("tls_required"):
            raise errors.Error("the server offers no TLS, and tls:// means nothing less")
        return super()._connect_command()

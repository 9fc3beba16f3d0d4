"""`Outbox`: sends large bodies in parts, as their receiver gives credits."""

from __future__ import annotations

import asyncio

from plugbay.cluster import envelope
from plugbay.cluster.chunks import CHUNK, STALLED_SECONDS, WHOLE, Sending
from plugbay.cluster.envelope import Part
from plugbay.cluster.wire import Wire

AT_ONCE = 4
"""Bodies on their way at the same time: 8 MiB without credits."""

HEAD_ROOM = 4 << 10
"""Bytes of a message beside its part."""


class Outbox:
    """The large bodies that one gateway or node sends."""

    def __init__(self, wire: Wire, sender: str) -> None:
        """`sender` is the name that receivers know."""
        self._wire = wire
        self._sender = sender
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._going: dict[str, tuple[Sending, asyncio.Event]] = {}
        self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def is_large(self, size: int) -> bool:
        """Whether a message goes in parts."""
        return size > (min(WHOLE, self._wire.max_payload) if self._wire.is_up else WHOLE)

    async def send(self, subject: str, call: str, body: bytes) -> bool:
        """Send a body; False when the receiver did not get all of it, or `stop` was called."""
        self._waiting += 1
        self._idle.clear()
        try:
            async with self._turns:
                return await self._send(subject, call, body)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._idle.set()

    async def _send(self, subject: str, call: str, body: bytes) -> bool:
        sending = Sending(body, max(1, min(CHUNK, self._wire.max_payload - HEAD_ROOM)))
        going = self._going[call] = (sending, asyncio.Event())
        try:
            while not sending.is_over:
                if self._going.get(call) is not going or not self._post_due(subject, call, sending):
                    return False
                await asyncio.wait_for(going[1].wait(), STALLED_SECONDS)
                going[1].clear()
        except TimeoutError:
            return False
        finally:
            if self._going.get(call) is going:
                del self._going[call]
        return True

    def _post_due(self, subject: str, call: str, sending: Sending) -> bool:
        size = len(sending.body)
        for seq, data, digest in sending.due():
            part = Part(kind="data", call=call, sender=self._sender, seq=seq, size=size, sha256=digest)
            if not self._wire.post(subject, envelope.pack(part, data)):
                return False
        return True

    def credit(self, call: str, count: int) -> None:
        """The receiver has so many parts."""
        going = self._going.get(call)
        if going is not None:
            going[0].credit(count)
            going[1].set()

    def stop(self, call: str) -> None:
        """Send no more parts of a body."""
        going = self._going.pop(call, None)
        if going is not None:
            going[1].set()

    async def wait_idle(self) -> None:
        """Wait until nothing is on its way."""
        await self._idle.wait()

    def give_credit(self, subject: str, part: Part) -> None:
        """Tell the sender that a part has arrived."""
        credit = Part(kind="credit", call=part.call, sender=self._sender, seq=part.seq + 1, size=part.size)
        self._wire.post(subject, envelope.pack(credit))

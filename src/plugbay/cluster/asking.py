"""`Asker`: the questions of a node to any gateway of its cell: for leases, and for what its plugins ask of their host.

An answer may be lost with a connection or a gateway. Then the failure says so, and the node decides what is safe.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from plugbay.cluster import envelope
from plugbay.cluster.envelope import Ask, Frame
from plugbay.cluster.requests import decode_answer, encode_request
from plugbay.cluster.subjects import Subjects, last_word
from plugbay.cluster.wire import NO_RESPONDERS, Wire
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import CompleteChat, InvokeAction
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

REQUEST_SECONDS = 15.0
"""For storage and memory."""

CHAT_SECONDS = 600.0
"""For the reply of a language model."""

ACTION_SECONDS = 30.0
"""For an action without a timeout of its own."""

Kind = Literal["take", "renew", "release", "request"]


class _Waiting:
    """A question without an answer."""

    __slots__ = ("future", "on_progress", "seq")

    def __init__(self, on_progress: Callable[[Any], None] | None) -> None:
        self.future: asyncio.Future[bytes | Failure] = asyncio.get_running_loop().create_future()
        self.on_progress = on_progress
        self.seq = 0

    def settle(self, answer: bytes | Failure) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class Asker:
    """The questions of one node."""

    def __init__(self, wire: Wire, subjects: Subjects, node: str, boot: str) -> None:
        self._wire = wire
        self._subjects = subjects
        self._node = node
        self._boot = boot
        self._codec = MsgspecCodec()
        self._waiting: dict[str, _Waiting] = {}
        wire.add(subjects.answers(node), self._on_answer)

    async def ask(
        self,
        kind: Kind,
        seconds: float,
        leases: Mapping[str, int],
        plugin: str = "",
        body: bytes = b"",
        on_progress: Callable[[Any], None] | None = None,
    ) -> bytes | Failure:
        """The body of the answer; a `Failure` also if there is none in time."""
        id, waiting = os.urandom(16).hex(), _Waiting(on_progress)
        ask = Ask(
            id=id,
            node=self._node,
            boot=self._boot,
            kind=kind,
            leases=dict(leases),
            plugin=plugin,
            budget_ms=round(seconds * 1000),
        )
        self._waiting[id] = waiting
        try:
            message = envelope.pack(ask, body)
            if self._wire.is_up and len(message) > self._wire.max_payload:
                text = f"the request has {len(message):,} bytes; NATS takes at most {self._wire.max_payload:,} at once"
                return Failure(Code.FRAME_TOO_LARGE, text, origin=Origin.SYSTEM)
            reply = self._subjects.answer(self._node, id)
            if not await self._wire.publish(self._subjects.ask(self._node), message, reply):
                return _unavailable("the node is not connected to NATS")
            async with asyncio.timeout(seconds):
                return await waiting.future
        except TimeoutError:
            return _unavailable("no gateway has answered in time; whether the request was carried out is unknown")
        finally:
            del self._waiting[id]

    async def request(self, lease: str, epoch: int, plugin: str, op: Any, progress: Callable[[Any], None]) -> Any:
        """The answer to a request of a plugin, which holds the lease with this epoch; a `Failure` if there is none."""
        try:
            body = encode_request(op, self._codec)
            leases = {lease: epoch} if lease else {}
            answer = await self.ask("request", _seconds_for(op), leases, plugin, body, progress)
            return answer if isinstance(answer, Failure) else decode_answer(answer, self._codec)
        except Malformed as error:
            return Failure(Code.MALFORMED_RESPONSE, f"the answer of the gateway: {error}", origin=Origin.SYSTEM)

    def lose(self) -> None:
        """The connection has ended, and with it the answers."""
        for waiting in list(self._waiting.values()):
            waiting.settle(_unavailable("the connection to NATS was lost; whether it was carried out is unknown"))

    def _on_answer(self, subject: bytes, headers: bytes, data: bytes) -> None:
        waiting = self._waiting.get(last_word(subject))
        if waiting is None:
            return
        if headers.startswith(NO_RESPONDERS):
            waiting.settle(_unavailable("no gateway is there"))
            return
        try:
            frame, body = envelope.unpack(Frame, data)
            self._take(waiting, frame, body)
        except (Malformed, msgspec.DecodeError) as error:
            waiting.settle(Failure(Code.MALFORMED_RESPONSE, f"the answer of the gateway: {error}"))

    def _take(self, waiting: _Waiting, frame: Frame, body: bytes) -> None:
        if frame.kind == envelope.DONE:
            failure = None if frame.failure is None else envelope.failure_from_json(frame.failure)
            waiting.settle(body if failure is None else failure)
        elif frame.kind == envelope.PROGRESS and frame.seq >= waiting.seq and waiting.on_progress is not None:
            waiting.seq = frame.seq + 1
            waiting.on_progress(decode_answer(body, self._codec))


def _seconds_for(op: Any) -> float:
    if isinstance(op, CompleteChat):
        return CHAT_SECONDS
    if isinstance(op, InvokeAction):
        return (op.timeout_ms / 1000 or ACTION_SECONDS) + 1.0
    return REQUEST_SECONDS


def _unavailable(text: str) -> Failure:
    return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, retryable=True, retry_after_ms=1000)

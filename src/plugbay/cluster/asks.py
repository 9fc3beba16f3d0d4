"""`Asks`: what a gateway answers the nodes of its cell: who holds a lease, and requests of plugins to their host.

One gateway gets each question. The name of the node is in the subject, so its NATS user decides which node may ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from plugbay.cluster import envelope
from plugbay.cluster.envelope import Ask, Frame
from plugbay.cluster.requests import decode_request, encode_answer
from plugbay.cluster.subjects import GATEWAYS, Subjects, last_word
from plugbay.cluster.wire import Wire
from plugbay.link.cancellation import end_tasks
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.values import Value
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

LOG = logging.getLogger("plugbay.cluster")

MAX_ASKED = 256
"""Questions of one node at once."""


class Holder(NamedTuple):
    """The holder of a lease."""

    node: str
    epoch: int


class SingletonLeases(Protocol):
    """The leases of plugins that run on one node at a time. Raises `CallFailed` when the store is away."""

    @property
    def seconds(self) -> float:
        """Their length."""
        ...

    async def take(self, name: str, node: str, boot: str) -> tuple[bool, Holder]:
        """Whether the node has it now, with an epoch that it never had before; and the present holder."""
        ...

    async def renew(self, held: Mapping[str, int], node: str, boot: str) -> list[str]:
        """The names that the node still holds with these epochs."""
        ...

    async def release(self, held: Mapping[str, int], node: str, boot: str) -> None:
        """Give them back, so that another node takes them at once."""


class PluginRequests(Protocol):
    """Answers requests of plugins on nodes."""

    async def answer(
        self, node: str, boot: str, plugin: str, leases: Mapping[str, int], op: Value, progress: Callable[[Any], None]
    ) -> Any:
        """The answer, or a `Failure`."""


class Asks:
    """The questions that one gateway answers."""

    def __init__(self, wire: Wire, subjects: Subjects, leases: SingletonLeases, requests: PluginRequests) -> None:
        self._wire = wire
        self._subjects = subjects
        self._leases = leases
        self._requests = requests
        self._codec = MsgspecCodec()
        self._asked = Counter[str]()
        self._tasks: set[asyncio.Task[None]] = set()
        wire.add(subjects.asks, self._on_ask, GATEWAYS)

    async def stop(self) -> None:
        """Answer no more."""
        await end_tasks(self._tasks)

    def _on_ask(self, subject: bytes, headers: bytes, data: bytes) -> None:
        try:
            ask, body = envelope.unpack(Ask, data)
        except Malformed as error:
            LOG.warning("a question cannot be read: %s", error)
            return
        if ask.node != last_word(subject):
            LOG.warning("a question of %s came as %s", last_word(subject), ask.node)
            return
        task = asyncio.get_running_loop().create_task(self._serve(ask, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, ask: Ask, body: bytes) -> None:
        outgoing: asyncio.Queue[tuple[Frame, bytes] | None] = asyncio.Queue()
        sending = asyncio.get_running_loop().create_task(self._send(ask, outgoing))
        self._asked[ask.node] += 1
        try:
            if self._asked[ask.node] > MAX_ASKED:
                text = f"{MAX_ASKED} questions of the node {ask.node} wait for their answers"
                raise CallFailed(Failure(Code.OVERLOADED, text, origin=Origin.SYSTEM, retryable=True))
            async with asyncio.timeout(ask.budget_ms / 1000):
                answer = await self._answer(ask, body, outgoing)
        except CallFailed as error:
            answer = error.failure
        except (Malformed, TimeoutError) as error:
            answer = Failure(Code.INVALID_INPUT, f"the question cannot be answered: {error}", origin=Origin.SYSTEM)
        except Exception as error:
            LOG.exception("a question of a node failed")
            answer = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}", origin=Origin.SYSTEM)
        finally:
            self._asked[ask.node] -= 1
        failure = envelope.failure_to_json(answer) if isinstance(answer, Failure) else None
        outgoing.put_nowait((_frame(ask, envelope.DONE, 0, failure), b"" if isinstance(answer, Failure) else answer))
        outgoing.put_nowait(None)
        await sending

    async def _send(self, ask: Ask, outgoing: asyncio.Queue[tuple[Frame, bytes] | None]) -> None:
        subject = self._subjects.answer(ask.node, ask.id)
        while (item := await outgoing.get()) is not None:
            await self._wire.publish(subject, self._fitting(ask, *item))

    def _fitting(self, ask: Ask, frame: Frame, body: bytes) -> bytes:
        """The message; a failure in place of one that NATS does not take."""
        message = envelope.pack(frame, body)
        if not self._wire.is_up or len(message) <= self._wire.max_payload:
            return message
        text = f"the answer has {len(message):,} bytes; NATS takes at most {self._wire.max_payload:,} at once"
        failure = Failure(Code.FRAME_TOO_LARGE, text, origin=Origin.SYSTEM)
        return envelope.pack(_frame(ask, envelope.DONE, 0, envelope.failure_to_json(failure)))

    async def _answer(self, ask: Ask, body: bytes, outgoing: asyncio.Queue[Any]) -> bytes | Failure:
        if ask.kind == "take":
            return await self._take(ask)
        if ask.kind == "renew":
            kept = await self._leases.renew(ask.leases, ask.node, ask.boot)
            return self._codec.encode({"kept": kept, "seconds": self._leases.seconds})
        if ask.kind == "release":
            await self._leases.release(ask.leases, ask.node, ask.boot)
            return self._codec.encode({})
        seq = iter(range(1 << 62))

        def progress(item: Any) -> None:
            frame = _frame(ask, envelope.PROGRESS, next(seq))
            outgoing.put_nowait((frame, encode_answer(item, self._codec)))

        op = decode_request(body, self._codec)
        answer = await self._requests.answer(ask.node, ask.boot, ask.plugin, ask.leases, op, progress)
        return answer if isinstance(answer, Failure) else encode_answer(answer, self._codec)

    async def _take(self, ask: Ask) -> bytes:
        if len(ask.leases) != 1:
            raise Malformed("one lease is taken at a time")
        taken, holder = await self._leases.take(next(iter(ask.leases)), ask.node, ask.boot)
        found = {"taken": taken, "node": holder.node, "epoch": holder.epoch, "seconds": self._leases.seconds}
        return self._codec.encode(found)


def _frame(ask: Ask, kind: Any, seq: int, failure: dict[str, Any] | None = None) -> Frame:
    return Frame(call=ask.id, node=ask.node, seq=seq, kind=kind, failure=failure)

"""`LiveStreams`: live events of invocations and runs, shared by the gateways of a cluster with NATS.

Without NATS, or while it is away, watchers see starts and ends of other gateways as the database has them; the events
in between are lost. What is published here was redacted before, and is shown only to watchers that may see the org.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from plugbay.host.ports import InvocationRecord
from plugbay.server.domain.invocations import (
    ENDED,
    InvocationEvent,
    InvocationEvents,
    OtherInvocations,
    Subscription,
)
from plugbay.server.domain.run_loop import FeedEvent, RunFeed
from plugbay.server.domain.runs import Runs
from plugbay.store.invocations import Outcome
from plugbay.store.runs import Run

if TYPE_CHECKING:
    from plugbay.cluster.live import Kind, Live

LOG = logging.getLogger("plugbay.server.domain")

MAX_KEPT = 128 << 10
"""Bytes of a result that is sent with the end of an invocation; a larger one is read from the database."""


class InvocationMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An `InvocationEvent` of another gateway."""

    type: str
    record: InvocationRecord
    data: msgspec.Raw
    outcome: Outcome


_ENCODE = msgspec.json.Encoder().encode
_INVOCATION = msgspec.json.Decoder(InvocationMessage)
_RUN = msgspec.json.Decoder(dict[str, Any])


class LiveStreams:
    """The live events of one gateway."""

    _live: Live | None = None

    def __init__(self, events: InvocationEvents, others: OtherInvocations, runs: Runs) -> None:
        self._events = events
        self._others = others
        self._runs = runs

    def join(self, live: Live) -> None:
        """Share events with other gateways from now on."""
        self._live = live
        self._events.share, self._runs.feeds.share = self._send_invocation, self._send_run
        self._others.waits = self._runs.waits = True
        live.on_event, live.on_lost = self._take, self._lose

    @asynccontextmanager
    async def watching(self, watcher: Subscription | RunFeed) -> AsyncIterator[None]:
        """Give a watcher the events of other gateways too, and close it in the end.

        It is told if it may have missed some at first.
        """
        async with AsyncExitStack() as stack:
            stack.callback(watcher.close)
            if self._live is not None:
                is_complete = await stack.enter_async_context(self._live.watching(watcher.org_id))
                # What was relayed before came for another watcher, who may have left meanwhile.
                if watcher.is_relayed or not is_complete:
                    watcher.lose(None)
            yield

    # To other gateways.

    def _send_invocation(self, event: InvocationEvent) -> None:
        record, outcome = event.record, event.outcome
        if self._live is None or record is None:
            return
        if event.type == ENDED and len(outcome.result or b"") > MAX_KEPT:
            return  # other gateways read it from the database
        data = event.data if isinstance(event.data, msgspec.Raw) else msgspec.Raw(_ENCODE(event.data))
        body = _ENCODE(InvocationMessage(event.type, record, data, outcome))
        self._live.publish(record.org_id, "invocation", record.invocation_id, body)

    def _send_run(self, run: Run, event: FeedEvent) -> None:
        if self._live is not None:
            self._live.publish(run.org_id, "run", run.id, _ENCODE(event))

    # From other gateways.

    def _take(self, kind: Kind, id: str, body: bytes) -> None:
        try:
            if kind == "run":
                event = _RUN.decode(body)
                if not isinstance(event.get("type"), str):
                    raise ValueError("an event without a type")
                self._runs.show(id, event)
            else:
                message = _INVOCATION.decode(body)
                self._others.take(
                    InvocationEvent(message.type, message.record, msgspec.Raw(message.data), message.outcome)
                )
        except (ValueError, RecursionError) as error:
            LOG.warning("a live event cannot be read: %s", error)

    def _lose(self, org_id: str | None, number: int | None) -> None:
        self._events.lose(org_id, number)
        self._runs.feeds.lose(org_id, number)

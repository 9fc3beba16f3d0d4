"""`Cluster`: a gateway's side of the calls to nodes: who is there, which node serves, what became of a call.

A call is given to one node at a time. Another node gets it only after a refusal, which says that no plugin has received
it. The end of a call is one of: the answer of the node, its absence (`roster`), the end of the gateway's own
connection, the deadline. The first of them counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.cluster import envelope, outcomes
from plugbay.cluster.chunks import MAX_BODY, Assemblies, TooMuch
from plugbay.cluster.envelope import Access, Beat, Call, Control, File, Frame, Package, Part, Roll
from plugbay.cluster.files import CallFiles, Contents, join, split
from plugbay.cluster.live import Live
from plugbay.cluster.logs import NodeLogs
from plugbay.cluster.parts import Outbox
from plugbay.cluster.placement import Wish, choose
from plugbay.cluster.roster import SILENT, Node, Roster
from plugbay.cluster.sealing import Sealer
from plugbay.cluster.subjects import PART, Subjects, last_word
from plugbay.cluster.tally import Tally
from plugbay.cluster.times import USUAL, Times
from plugbay.cluster.wire import NO_RESPONDERS, Wire
from plugbay.host.config.sections import ClusterConfig
from plugbay.link.cancellation import end_tasks
from plugbay.link.in_flight import DEADLINE, Grace
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed, gate, refuse_wide_numbers

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

LOG = logging.getLogger("plugbay.cluster")

TICK_SECONDS = 0.25
"""Interval of the check for lost calls."""

STALLED_SECONDS = 0.1
"""The pause after the refusal of a node that stood still."""

REJOIN_SECONDS = 0.2
"""The pause before the next attempt if no node is connected."""

ID_BYTES = 16

_RAW = msgspec.json.Decoder(msgspec.Raw)


class Target(msgspec.Struct, frozen=True):
    """The export that is called, and the way in which nodes run it."""

    package: Package
    access: Access
    export: str
    kind: str
    execution_class: str
    org: str
    wish: Wish
    repeatable: bool
    """Whether it may be carried out twice."""
    settings: bytes = b""
    """The operator's settings for the plugin, as one line; empty: nodes have them."""


class Asked(msgspec.Struct, frozen=True):
    """What a node is asked to do."""

    body: bytes
    files: tuple[File, ...]
    """The files in the body."""
    begin: bool
    """Start the plugin, and no more."""


class Pending:
    """A call that a node has."""

    __slots__ = ("accepted", "future", "large", "node", "on_progress", "org", "repeatable", "sent", "seq")

    def __init__(self, node: Node, target: Target, on_progress: Callable[[Any], None] | None) -> None:
        self.node = (node.name, node.beat.boot)
        self.repeatable = target.repeatable
        self.on_progress = on_progress
        self.org = target.org
        self.future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.accepted = False
        self.large = b""
        """The body that came in parts."""
        self.seq = 0
        self.sent = monotonic()

    def settle(self, ended: Ended) -> None:
        if not self.future.done():
            self.future.set_result(ended)


class Ended(msgspec.Struct, frozen=True):
    """The end of a call at one node."""

    value: msgspec.Raw | None = None
    failure: Failure | None = None
    elsewhere: bool = False
    """No plugin has received it, and another node may take it."""
    files: Contents = msgspec.field(default_factory=list)
    """The artifacts of the result."""


class CallEnd:
    """The deadline and the cancellation of one call, over all nodes that it is given to.

    A node has timers of its own; these count if it does not answer.
    """

    def __init__(
        self,
        seconds: float,
        margin: float,
        grace: Grace | None,
        send_cancel: Callable[[str, Pending, str], None],
        on_silence: Callable[[Pending], None],
    ) -> None:
        """`on_silence`: called if the node has not answered although its own timer has ended the call."""
        self._loop = asyncio.get_running_loop()
        self._margin = margin
        self._grace = grace
        self._send_cancel = send_cancel
        self._on_silence = on_silence
        self._timers = [self._loop.call_later(max(0.0, seconds), self._expire)]
        self.on_node: Callable[[str], object] = lambda _: None
        self.current: tuple[str, Pending] | None = None
        """The call as the present node has it."""
        if grace is not None:
            grace.begin(self._cancel)

    @property
    def is_cancelled(self) -> bool:
        return self._grace is not None and bool(self._grace.reason)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        if self._grace is not None:
            self._grace.end()

    def _expire(self) -> None:
        if self._grace is None:
            self._timers.append(self._loop.call_later(self._margin, self._give_up))
        else:
            self._grace.cancel(DEADLINE)

    def _cancel(self) -> None:
        assert self._grace is not None
        if self.current is not None:
            self._send_cancel(*self.current, self._grace.reason)
        self._timers.append(self._loop.call_later(self._grace.seconds + self._margin, self._give_up))

    def _give_up(self) -> None:
        if self.current is not None:
            id, pending = self.current
            self._on_silence(pending)
            pending.settle(Ended(failure=outcomes.late() if self._grace is None else self._grace.ignored()))
            self._send_cancel(id, pending, DEADLINE)


class Cluster:
    """The nodes of one cell, for a gateway."""

    def __init__(self, settings: ClusterConfig, environ: Mapping[str, str], times: Times = USUAL) -> None:
        """Raises `ConfigInvalid` when the credentials cannot be used."""
        self.settings = settings
        self.id = os.urandom(8).hex()
        """Random for each start."""
        self._times = times
        self._subjects = subjects = Subjects(settings.name)
        self.roster = Roster(times)
        self.tally = Tally()
        self.logs = NodeLogs(self.id, self._answering, self._control)
        self._sealer = Sealer()
        self._codec = MsgspecCodec()
        self._pending: dict[str, Pending] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._down_since: float | None = None
        self.wire = Wire(settings, environ, {subjects.replies(self.id): self._on_reply, subjects.beats: self._on_beat})
        self.wire.on_up = self._on_up
        self.wire.on_down = self._on_down
        self.live = Live(self.wire, subjects, self.id)
        self._outbox = Outbox(self.wire, self.id)
        self._assemblies = Assemblies()

    # Lifecycle.

    async def start(self) -> None:
        """Connect in the background."""
        self._down_since = monotonic()
        self.wire.begin()
        self._run(self._tick())
        self._run(self._roll())

    async def stop(self) -> None:
        """Disconnect; calls that wait are lost."""
        for pending in self._pending.values():
            pending.settle(Ended(failure=outcomes.lost(pending.node[0], outcomes.LINK_LOST)))
        await end_tasks(self._tasks)
        await self.wire.stop()

    def nodes(self) -> list[tuple[Node, str]]:
        """All known nodes with their states, by name."""
        now = monotonic()
        return [(node, self.roster.state(node, now)) for _, node in sorted(self.roster.nodes.items())]

    def _answering(self) -> list[str]:
        """Names of the nodes that answer questions."""
        return [node.name for node, state in self.nodes() if state != SILENT]

    async def order(self, node: str, kind: Any) -> bool:
        """Send `drain` or `undrain` to a node; False when it was not sent."""
        return self._control(node, Control(kind=kind, gateway=self.id))

    async def ask_for_beats(self) -> None:
        """Have every node beat now."""
        await self.wire.publish(self._subjects.roll, envelope.pack(Roll(gateway=self.id, ask=True)))

    # Calls.

    async def call(
        self,
        target: Target,
        op: PluginOp | None,
        timeout: float,
        on_progress: Callable[[Any], None] | None = None,
        grace: Grace | None = None,
        on_node: Callable[[str], object] = lambda _: None,
        files: CallFiles | None = None,
    ) -> CallFinished:
        """Have a node carry out an operation, another one if it refuses; a failure is a value here.

        `on_node` is called with the name of each node that it is given to. Without an operation, the node starts the
        plugin and answers with its greeting.
        """
        try:
            body = b"" if op is None else envelope.encode_operation(op, self._codec)
            body = b"%b\n%b" % (target.settings, body) if target.settings else body
        except Malformed as error:
            return CallFinished(0, None, Failure(Code.UNAVAILABLE, str(error), origin=Origin.SYSTEM))
        heads, body = join(body, [] if files is None else files.sent)
        asked = Asked(body, heads, op is None)
        end = CallEnd(timeout, self._times.margin, grace, self._send_cancel, self._avoid_silent)
        end.on_node = on_node
        try:
            ended = await self._try_nodes(target, asked, monotonic() + timeout, on_progress, end)
        finally:
            end.close()
        if files is not None:
            files.returned = ended.files
        return CallFinished(0, ended.value, ended.failure)

    async def _try_nodes(
        self,
        target: Target,
        asked: Asked,
        until: float,
        on_progress: Callable[[Any], None] | None,
        end: CallEnd,
    ) -> Ended:
        tried: list[str] = []
        refusal: Failure | None = None
        patience, left = min(until, monotonic() + self._times.rejoin), outcomes.MAX_NODES
        while left:
            await self._await_link(patience)
            node = choose(self.roster.up(monotonic()), target.wish, tried)
            if isinstance(node, Failure):
                refusal = refusal or (node if self.wire.is_up else outcomes.unreachable())
                if refusal.detail.get("reason") != outcomes.GONE or monotonic() > patience or end.is_cancelled:
                    break
                tried.clear()  # all have lost NATS, with us: the server was restarted
                await asyncio.sleep(REJOIN_SECONDS)
                continue
            tried.append(node.name)
            end.on_node(node.name)
            ended = await self._call_node(node, target, asked, until - monotonic(), on_progress, end)
            if not ended.elsewhere or end.is_cancelled:
                return ended
            refusal = ended.failure
            reason = None if refusal is None else refusal.detail.get("reason")
            left -= reason != outcomes.GONE
            if reason == outcomes.STALLED:
                tried.remove(node.name)  # it takes calls again in a moment
                await asyncio.sleep(STALLED_SECONDS)
            elif refusal is not None and reason == outcomes.OLD_EPOCH:
                tried.remove(node.name)  # it may take the lease
                self.roster.note_holder(target.wish.lease, node.name, None)
            elif refusal is not None and reason == outcomes.HELD_ELSEWHERE:
                holder, epoch = refusal.detail.get("holder"), refusal.detail.get("epoch")
                if not self.roster.note_holder(target.wish.lease, holder, epoch) or holder in tried:
                    break  # the holder takes no calls, and no other node gets the lease now
        return Ended(failure=None if refusal is None else refusal.replace_detail(asked=False, tried=tried))

    async def _await_link(self, until: float) -> None:
        """Wait for a connection that was lost a moment ago."""
        now = monotonic()
        if self._down_since is not None and not self.wire.is_up:
            await self.wire.joined(max(0.0, min(self._down_since + self._times.rejoin, until) - now))

    async def _call_node(
        self,
        node: Node,
        target: Target,
        asked: Asked,
        seconds: float,
        on_progress: Callable[[Any], None] | None,
        end: CallEnd,
    ) -> Ended:
        id, pending = os.urandom(ID_BYTES).hex(), Pending(node, target, on_progress)
        head = self._head(id, node, target, asked, seconds, on_progress is not None)
        try:
            sealed = self._sealer.seal(node.beat.key, asked.body, id)
        except Malformed as error:
            self.roster.avoid(node.name, monotonic())
            return Ended(failure=outcomes.malformed(node.name, str(error)), elsewhere=True)
        message = envelope.pack(head, sealed)
        is_large = self._outbox.is_large(len(message))
        if is_large:
            if len(sealed) > MAX_BODY:
                return Ended(failure=outcomes.too_large(len(sealed), MAX_BODY))
            message = envelope.pack(replace(head, size=len(sealed)))
        self._pending[id] = pending
        end.current = id, pending
        node.calls += 1
        try:
            if not await self.wire.publish(self._subjects.call(node.name), message, self._subjects.reply(self.id, id)):
                return Ended(failure=outcomes.unreachable())
            if is_large:
                self._run(self._outbox.send(self._subjects.part(node.name), id, sealed))
            ended = await pending.future
            outcome = outcomes.outcome_of(ended.failure, elsewhere=ended.elsewhere)
            self.tally.count(node.name, outcome, monotonic() - pending.sent, monotonic())
            return ended
        except asyncio.CancelledError:
            self.tally.count(node.name, outcomes.CANCELLED, 0.0, monotonic())
            self._send_cancel(id, pending, "the caller cancelled")
            raise
        finally:
            node.calls -= 1
            del self._pending[id]
            self._outbox.stop(id)
            self._assemblies.drop(id)
            end.current = None

    def _head(self, id: str, node: Node, target: Target, asked: Asked, seconds: float, stream: bool) -> Call:
        return Call(
            id=id,
            gateway=self.id,
            boot=node.beat.boot,
            package=target.package,
            access=target.access,
            export=target.export,
            kind=target.kind,
            execution_class=target.execution_class,
            org=target.org,
            budget_ms=max(0, round(seconds * 1000)),
            stream=stream,
            confined=target.wish.confined,
            key=self._sealer.public,
            settings=bool(target.settings),
            begin=asked.begin,
            lease=target.wish.lease,
            epoch=node.beat.held.get(target.wish.lease, 0),
            files=asked.files,
        )

    def _send_cancel(self, id: str, pending: Pending, reason: str) -> None:
        self._control(pending.node[0], Control(kind=envelope.CANCEL, gateway=self.id, call=id, reason=reason))

    def _control(self, node: str, order: Control) -> bool:
        return self.wire.post(self._subjects.control(node), envelope.pack(order))

    # Messages of nodes.

    def _on_reply(self, subject: bytes, headers: bytes, data: bytes) -> None:
        id = last_word(subject)
        pending = self._pending.get(id)
        if pending is None:
            if id.endswith(PART):
                self._on_part(id.removesuffix(PART), data)
            else:
                self._take_log(id, data)
            return
        node = pending.node[0]
        if headers.startswith(NO_RESPONDERS):
            pending.settle(Ended(failure=outcomes.nobody_listens(node), elsewhere=True))
            return
        try:
            self._take_frame(pending, id, data)
        except Malformed as error:
            self._refuse_answer(pending, id, str(error))

    def _refuse_answer(self, pending: Pending, id: str, why: str) -> None:
        node = pending.node[0]
        LOG.warning("the node %s sent a malformed answer: %s", node, why)
        self.roster.avoid(node, monotonic())
        pending.settle(Ended(failure=outcomes.malformed(node, why)))
        self._send_cancel(id, pending, "malformed answer")

    def _on_part(self, id: str, data: bytes) -> None:
        """A part of a large answer, or the credit for one of a large input."""
        pending = self._pending.get(id)
        if pending is None:
            return
        node = pending.node[0]
        try:
            part, body = envelope.unpack(Part, data)
            if part.call != id or part.sender != node:
                raise Malformed("a part of another call")
            pending.accepted = True
            if part.kind == "credit":
                self._outbox.credit(id, part.seq)
                return
            if part.seq == 0:
                self._assemblies.open(node, id, part.size, monotonic())
            if id in self._assemblies:
                pending.large = self._assemblies.add(part, body, monotonic()) or b""
                self._outbox.give_credit(self._subjects.part(node), part)
        except Malformed as error:
            self._refuse_answer(pending, id, str(error))
        except TooMuch:
            pending.settle(Ended(failure=outcomes.too_much(node)))

    def _take_log(self, id: str, data: bytes) -> None:
        try:
            self.logs.take(id, data)
        except Malformed as error:
            LOG.warning("a log of a node cannot be read: %s", error)

    def _take_frame(self, pending: Pending, id: str, data: bytes) -> None:
        """Raises `Malformed`."""
        frame, body = envelope.unpack(Frame, data)
        if frame.call != id or frame.node != pending.node[0]:
            raise Malformed("a frame of another call")
        pending.accepted = True
        if frame.kind == envelope.PROGRESS:
            self._take_progress(pending, frame, body)
        elif frame.kind == envelope.DONE:
            self._note_gap(pending, frame)
            failure = None if frame.failure is None else envelope.failure_from_json(frame.failure)
            failure = failure and failure.with_detail(node=frame.node)
            value, files = split(body or pending.large, frame.files)
            pending.settle(Ended(None if failure is not None else _value(value), failure, files=files))
        elif frame.kind == envelope.REFUSED:
            if frame.failure is None:
                raise Malformed("a refusal without a failure")
            failure = envelope.failure_from_json(frame.failure).with_detail(node=frame.node, asked=False)
            pending.settle(Ended(failure=failure, elsewhere=frame.elsewhere))

    def _take_progress(self, pending: Pending, frame: Frame, body: bytes) -> None:
        value = _value(body)
        if frame.seq < pending.seq or pending.on_progress is None or pending.future.done():
            return
        self._note_gap(pending, frame)
        pending.seq = frame.seq + 1
        try:
            pending.on_progress(value)
        except Exception as error:  # a bug in the caller's callback
            pending.settle(Ended(failure=Failure(Code.INTERNAL, f"on_progress raised {error!r}")))

    def _note_gap(self, pending: Pending, frame: Frame) -> None:
        """Report the progress before a frame that did not arrive."""
        missing, pending.seq = frame.seq - pending.seq, frame.seq
        if missing > 0 and pending.org:
            self.live.lose(pending.org, missing)

    def _on_beat(self, subject: bytes, headers: bytes, data: bytes) -> None:
        if not data:
            return  # `plugbay doctor` tries its permissions
        try:
            beat, _ = envelope.unpack(Beat, data)
        except Malformed as error:
            LOG.warning("a beat cannot be read: %s", error)
            return
        if beat.node != last_word(subject):
            LOG.warning("a beat of %s came as %s", last_word(subject), beat.node)
            return
        before = self.roster.hear(beat, monotonic())
        if before is None or before.boot != beat.boot:
            LOG.info("the node %s has joined", beat.node)
            self._lose_calls_of_earlier_boots(beat)
        elif before.link != beat.link:
            self._ask_about(beat.node)

    def _lose_calls_of_earlier_boots(self, beat: Beat) -> None:
        for pending in self._pending.values():
            name, boot = pending.node
            if name == beat.node and boot != beat.boot:
                pending.settle(Ended(failure=outcomes.lost(name, outcomes.NODE_LOST)))

    def _ask_about(self, node: str | None = None) -> None:
        """Ask nodes about calls whose answers may have been lost with a connection."""
        for id, pending in self._pending.items():
            if node in (None, pending.node[0]):
                self._control(pending.node[0], Control(kind=envelope.STILL, gateway=self.id, call=id))

    # The connection and the passing of time.

    def _on_up(self) -> None:
        self._down_since = None
        self.roster.forgive(monotonic())
        self._run(self.ask_for_beats())
        self._ask_about()
        self.live.on_up()

    def _on_down(self) -> None:
        self._down_since = monotonic()
        self.live.on_down()

    async def _roll(self) -> None:
        while True:
            await asyncio.sleep(self._times.roll)
            await self.wire.publish(self._subjects.roll, envelope.pack(Roll(gateway=self.id)))

    async def _tick(self) -> None:
        before = monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = monotonic()
            if now - before > self._times.stalled:
                self.roster.forgive(now)  # this process stood still, not the nodes
            before = now
            self._lose_calls(now)
            if self._down_since is None:
                self.roster.count_missed(now)
            self.roster.forget_old(now)
            self.tally.keep(self.roster.nodes)

    def _lose_calls(self, now: float) -> None:
        for id in self._assemblies.stalled(now):
            self._refuse_answer(self._pending[id], id, "a part of a large answer is missing")
            self._assemblies.drop(id)
        for id, pending in list(self._pending.items()):
            name, boot = pending.node
            if self._down_since is not None:
                limit = self._times.silent if pending.repeatable else self._times.lost
                if now - max(self._down_since, pending.sent) > limit:
                    pending.settle(Ended(failure=outcomes.lost(name, outcomes.LINK_LOST)))
            elif self.roster.is_gone(name, boot, now, repeatable=pending.repeatable):
                pending.settle(Ended(failure=outcomes.lost(name, outcomes.NODE_LOST)))
            elif pending.repeatable and not pending.accepted and now - pending.sent > self._times.unaccepted:
                self._avoid_silent(pending)
                pending.settle(Ended(failure=outcomes.lost(name, outcomes.NOT_KNOWN)))
                self._send_cancel(id, pending, "not accepted in time")

    def _avoid_silent(self, pending: Pending) -> None:
        """Give no calls to a node that beats and does not answer: the same call would go there again."""
        name = pending.node[0]
        if self.wire.is_up:
            LOG.warning("the node %s does not answer its calls", name)
            self.roster.avoid(name, monotonic())

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _value(body: bytes) -> msgspec.Raw:
    """A JSON value from a node, checked like one from a plugin; raises `Malformed`."""
    gate(body)
    refuse_wide_numbers(body)
    with suppress(ValueError, RecursionError):
        return _RAW.decode(body)
    raise Malformed("the value is no JSON")

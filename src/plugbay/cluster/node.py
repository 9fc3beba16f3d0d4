"""`NodeServer`: a node: it beats, takes calls of gateways, and carries them out in hosts of its own.

It has no database and no authority. A call that arrives twice cannot happen, since no gateway sends one twice; a call
that arrives late can: after the process stood still (SIGSTOP, a suspended machine), calls that no plugin has received
are refused until the NATS server has answered a ping of that moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from msgspec.structs import replace

from plugbay.cluster import envelope, outcomes
from plugbay.cluster.asking import Asker
from plugbay.cluster.chunks import MAX_BODY, Assemblies, TooMuch
from plugbay.cluster.envelope import Beat, Call, Control, Frame, LogPart, LogRequest, Part, Roll
from plugbay.cluster.files import split
from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.keeper import Keeper
from plugbay.cluster.parts import Outbox
from plugbay.cluster.sealing import Sealer
from plugbay.cluster.serving import Outcome, ServedCall, frame_of, refuse
from plugbay.cluster.subjects import Subjects
from plugbay.cluster.times import USUAL, Times
from plugbay.cluster.wire import Wire
from plugbay.host.config.sections import ClusterConfig
from plugbay.link.cancellation import end_tasks
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure, Origin
from plugbay.process.usage import memory_of_tree
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

LOG = logging.getLogger("plugbay.node")

TICK_SECONDS = 0.25
REAP_EVERY = 30.0

MEASURE_SECONDS, MEASURE_SHARE = 5.0, 20
"""The pause between two measurements of memory, and the least pause as a multiple of what one takes."""

MAX_UNSENT = 4 << 20
"""Bytes that wait for the NATS server to read; progress beyond that is dropped."""

KEPT_BYTES = 16 << 20
"""Size of the answers that are kept for gateways that lost their connection."""

MAX_LISTED = 32
"""Plugins in a beat."""

GATEWAY_GONE = "gateway_gone"


class NodeServer:
    """One node."""

    def __init__(
        self,
        settings: ClusterConfig,
        environ: Mapping[str, str],
        name: str,
        hosts: NodeHosts,
        *,
        labels: Mapping[str, str] | None = None,
        places: int = 256,
        sandbox: bool = True,
        times: Times = USUAL,
    ) -> None:
        """`sandbox`: whether plugins can be confined here. Raises `ConfigInvalid` for unusable credentials."""
        self.name = name
        self.boot = os.urandom(8).hex()
        self._hosts = hosts
        self._labels = {"arch": platform.machine(), "os": platform.system().lower(), **(labels or {})}
        self._places = places
        self._sandbox = sandbox and not hosts.unconfined
        self._times = times
        self._subjects = subjects = Subjects(settings.name)
        self._sealer = Sealer()
        self._codec = MsgspecCodec()
        self._links = 0
        self._calls: dict[str, ServedCall] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._turns = asyncio.Semaphore(places)
        self._unaccepted: Deadlines
        """The calls that were not reported as accepted yet. Made at the start."""
        self._ended: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()
        self._ended_bytes = 0
        self._heard: dict[str, float] = {}
        """By gateway: when its last message came."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._seen = _boot_time()
        self._in_doubt = False
        self._memory = 0
        self.wire = Wire(
            settings,
            environ,
            {
                subjects.call(name): self._on_call,
                subjects.control(name): self._on_control,
                subjects.part(name): self._on_part,
                subjects.roll: self._on_roll,
            },
        )
        self.wire.on_up = self._on_up
        self._outbox = Outbox(self.wire, name)
        self._assemblies = Assemblies()
        self._expected: dict[str, tuple[Call, float]] = {}
        """Calls whose inputs come in parts, and when they came."""
        asker = Asker(self.wire, subjects, name, self.boot)
        self.wire.on_down = asker.lose
        self._keeper = Keeper(name, asker, hosts, lambda: self._run(self._beat()), times)

    @property
    def draining(self) -> bool:
        """Whether it takes no new calls and no leases."""
        return self._keeper.draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._keeper.draining = draining

    # Lifecycle.

    async def start(self) -> None:
        """Connect in the background."""
        self._unaccepted = Deadlines(asyncio.get_running_loop())
        self.wire.begin()
        for work in (self._beats(), self._tick(), self._reap(), self._measure(), self._keeper.run()):
            self._run(work)

    async def drain(self, seconds: float) -> bool:
        """Take no new calls and wait for the running ones; False when some still run after `seconds`."""
        self.draining = True
        await self._beat()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        return not self._calls

    async def stop(self) -> None:
        """Drain, cancel the remaining calls with their grace periods, stop all plugins, disconnect."""
        if not await self.drain(self._times.drain):
            for call in list(self._calls.values()):
                call.cancel("host_shutdown")
        for id in list(self._expected):
            self._lose_input(id, "the node was stopped")
        await self._idle.wait()
        await self._keeper.stop()  # asks gateways, and hears their answers
        await self._outbox.wait_idle()
        await self.wire.stop_listening()
        await self.wire.round_trip()
        self._unaccepted.close()
        await end_tasks(self._tasks)
        await self._hosts.stop()
        await self.wire.stop()

    @property
    def busy(self) -> int:
        return len(self._calls)

    # Calls.

    def _on_call(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self._notice_stall()
        try:
            call, body = envelope.unpack(Call, data)
        except Malformed as error:
            LOG.warning("a call cannot be read: %s", error)
            return
        self._heard[call.gateway] = time.monotonic()
        refusal = self._refusal(call)
        if refusal is not None:
            self._finish(call, 0, refusal)
        elif call.size:
            self._expect(call)
        else:
            self._run(self._serve(call, body))

    def _expect(self, call: Call) -> None:
        """Put a large input together before the call is served."""
        try:
            self._assemblies.open(call.gateway, call.id, call.size, time.monotonic())
            self._expected[call.id] = call, time.monotonic()
        except TooMuch:
            text = f"the node {self.name} has no room for more large inputs"
            self._finish(call, 0, refuse(outcomes.refused("inputs", text, self.name, Code.OVERLOADED), elsewhere=True))
        except Malformed as error:
            self._finish(call, 0, refuse(outcomes.malformed(self.name, str(error)), elsewhere=False))

    def _on_part(self, subject: bytes, headers: bytes, data: bytes) -> None:
        """A part of a large input, or the credit for one of a large answer."""
        try:
            part, body = envelope.unpack(Part, data)
        except Malformed as error:
            LOG.warning("a part cannot be read: %s", error)
            return
        if part.kind == "credit":
            return self._outbox.credit(part.call, part.seq)
        call, came = self._expected.get(part.call, (None, 0.0))
        if call is None or call.gateway != part.sender:
            return
        try:
            whole = self._assemblies.add(part, body, time.monotonic())
        except Malformed as error:
            return self._give_up_input(part.call, str(error))
        self._outbox.give_credit(self._subjects.reply_part(call.gateway, call.id), part)
        if whole is not None:
            del self._expected[part.call]
            left = max(0, call.budget_ms - round(1000 * (time.monotonic() - came)))
            self._run(self._serve(replace(call, budget_ms=left), whole))

    def _give_up_input(self, id: str, why: str) -> None:
        """Refuse a call whose input did not come as a whole; no plugin has received it."""
        self._end_expected(id, refuse(outcomes.malformed(self.name, why), elsewhere=True))

    def _lose_input(self, id: str, why: str) -> None:
        text = f"{why} while the node {self.name} received the input"
        self._end_expected(id, refuse(outcomes.refused("input_lost", text, self.name), elsewhere=True))

    def _end_expected(self, id: str, outcome: Outcome) -> None:
        call, _ = self._expected.pop(id)
        self._assemblies.drop(id)
        self._finish(call, 0, outcome)

    def _refusal(self, call: Call) -> Outcome | None:
        """Why a call is not taken; another node may take it."""
        name, code = self.name, Code.UNAVAILABLE
        if call.boot != self.boot:
            reason, text = "other_boot", f"the node {name} was started again"
        elif self._in_doubt:
            return refuse(outcomes.stalled(name), elsewhere=True)
        elif self.draining:
            reason, text = "draining", f"the node {name} takes no new calls"
        elif len(self._calls) >= 2 * self._places:
            reason, text, code = "overloaded", f"the node {name} has no place left", Code.OVERLOADED
        elif call.confined and not self._sandbox:
            reason, text, code = "no_sandbox", f"the node {name} has no sandbox", Code.SANDBOX_UNAVAILABLE
        elif call.id in self._calls or call.id in self._ended:
            reason, text = "repeated", f"the node {name} has had the call before"
        else:
            return None
        return refuse(outcomes.refused(reason, text, name, code), elsewhere=True)

    async def _serve(self, call: Call, body: bytes) -> None:
        served = ServedCall(call, self.name, self._on_progress, self._is_in_doubt, self._keeper)
        self._calls[call.id] = served
        self._idle.clear()
        self._unaccepted.add(self._times.accepted, call.id, self._accept)
        outcome = None
        try:
            outcome = await self._carry_out(served, body)
        except Exception as error:
            LOG.exception("a call failed")
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}", origin=Origin.SYSTEM)
            outcome = Outcome(failure=failure)
        finally:
            self._unaccepted.discard(call.id)
            del self._calls[call.id]
            if outcome is None:
                outcome = refuse(outcomes.refused("stopped", "the node was stopped", self.name), elsewhere=False)
            self._finish(call, served.seq, outcome)
            if not self._calls:
                self._idle.set()

    async def _carry_out(self, served: ServedCall, body: bytes) -> Outcome:
        call = served.call
        try:
            body = self._sealer.open(call.key, body, call.id)
            settings, _, body = body.partition(b"\n") if call.settings else (b"", b"", body)
            body, files = split(body, call.files)
            op = None if call.begin else envelope.decode_operation(body, self._codec)
        except Malformed as error:
            return refuse(outcomes.malformed(self.name, f"the call cannot be read: {error}"), elsewhere=False)
        return await served.run(op, self._hosts, self._turns, settings, files)

    def _on_progress(self, served: ServedCall, item: bytes) -> None:
        frame = Frame(call=served.call.id, node=self.name, seq=served.seq, kind=envelope.PROGRESS)
        served.seq += 1  # also of a dropped one, so that the gateway notices
        if self.wire.unsent <= MAX_UNSENT:
            self._put(served.call, envelope.pack(frame, item))

    def _accept(self, id: str) -> None:
        call = self._calls[id].call
        self._put(call, envelope.pack(Frame(call=call.id, node=self.name, seq=0, kind=envelope.ACCEPTED)))

    def _finish(self, call: Call, seq: int, outcome: Outcome) -> None:
        if len(outcome.value) > MAX_BODY:
            outcome = Outcome(failure=outcomes.too_large(len(outcome.value), MAX_BODY))
        data = envelope.pack(*frame_of(call, self.name, seq, outcome))
        self._put_end(call.gateway, call.id, data)
        self._ended[call.id] = (time.monotonic(), call.gateway, data)
        self._ended_bytes += len(data)
        if self._ended_bytes > KEPT_BYTES:
            self._forget_ended(time.monotonic())

    def _forget_ended(self, now: float) -> None:
        while self._ended:
            at, _, data = next(iter(self._ended.values()))
            if self._ended_bytes <= KEPT_BYTES and now - at < self._times.kept:
                return
            self._ended.popitem(last=False)
            self._ended_bytes -= len(data)

    def _put(self, call: Call, data: bytes) -> None:
        self.wire.post(self._subjects.reply(call.gateway, call.id), data)

    def _put_end(self, gateway: str, id: str, data: bytes) -> None:
        """Send the last frame of a call; a large value goes before it, in parts."""
        if self._outbox.is_large(len(data)):
            self._outbox.stop(id)
            self._run(self._send_large(gateway, id, data))
        else:
            self.wire.post(self._subjects.reply(gateway, id), data)

    async def _send_large(self, gateway: str, id: str, data: bytes) -> None:
        head, _, value = data.partition(b"\n")
        if await self._outbox.send(self._subjects.reply_part(gateway, id), id, value):
            self.wire.post(self._subjects.reply(gateway, id), head + b"\n")

    # Orders of gateways.

    def _on_control(self, subject: bytes, headers: bytes, data: bytes) -> None:
        try:
            order, _ = envelope.unpack(Control, data)
        except Malformed as error:
            LOG.warning("an order cannot be read: %s", error)
            return
        self._heard[order.gateway] = time.monotonic()
        if order.kind == envelope.CANCEL and order.call in self._calls:
            self._calls[order.call].cancel(order.reason)
        elif order.kind == envelope.CANCEL and order.call is not None:
            self._outbox.stop(order.call)
            if order.call in self._expected:
                text = f"it was cancelled before the plugin was called: {order.reason}"
                self._end_expected(order.call, Outcome(failure=Failure(Code.CANCELLED, text, detail={"asked": False})))
        elif order.kind == envelope.STILL and order.call is not None:
            self._answer_still(order.gateway, order.call)
        elif order.kind == envelope.LOGS and order.call is not None and order.log is not None:
            self._run(self._answer_log(order.gateway, order.call, order.log))
        elif order.kind in (envelope.DRAIN, envelope.UNDRAIN):
            self.draining = order.kind == envelope.DRAIN
            LOG.info("draining" if self.draining else "taking calls again")
            self._run(self._beat())

    async def _answer_log(self, gateway: str, id: str, request: LogRequest) -> None:
        part = LogPart() if self._hosts.logs is None else await asyncio.to_thread(self._hosts.logs.read, request)
        frame = Frame(call=id, node=self.name, seq=0, kind=envelope.DONE)
        self.wire.post(self._subjects.reply(gateway, id), envelope.pack(frame, envelope.encode_log(part)))

    def _answer_still(self, gateway: str, id: str) -> None:
        """Send the last frame of a call again, or what is known of it."""
        known = self._ended.get(id)
        if id in self._expected:
            return self._lose_input(id, "the connection ended")
        if id in self._calls:
            data = envelope.pack(Frame(call=id, node=self.name, seq=0, kind=envelope.ACCEPTED))
        elif known is not None and known[1] == gateway:
            data = known[2]
        else:
            failure = envelope.failure_to_json(outcomes.lost(self.name, outcomes.NOT_KNOWN))
            data = envelope.pack(Frame(call=id, node=self.name, seq=0, kind=envelope.DONE, failure=failure))
        self._put_end(gateway, id, data)

    def _on_roll(self, subject: bytes, headers: bytes, data: bytes) -> None:
        if not data:
            return  # `plugbay doctor` tries its permissions
        try:
            roll, _ = envelope.unpack(Roll, data)
        except Malformed as error:
            LOG.warning("a sign of a gateway cannot be read: %s", error)
            return
        self._heard[roll.gateway] = time.monotonic()
        if roll.ask:
            self._run(self._beat())

    # Presence.

    def _on_up(self) -> None:
        self._links += 1
        self._in_doubt = False
        now = time.monotonic()
        self._heard = dict.fromkeys(self._heard, now)
        self._run(self._beat())

    async def _beat(self) -> None:
        beat = Beat(
            node=self.name,
            boot=self.boot,
            link=self._links,
            state=envelope.DRAINING if self.draining else envelope.UP,
            release=version("plugbay"),
            labels=self._labels,
            places=self._places,
            busy=len(self._calls),
            sandbox=self._sandbox,
            key=self._sealer.public,
            plugins=tuple(self._hosts.plugins()[:MAX_LISTED]),
            children=self._hosts.children(),
            memory=self._memory,
            held=self._keeper.epochs(),
        )
        await self.wire.publish(self._subjects.beat(self.name), envelope.pack(beat))

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._times.beat * random.uniform(0.9, 1.1))
            await self._beat()

    async def _measure(self) -> None:
        """Measure the memory of this process and of all below it, on a thread."""
        while True:
            began = time.monotonic()
            self._memory = await asyncio.to_thread(memory_of_tree, os.getpid())
            await asyncio.sleep(max(MEASURE_SECONDS, MEASURE_SHARE * (time.monotonic() - began)))

    # The passing of time.

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._notice_stall()
            now = time.monotonic()
            self._forget_ended(now)
            for id in self._assemblies.stalled(now):
                self._give_up_input(id, "a part of the input is missing")
            for served in list(self._calls.values()):
                if now - self._heard.get(served.call.gateway, now) > self._times.lost:
                    served.cancel(GATEWAY_GONE)

    def _is_in_doubt(self) -> bool:
        self._notice_stall()
        return self._in_doubt

    def _notice_stall(self) -> None:
        """Whether the process stood still is seen by the first of its callbacks that runs again."""
        now = _boot_time()
        stood, self._seen = now - self._seen, now
        if stood <= self._times.stalled:
            return
        LOG.warning("stood still for %.1f s; calls that no plugin has received are refused", stood)
        self._heard = dict.fromkeys(self._heard, time.monotonic())
        self._in_doubt = True
        for served in list(self._calls.values()):
            served.refuse_unreceived()
        self._run(self._end_doubt())

    async def _end_doubt(self) -> None:
        """Calls that come after the answer of the server were sent after the process went on."""
        if await self.wire.round_trip():
            self._in_doubt = False

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY)
            await self._hosts.reap()

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _boot_time() -> float:
    """Seconds since the machine was started, its suspensions included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

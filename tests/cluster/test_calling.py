"""A gateway's calls end however a node behaves: silent, gone, nonsensical."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.cluster import calling, chunks, envelope
from plugbay.cluster.calling import Cluster, Target
from plugbay.cluster.chunks import MAX_BODY
from plugbay.cluster.envelope import Access, Call, Control, Frame, Package, Part
from plugbay.cluster.placement import Wish
from plugbay.cluster.roster import AVOIDED
from plugbay.cluster.sealing import Sealer
from plugbay.cluster.subjects import Subjects
from plugbay.cluster.wire import Wire
from plugbay.link.in_flight import Grace
from plugbay.model.errors import Code
from plugbay.model.operations import InvokeTool, PressKey
from tests.cluster.test_envelope import ID, beat
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nodes import PASSWORD, PATIENT, Cell, cell
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement

SUBJECTS = Subjects("main")
PACKAGE = Package("acme/p", "1.0.0", "0" * 64, "oci://registry.example/p@sha256:" + "0" * 64)
OP = InvokeTool("t", {}, {})

Answer = Callable[[Call, "Puppet"], list[bytes]]


def target(*, repeatable: bool = False, **wish: Any) -> Target:
    return Target(PACKAGE, Access(), "t", "tool", "isolated", "org_1", Wish("k", False, **wish), repeatable)


class Puppet:
    """A node whose answers a test writes."""

    def __init__(self, cell: Cell, name: str, answer: Answer) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.orders: list[Control] = []
        self.sealer = Sealer()
        self._answer = answer
        self._sending: list[asyncio.Future[bool]] = []
        handlers = {SUBJECTS.call(name): self._on_call, SUBJECTS.control(name): self._on_control}
        self.wire = Wire(cell.settings(name), {"CELL_PASSWORD": PASSWORD}, handlers)

    def frame(self, asked: Call, kind: Any, body: bytes = b"", **fields: Any) -> bytes:
        return envelope.pack(Frame(**{"call": asked.id, "node": self.name, "seq": 0, "kind": kind, **fields}), body)

    async def beat(self, **fields: Any) -> None:
        mine = beat(node=self.name, key=self.sealer.public, **fields)
        assert await self.wire.publish(SUBJECTS.beat(self.name), envelope.pack(mine))

    def _on_call(self, subject: bytes, headers: bytes, data: bytes) -> None:
        call, _ = envelope.unpack(Call, data)
        self.calls.append(call)
        for frame in self._answer(call, self):
            reply = SUBJECTS.reply(call.gateway, call.id)
            self._sending.append(asyncio.ensure_future(self.wire.publish(reply, frame)))

    def _on_control(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self.orders.append(envelope.unpack(Control, data)[0])


def silence(call: Call, puppet: Puppet) -> list[bytes]:
    return []


def done(call: Call, puppet: Puppet) -> list[bytes]:
    return [puppet.frame(call, "done", b'{"ok": true}')]


@asynccontextmanager
async def puppet(cell: Cell, cluster: Cluster, name: str, answer: Answer) -> AsyncIterator[Puppet]:
    made = Puppet(cell, name, answer)
    made.wire.begin()
    assert await made.wire.joined(PATIENCE)
    await made.beat()
    await until(lambda: name in cluster.roster.nodes)
    yield made
    await made.wire.stop_listening()  # the server knows it when this returns
    await made.wire.stop()


async def end_of(cluster: Cluster, wanted: Target | None = None, timeout: float = PATIENCE) -> Any:
    return await cluster.call(wanted or target(), OP, timeout)


def test_the_answer_of_a_node_is_the_answer(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", done) as node:
            answer = await end_of(cluster)
            assert bytes(answer.value) == b'{"ok": true}' and answer.failure is None
            assert node.calls[0].boot == ID and cluster.roster.nodes["n1"].calls == 0

    run(main)


def gaps(call: Call, node: Puppet) -> list[bytes]:
    """The events 1, 3, 4 and 5 of seven."""
    sent = [node.frame(call, "progress", str(seq).encode(), seq=seq) for seq in (1, 3, 3, 4, 5)]
    return [*sent, node.frame(call, "done", b"1", seq=7)]


def test_progress_that_does_not_arrive_is_reported_before_what_follows(
    shared_cell: Cell,
    run: Run,  # noqa: F811
) -> None:
    async def main() -> None:
        seen: list[Any] = []
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", gaps):
            cluster.live.on_lost = lambda org, number: seen.append((org, number))
            await cluster.call(target(), OP, PATIENCE, lambda item: seen.append(int(bytes(item))))
        assert [each for each in seen if each != ("org_1", None)] == [
            ("org_1", 1),
            1,
            ("org_1", 1),
            3,
            4,
            5,
            ("org_1", 1),
        ]

    run(main)


@requirement("host:nodes-placement")
@pytest.mark.parametrize(
    "data",
    [
        lambda call, node: b"",
        lambda call, node: b"nonsense\n",
        lambda call, node: node.frame(call, "done", b"{"),
        lambda call, node: node.frame(call, "done", b"[" * 1000 + b"]" * 1000),
        lambda call, node: node.frame(call, "done", b"1", call="f" * 32),
        lambda call, node: node.frame(call, "done", b"1", node="n2"),
        lambda call, node: node.frame(call, "refused"),
        lambda call, node: node.frame(call, "done", failure={"code": "odd"}),
        lambda call, node: node.frame(call, "progress", b"{"),
    ],
)
def test_a_malformed_answer_ends_the_call_and_its_node_is_avoided(
    shared_cell: Cell, data: Callable[[Call, Puppet], bytes]
) -> None:
    from tests.support.loops import run_on

    async def main() -> None:
        async with (
            shared_cell.cluster() as cluster,
            puppet(shared_cell, cluster, "n1", lambda call, node: [data(call, node)]) as bad,
        ):
            answer = await end_of(cluster)
            assert answer.failure.code == Code.MALFORMED_RESPONSE and answer.value is None
            assert {node.name: state for node, state in cluster.nodes()} == {"n1": AVOIDED}
            async with puppet(shared_cell, cluster, "n2", done):
                assert (await end_of(cluster)).failure is None
            assert len(bad.calls) == 1
            await until(lambda: [order.kind for order in bad.orders] == ["cancel"])

    run_on("asyncio")(main)


@requirement("host:nodes-failures")
def test_a_call_that_no_plugin_received_goes_to_the_next_node(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    def refusing(call: Call, node: Puppet) -> list[bytes]:
        from plugbay.cluster import outcomes

        failure = envelope.failure_to_json(outcomes.refused("draining", "no new calls", node.name))
        return [node.frame(call, "refused", failure=failure, elsewhere=True)]

    async def main() -> None:
        async with (
            shared_cell.cluster() as cluster,
            puppet(shared_cell, cluster, "n1", refusing) as first,
        ):
            failure = (await end_of(cluster)).failure
            assert failure.code == Code.UNAVAILABLE and failure.retryable
            assert failure.detail["asked"] is False and failure.detail["tried"] == ["n1"]
            async with puppet(shared_cell, cluster, "n2", done) as second:
                for _ in range(4):
                    assert (await end_of(cluster)).failure is None
                assert len(second.calls) == 4 and len(first.calls) >= 1

    run(main)


@requirement("host:nodes-failures")
def test_a_node_that_is_not_connected_is_passed_over_at_once(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as cluster:
            async with puppet(shared_cell, cluster, "n1", done):
                pass
            failure = (await end_of(cluster)).failure
            assert failure.detail["reason"] == "gone" and failure.detail["asked"] is False
            async with puppet(shared_cell, cluster, "n2", done) as second:
                for _ in range(3):
                    assert (await end_of(cluster)).failure is None
                assert len(second.calls) == 3

    run(main)


@requirement("host:nodes-failures")
@pytest.mark.parametrize(("repeatable", "cause"), [(True, "node_lost"), (False, "node_lost")])
def test_the_calls_of_a_silent_node_are_lost(shared_cell: Cell, repeatable: bool, cause: str) -> None:
    from tests.support.loops import run_on

    quick = replace(PATIENT, silent=0.5, lost=0.5) if repeatable else replace(PATIENT, lost=0.5)

    async def main() -> None:
        async with shared_cell.cluster(quick) as cluster, puppet(shared_cell, cluster, "n1", silence):
            failure = (await end_of(cluster, target(repeatable=repeatable))).failure
            assert failure.code == Code.CRASHED and failure.detail["cause"] == cause

    run_on("asyncio")(main)


def test_another_boot_of_a_node_has_lost_the_calls_of_the_first(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", silence) as node:
            call = asyncio.create_task(end_of(cluster))
            await until(lambda: bool(node.calls))
            await node.beat(boot="f" * 16)
            assert (await call).failure.detail["cause"] == "node_lost"

    run(main)


def test_a_node_with_a_new_connection_is_asked_about_its_calls(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", silence) as node:
            call = asyncio.create_task(end_of(cluster))
            await until(lambda: bool(node.calls))
            await node.beat(link=2)
            await until(lambda: [order.kind for order in node.orders] == ["still"])
            assert node.orders[0].call == node.calls[0].id
            reply = SUBJECTS.reply(cluster.id, node.calls[0].id)
            await node.wire.publish(reply, node.frame(node.calls[0], "done", b"1"))
            assert bytes((await call).value) == b"1"

    run(main)


def test_a_call_that_was_not_accepted_goes_elsewhere_if_it_is_repeatable(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    quick = replace(PATIENT, unaccepted=0.3)

    async def main() -> None:
        async with shared_cell.cluster(quick) as cluster, puppet(shared_cell, cluster, "n1", silence) as node:
            failure = (await end_of(cluster, target(repeatable=True))).failure
            assert failure.code == Code.CRASHED and failure.detail["cause"] == "not_known"
            assert cluster.roster.state(cluster.roster.nodes["n1"], monotonic()) == AVOIDED
            await until(lambda: [order.kind for order in node.orders] == ["cancel"])
            async with puppet(shared_cell, cluster, "n2", done):
                assert (await end_of(cluster, target(repeatable=True))).failure is None
            assert len(node.calls) == 1, "the second attempt goes to another node, whatever the hash says"

    run(main)


def test_the_timer_of_the_gateway_counts_if_the_node_says_nothing(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    quick = replace(PATIENT, margin=0.1)

    async def main() -> None:
        async with shared_cell.cluster(quick) as cluster, puppet(shared_cell, cluster, "n1", silence) as node:
            assert (await end_of(cluster, timeout=0.1)).failure.code == Code.TIMEOUT
            cluster.roster.nodes["n1"].avoid_until = 0.0
            grace = Grace(0.1)
            answer = await cluster.call(target(), OP, 0.1, None, grace)
            assert answer.failure is not None and answer.failure.code == Code.TIMEOUT and grace.over
            await until(lambda: "deadline_exceeded" in [order.reason for order in node.orders])
            assert cluster.roster.state(cluster.roster.nodes["n1"], monotonic()) == AVOIDED

    run(main)


def test_without_nats_a_call_is_unavailable_and_may_be_tried_again(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        cluster = Cluster(shared_cell.settings(name="other"), {"CELL_PASSWORD": PASSWORD})
        failure = (await end_of(cluster)).failure
        assert failure.code == Code.UNAVAILABLE and failure.retryable and "NATS" in failure.message
        await cluster.stop()

    run(main)


@requirement("host:nodes-failures")
def test_a_call_waits_for_a_node_that_has_just_lost_its_connection(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster(replace(PATIENT, rejoin=PATIENCE)) as cluster:
            async with puppet(shared_cell, cluster, "n1", done):
                pass
            call = asyncio.create_task(end_of(cluster))
            await asyncio.sleep(0)  # it is sent long before the node has joined again
            async with puppet(shared_cell, cluster, "n1", done) as back:
                assert (await call).failure is None
                assert len(back.calls) == 1

    run(main)


@requirement("host:nodes-failures")
def test_a_call_waits_for_a_connection_that_was_lost_a_moment_ago(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        with cell(tmp_path) as own:
            patient = replace(PATIENT, rejoin=PATIENCE)
            async with own.cluster(patient) as cluster, puppet(own, cluster, "n1", done) as node:
                own.nats.kill()
                await until(lambda: not cluster.wire.is_up)
                call = asyncio.create_task(end_of(cluster))
                own.nats.start()
                assert (await call).failure is None
                assert len(node.calls) == 1

    run(main)


def test_a_call_that_is_too_large_is_refused_with_the_limit(
    shared_cell: Cell,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    monkeypatch.setattr(calling, "MAX_BODY", 1 << 20)

    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", done) as node:
            large = InvokeTool("t", {"text": "x" * (2 << 20)}, {})
            answer = await cluster.call(target(), large, PATIENCE)
            assert answer.failure is not None and answer.failure.code == Code.FRAME_TOO_LARGE
            assert "1,048,576" in answer.failure.message and not node.calls

    run(main)


BODY = b'"' + b"x" * 1000 + b'"'
HASH = sha256(BODY).hexdigest()


@requirement("host:nodes-large")
@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([{}], None),
        ([{"seq": 0, "body": BODY[:500], "sha256": ""}, {"seq": 1, "body": BODY[500:]}], None),
        ([{"sha256": "0" * 64}], Code.MALFORMED_RESPONSE),
        ([{"seq": 0, "body": BODY[:500], "sha256": ""}], Code.MALFORMED_RESPONSE),
        ([{"seq": 0, "body": BODY[:500], "sha256": ""}, {"seq": 2, "body": BODY[500:]}], Code.MALFORMED_RESPONSE),
        ([{"size": 10}], Code.MALFORMED_RESPONSE),
        ([{"size": MAX_BODY + 1}], Code.MALFORMED_RESPONSE),
        ([{"sender": "n2"}], Code.MALFORMED_RESPONSE),
        ([{"call": "ab" * 16}], Code.MALFORMED_RESPONSE),
        ([], Code.MALFORMED_RESPONSE),
    ],
    ids=["one part", "two", "hash", "half", "missing", "small", "huge", "sender", "other call", "none"],
)
def test_a_large_answer_counts_when_all_of_it_has_come(
    shared_cell: Cell,
    parts: list[dict[str, Any]],
    code: str | None,
    run: Run,  # noqa: F811
) -> None:
    def answer(call: Call, node: Puppet) -> list[bytes]:
        for fields in parts:
            body = fields.get("body", BODY)
            usual: dict[str, Any] = {
                "kind": "data",
                "call": call.id,
                "sender": "n1",
                "seq": 0,
                "size": len(BODY),
                "sha256": HASH,
            }
            part = Part(**usual | {name: value for name, value in fields.items() if name != "body"})
            node.wire.post(SUBJECTS.reply_part(call.gateway, call.id), envelope.pack(part, body))
        return [node.frame(call, "done")]

    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", answer):
            answered = await end_of(cluster)
            assert (answered.failure and answered.failure.code) == code, answered.failure
            assert code is not None or bytes(answered.value) == BODY
            assert not cluster._assemblies

    run(main)


@requirement("host:nodes-large")
def test_large_answers_of_one_node_are_bounded_together(
    shared_cell: Cell,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    def answer(call: Call, node: Puppet) -> list[bytes]:
        part = Part(kind="data", call=call.id, sender="n1", seq=0, size=MAX_BODY)
        node.wire.post(SUBJECTS.reply_part(call.gateway, call.id), envelope.pack(part, b"x"))
        return []

    async def main() -> None:
        async with shared_cell.cluster() as cluster, puppet(shared_cell, cluster, "n1", answer):
            calls = [asyncio.ensure_future(end_of(cluster)) for _ in range(3)]
            ended, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert [each.result().failure.code for each in ended] == [Code.OVERLOADED]
            monkeypatch.setattr(chunks, "STALLED_SECONDS", 0.0)
            for each in waiting:
                assert (await each).failure.code == Code.MALFORMED_RESPONSE, "its next part is overdue"

    run(main)


def test_operations_of_screens_are_not_sent(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as cluster:
            answer = await cluster.call(target(), PressKey("s", {}), 1.0)
            assert answer.failure is not None and "PressKey" in answer.failure.message

    run(main)

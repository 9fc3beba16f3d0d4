"""Gateways answer the questions of nodes over a real NATS server: one gateway each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from plugbay.cluster.asking import Asker
from plugbay.cluster.asks import Asks, Holder
from plugbay.cluster.subjects import Subjects
from plugbay.cluster.wire import Wire
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import CompleteChat, GetStored, InvokeAction
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nodes import PASSWORD, Cell
from tests.support.patience import PATIENCE, pauses
from tests.support.requirements import requirement

SUBJECTS = Subjects("main")


class Leases:
    """The node n2 holds everything but what is free."""

    seconds = 30.0

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def take(self, name: str, node: str, boot: str) -> tuple[bool, Holder]:
        self.asked.append((name, node, boot))
        return (True, Holder(node, 7)) if "free" in name else (False, Holder("n2", 3))

    async def renew(self, held: Mapping[str, int], node: str, boot: str) -> list[str]:
        return [name for name, epoch in held.items() if epoch == 7]

    async def release(self, held: Mapping[str, int], node: str, boot: str) -> None:
        raise CallFailed(Failure(Code.UNAVAILABLE, "the database is away"))


class Requests:
    """Answers with what was asked."""

    async def answer(
        self, node: str, boot: str, plugin: str, leases: Mapping[str, int], op: Any, progress: Callable[[Any], None]
    ) -> Any:
        if isinstance(op, InvokeAction):
            return op.data
        if isinstance(op, CompleteChat):
            for number in range(20):
                progress(str(number))
            raise RuntimeError("a bug")
        return {"node": node, "boot": boot, "plugin": plugin, "leases": dict(leases), "key": op.key}


@asynccontextmanager
async def wire(made: Cell, user: str, add: Callable[[Wire], Any]) -> AsyncIterator[Any]:
    connection = Wire(made.settings(user), {"CELL_PASSWORD": PASSWORD}, {})
    added = add(connection)
    connection.begin()
    assert await connection.joined(PATIENCE)
    try:
        yield added
    finally:
        if isinstance(added, Asks):
            await added.stop()
        await connection.stop()


def node(made: Cell, name: str = "n1") -> Any:
    return wire(made, name, lambda connection: Asker(connection, SUBJECTS, name, "a1b2c3d4"))


def gateway(made: Cell, leases: Leases) -> Any:
    return wire(made, "gateway", lambda connection: Asks(connection, SUBJECTS, leases, Requests()))


@requirement("host:nodes-requests")
def test_one_gateway_answers_each_question(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    one, two = Leases(), Leases()

    async def main() -> None:
        async with gateway(shared_cell, one), gateway(shared_cell, two), node(shared_cell) as asker:
            for number in range(20):
                taken = msgspec.json.decode(await asker.ask("take", PATIENCE, {f"plugin/free{number}": 0}))
                assert taken == {"taken": True, "node": "n1", "epoch": 7, "seconds": 30.0}
            refused = msgspec.json.decode(await asker.ask("take", PATIENCE, {"plugin/p": 0}))
            assert (refused["taken"], refused["node"], refused["epoch"]) == (False, "n2", 3)
            renewed = msgspec.json.decode(await asker.ask("renew", PATIENCE, {"a": 7, "b": 6}))
            assert renewed == {"kept": ["a"], "seconds": 30.0}

    run(main)
    assert len(one.asked) + len(two.asked) == 21
    assert {asked[1:] for asked in one.asked + two.asked} == {("n1", "a1b2c3d4")}


@requirement("host:nodes-requests")
def test_requests_are_answered_with_values_progress_and_failures(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    seen: list[Any] = []

    async def main() -> None:
        async with gateway(shared_cell, Leases()), node(shared_cell) as asker:
            answer = await asker.request("plugin/p", 7, "p", GetStored("k"), seen.append)
            assert answer == {
                "node": "n1",
                "boot": "a1b2c3d4",
                "plugin": "p",
                "leases": {"plugin/p": 7},
                "key": "k",
            }
            assert await asker.request("", 0, "p", InvokeAction("a", b"\0\xff"), seen.append) == b"\0\xff"
            failed = await asker.request("", 0, "p", CompleteChat("a", "b", []), seen.append)
            assert isinstance(failed, Failure) and failed.code == Code.INTERNAL
            assert seen == [str(number) for number in range(20)]
            away = await asker.ask("release", PATIENCE, {"a": 1})
            assert isinstance(away, Failure) and away.message == "the database is away"
            for leases in ({}, {"a": 0, "b": 0}):
                malformed = await asker.ask("take", PATIENCE, leases)
                assert isinstance(malformed, Failure) and malformed.code == Code.INVALID_INPUT
            large = await asker.request("", 0, "p", InvokeAction("a", b"x" * 2_000_000), seen.append)
            assert isinstance(large, Failure) and large.code == Code.FRAME_TOO_LARGE

    run(main)


def test_a_node_cannot_ask_as_another_one(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    leases = Leases()

    async def main() -> None:
        pretending = wire(shared_cell, "n2", lambda connection: Asker(connection, SUBJECTS, "n1", "a1b2c3d4"))
        async with gateway(shared_cell, leases), pretending as pretender, node(shared_cell) as asker:
            assert isinstance(await pretender.ask("take", 0.2, {"plugin/free": 0}), Failure)
            assert leases.asked == [], "NATS refuses it"
            assert isinstance(await asker.ask("take", PATIENCE, {"plugin/free": 0}), bytes)

    run(main)


def test_a_gateway_that_stops_answers_no_more(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with node(shared_cell) as asker:
            async with gateway(shared_cell, Leases()):
                assert isinstance(await asker.ask("renew", PATIENCE, {}), bytes)
            for pause in pauses():  # until NATS has noticed the end of the connection
                nobody = await asker.ask("renew", 0.2, {})
                assert isinstance(nobody, Failure) and nobody.retryable
                if nobody.message == "no gateway is there":
                    break
                await asyncio.sleep(pause)

    run(main)

"""A plugin is asked once, for all who watch, and told when nobody does any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from plugbay.mcp_server.watches import Watches
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import ChangeResource, WatchResource
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement


class Client:
    """What a conversation is to a watch."""

    def __init__(self) -> None:
        self.closed = False
        self.told: list[Any] = []

    def tell(self, op: Any) -> None:
        self.told.append(op)


class Bench:
    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.asked: list[WatchResource] = []
        self.watches = Watches(self._ask, self._later)

    async def _ask(self, op: WatchResource) -> Failure | None:
        self.asked.append(op)
        return self.failure

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(StopIteration):  # it waits for nothing
            work.send(None)

    def change(self, client: Client, uri: str, wanted: bool = True) -> Failure | None:
        return asyncio.run(self.watches.change(client, WatchResource(uri, wanted)))  # type: ignore[arg-type]


@requirement("mcp:serve-resource-updates")
def test_the_first_watcher_begins_it_and_the_last_one_ends_it() -> None:
    bench, one, other = Bench(), Client(), Client()
    bench.change(one, "a://1")
    bench.change(other, "a://1")
    bench.change(one, "a://2")
    assert bench.asked == [WatchResource("a://1"), WatchResource("a://2")]
    bench.watches.changed("a://1")
    bench.watches.changed("a://3")
    assert one.told == other.told == [ChangeResource("a://1")]
    bench.watches.leave(one)  # type: ignore[arg-type]
    assert bench.asked[2:] == [WatchResource("a://2", False)]
    bench.change(other, "a://1", False)
    bench.change(other, "a://1", False)
    assert bench.asked[3:] == [WatchResource("a://1", False)]
    assert bench.watches.addresses == []


def test_whoever_is_refused_or_has_gone_meanwhile_watches_nothing() -> None:
    refused, client = Bench(Failure(Code.NOT_FOUND, "no")), Client()
    failure = refused.change(client, "a://1")
    assert failure is not None and failure.code == Code.NOT_FOUND
    client.closed = True
    gone = Bench()
    assert gone.change(client, "a://1") is None
    assert refused.watches.addresses == gone.watches.addresses == []


def test_a_new_process_is_asked_again() -> None:
    bench = Bench()
    bench.change(Client(), "a://1")
    bench.watches.again("a://1")
    assert bench.asked == [WatchResource("a://1")] * 2


class Slow(Bench):
    """A plugin that answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: asyncio.Queue[Failure | None] = asyncio.Queue()
        self.tasks: list[asyncio.Future[Any]] = []

    async def _ask(self, op: WatchResource) -> Failure | None:
        self.asked.append(op)
        return await self.answers.get()

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def begin(self, client: Client, wanted: bool = True) -> asyncio.Future[Failure | None]:
        work = self.watches.change(client, WatchResource("a://1", wanted))  # type: ignore[arg-type]
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def let(self, *answers: Failure | None) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)
        await until(lambda: self.answers.empty() and all(task.done() for task in self.tasks))


BEGUN, ENDED = WatchResource("a://1"), WatchResource("a://1", False)


@requirement("mcp:serve-resource-updates")
def test_whoever_comes_while_another_one_goes_is_told_all_the_same(run: Run) -> None:
    async def main() -> None:
        bench, one, other = Slow(), Client(), Client()
        bench.begin(one)
        await bench.let(None)
        bench.watches.leave(one)  # type: ignore[arg-type]
        bench.begin(other)
        await bench.let(None, None)
        assert bench.asked == [BEGUN, ENDED, BEGUN]
        bench.watches.changed("a://1")
        assert (one.told, other.told) == ([], [ChangeResource("a://1")])

    run(main)


@requirement("mcp:serve-resource-updates")
def test_whoever_comes_while_the_plugin_thinks_gets_an_answer_of_its_own(run: Run) -> None:
    async def main() -> None:
        bench = Slow()
        refused, taken = bench.begin(Client()), bench.begin(Client())
        no = Failure(Code.NOT_FOUND, "not now")
        await bench.let(no, None)
        assert (refused.result(), taken.result()) == (no, None)
        assert bench.asked == [BEGUN, BEGUN]

    run(main)


@requirement("mcp:serve-resource-updates")
def test_whoever_changes_its_mind_while_the_plugin_thinks_watches_nothing(run: Run) -> None:
    async def main() -> None:
        bench, client, gone = Slow(), Client(), Client()
        bench.begin(client)
        await bench.begin(client, wanted=False)
        await bench.let(None, None)
        bench.begin(gone)
        gone.closed = True
        await bench.let(None, None)
        assert bench.asked == [BEGUN, ENDED] * 2
        assert bench.watches.addresses == []

    run(main)

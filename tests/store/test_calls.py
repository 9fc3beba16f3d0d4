"""The call history."""

from __future__ import annotations

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure
from plugbay.store import calls
from plugbay.store.database import Database
from plugbay.store.pages import Page
from tests.support.loops import Run


def record(number: int, failure: Failure | None = None, export: str = "t") -> CallRecord:
    return CallRecord(f"call_{number}", "p", "1", "rune", export, float(number), 1.5, failure)


def test_calls_are_filtered_and_have_no_payloads(database_url: str, run: Run) -> None:
    async def main() -> None:
        failure = Failure(Code.CRASHED, "it said hunter2", detail={"exit": "1", "stderr_tail": ["hunter2"]})
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await calls.insert(tx, [record(1), record(2, failure), record(3, export="a\0\ud800b")])
            part = await calls.page(tx, Page())
            assert [item.id for item in part.items] == ["call_3", "call_2", "call_1"]
            assert part.items[1].failure == {"code": "crashed", "origin": "host", "exit": "1"}
            assert part.items[0].export == "a\N{REPLACEMENT CHARACTER}?b"
            failed = await calls.page(tx, Page(), status="failed", plugin="p", export="t")
            assert [item.id for item in failed.items] == ["call_2"]
            between = await calls.page(tx, Page(), since=2.0, until=3.0)
            assert [item.id for item in between.items] == ["call_2"]
            assert await calls.get(tx, "call_2") == part.items[1]
            assert await calls.get(tx, "call_9") is None
        await database.close()

    run(main)


def test_a_call_that_is_written_down_already_is_so_once(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        for written in ([record(1), record(2)], [record(2), record(3)]):
            async with database.transaction() as tx:
                await calls.insert(tx, written)
        async with database.reading() as tx:
            part = await calls.page(tx, Page())
            assert [item.id for item in part.items] == ["call_3", "call_2", "call_1"]
        await database.close()

    run(main)


def test_only_the_last_calls_are_kept(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await calls.insert(tx, [record(number) for number in range(10)])
            assert await calls.trim(tx, 10) == 0
            assert await calls.trim(tx, 3) == 7
            part = await calls.page(tx, Page())
            assert [item.id for item in part.items] == ["call_9", "call_8", "call_7"]
        await database.close()

    run(main)


def test_failed_calls_alone_are_listed(database_url: str, run: Run) -> None:
    later = Failure(Code.OVERLOADED, "later", retryable=True)
    gone = Failure(Code.CANCELLED, "gone")

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await calls.insert(
                tx, [record(1), record(2, Failure(Code.CRASHED, "x")), record(3, later), record(4, gone)]
            )
            part = await calls.page(tx, Page(), failed=True)
            assert [item.id for item in part.items] == ["call_3", "call_2"], "a cancelled call has not failed"
        await database.close()

    run(main)


def test_calls_are_summed_up_by_the_minute_in_which_they_started(database_url: str, run: Run) -> None:
    def call(number: int, at: float, took: float, failure: Failure | None = None, plugin: str = "p") -> CallRecord:
        return CallRecord(f"call_{number}", plugin, "1", "rune", "t", at, took, failure)

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        first = [call(number, 600.0 + number / 10, float(number)) for number in range(1, 201)]
        rest = [
            call(300, 659.999999, 7.0, Failure(Code.CRASHED, "x"), "q"),
            call(301, 660.0, 4.0, Failure(Code.CANCELLED, "gone")),
            call(302, 540.0, 1.0),
        ]
        async with database.transaction() as tx:
            await calls.insert(tx, [*first, *rest])
            found = await calls.minutes(tx, 600.0)
            assert found == [calls.CallMinute(10, 201, 1, 100.0, 198.0), calls.CallMinute(11, 1, 0, 4.0, 4.0)]
            assert await calls.minutes(tx, 600.0, plugin="q") == [calls.CallMinute(10, 1, 1, 7.0, 7.0)]
            assert await calls.minutes(tx, 720.0) == []
        await database.close()

    run(main)

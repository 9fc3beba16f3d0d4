"""Calls are counted at once, written down soon, and never more than are kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.domain import call_history as module
from plugbay.server.domain.background import Tasks
from plugbay.server.domain.call_history import CallHistory
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.meters import Meters
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page
from tests.store.test_calls import record
from tests.support.loops import Run


def test_calls_are_written_in_the_background_and_survive_a_restart(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        history, tasks = CallHistory(database, Meters(), pause=0.001), Tasks()
        history.begin(tasks)
        for number in range(3):
            history.finished(record(number))
        while len((await history.page(Page())).items) < 3:
            pass  # `run` has a limit of its own
        await tasks.stop()
        await database.close()
        again = await Database.open(database_url, migrate=False)
        assert len((await CallHistory(again, Meters()).page(Page(), plugin="p")).items) == 3
        await again.close()

    run(main)


def test_calls_are_counted_by_plugin_export_and_outcome(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1))
        history.finished(record(2, Failure(Code.TIMEOUT, "late")))
        history.finished(CallRecord("call_3", "", "", "", "made up by a caller", 1.0, 1.0, Failure(Code.NOT_FOUND, "")))
        counted = {tuple(value for _, value in labels) for labels in history.meters.counters["calls"]}
        assert counted == {
            ("none", "t", "p", "succeeded"),
            ("timeout", "t", "p", "failed"),
            ("not_found", "none", "none", "failed"),
        }
        assert list(history.last_failures) == ["p"] and history.last_failures["p"].call_id == "call_2"
        assert sum(history.meters.histograms["call_seconds"][(("export", "t"), ("plugin", "p"))].counts) == 2
        await database.close()

    run(main)


def test_what_is_too_much_is_lost_and_counted_and_the_oldest_are_forgotten(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters(), kept=3)
        for number in range(7):
            history.finished(record(number))
        assert history.lost == 2
        await history.flush()
        assert [call.id for call in (await history.page(Page())).items] == ["call_6", "call_5", "call_4"]
        await database.close()

    monkeypatch.setattr(module, "MAX_WAITING", 5)
    run(main)


def test_what_cannot_be_written_now_waits(tmp_path: Path, sqlite_url: str, run: Run) -> None:
    class Closed(Database):
        def transaction(self) -> object:  # type: ignore[override]
            raise StoreUnavailable("locked")

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1))
        history._database = Closed(database._engine)
        with pytest.raises(StoreUnavailable):
            await history.flush()
        history._database = database
        await history.flush()
        assert len((await history.page(Page())).items) == 1
        await database.close()

    run(main)


def test_one_call_can_be_had_by_its_id(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1, Failure(Code.TIMEOUT, "late")))
        with pytest.raises(GatewayError, match=r"call\.not_found"):
            await history.get("call_2")
        waiting = await history.get("call_1")
        flushing = asyncio.ensure_future(history.flush())
        while not flushing.done():
            assert await history.get("call_1") == waiting, "wherever it is on its way"
            await asyncio.sleep(0)
        assert await history.get("call_1") == waiting and not history._writing
        await database.close()

    run(main)

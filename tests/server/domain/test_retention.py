"""Old records are removed in the background, in small transactions."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from plugbay.host.config.sections import RetentionConfig, days
from plugbay.server.domain import retention as module
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.retention import BATCH, FAILED, REMOVED, Retention
from plugbay.store import calls, events
from plugbay.store import retention as rows
from plugbay.store.database import Tx
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page
from plugbay.store.retention import KINDS, Cutoffs, Key
from tests.store.aged_rows import NUMBER, insert_all, insert_delivery, insert_invocation
from tests.store.conversing_rows import event
from tests.store.test_calls import record
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.patience import until

DEFAULTS = RetentionConfig()


def counted(gateway: Gateway, kind: str) -> float:
    return gateway.meters.counters[REMOVED][(("kind", kind),)]


def test_every_kind_of_record_has_a_retention_time() -> None:
    known = {"spending", "answers", "tokens", "journeys"}
    assert set(RetentionConfig.model_fields) | known == set(KINDS) and not known & set(RetentionConfig.model_fields)


def test_a_gateway_removes_old_records_after_its_start_and_logs_it(
    database_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_ROUND_AFTER", 0.0)
    caplog.set_level(logging.INFO, "plugbay.server.domain")

    async def main() -> None:
        early = gateway_at(database_url, tmp_path, clock=TurnedClock(1000.0))
        async with early as gateway, gateway.database.transaction() as tx:
            await calls.insert(tx, [record(number) for number in (1, 2, 3)])
        clock = TurnedClock(days(30) + 2.5)
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await until(lambda: counted(gateway, "calls") == 2)
            assert [call.id for call in (await gateway.calls.page(Page())).items] == ["call_3"]
            await until(lambda: any("were removed" in told.message for told in caplog.records))
            (told,) = [told for told in caplog.records if "were removed" in told.message]
            assert vars(told)["removed"] == {"calls": 2}
            assert "removal of old records" in gateway.tasks.names

    run(main)


def test_each_kind_is_kept_for_its_time_after_it_ended_and_not_a_moment_less(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            began = clock.now()
            async with gateway.database.transaction() as tx:
                await insert_invocation(tx, 1, began - days(80), began)
                await insert_invocation(tx, 2, began - days(80), None)
                await events.insert(tx, event("evt_1", occurred_at=began))
                await insert_delivery(tx, 1, "evt_1", "delivered", began)
                await insert_delivery(tx, 2, "evt_1", "dead_letter", began)
            clock.turn(days(90))
            assert not any(old.number for old in (await gateway.retention.remove()).values())
            clock.turn(0.001)
            gone = {kind: old.number for kind, old in (await gateway.retention.remove()).items() if old.number}
            assert gone == {"invocations": 1, "deliveries": 1}, "the event has a dead letter that may be told again"
            clock.turn(days(3650))
            assert not any(old.number for old in (await gateway.retention.remove()).values())

    run(main)


def test_the_previewed_records_are_removed_in_small_transactions_and_audited(
    database_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    remove = rows.remove

    async def measured(tx: Tx, kind: str, cutoffs: Cutoffs, found: Sequence[Key]) -> int:
        sizes.append(len(found))
        return await remove(tx, kind, cutoffs, found)

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=TurnedClock()) as gateway:
            await until(lambda: not gateway.retention._round.locked())
            async with gateway.database.transaction() as tx:
                await insert_all(tx, random.Random(1))
            clock = TurnedClock(days(400))
            once = Retention(gateway.database, DEFAULTS, Audit(gateway.database, clock), Meters(), clock, batch=4)
            planned = await once.preview()
            monkeypatch.setattr(rows, "remove", measured)
            assert await once.prune(OPERATOR) == planned and planned["calls"].number == NUMBER
            assert max(sizes) == 4 < BATCH and planned["calls"].kept == days(30) and planned["audit"].kept is None
            (entry, *_) = (await gateway.audit.page(OPERATOR, Page(), action="records.prune")).items
            assert entry.details["removed"]["calls"] == NUMBER and "audit" not in entry.details["removed"]
            assert not any(old.number for old in (await once.preview()).values())

    run(main)


@pytest.mark.parametrize("error", [StoreUnavailable("it is away"), LookupError("it is away")])
def test_an_error_with_one_kind_stops_no_other_and_is_logged_and_retried(
    sqlite_url: str,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    find, away = rows.find, True

    async def finding(tx: Tx, kind: str, cutoffs: Cutoffs, limit: int, after: Key | None = None) -> list[Key]:
        if away and kind == "calls":
            raise error
        return await find(tx, kind, cutoffs, limit, after)

    monkeypatch.setattr(rows, "find", finding)
    monkeypatch.setattr(module, "FIRST_ROUND_AFTER", 0.0)
    monkeypatch.setattr(module, "RETRY_AFTER", 0.001)

    async def main() -> None:
        nonlocal away
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            async with gateway.database.transaction() as tx:
                await calls.insert(tx, [record(1)])
                await insert_invocation(tx, 1, 1.0, 2.0)
            await until(lambda: counted(gateway, "invocations") == 1)
            assert counted(gateway, "calls") == 0
            assert "old calls cannot be removed now" in caplog.text and "it is away" in caplog.text
            failed = gateway.meters.counters[FAILED]
            assert failed[(("kind", "calls"),)] >= 1 and failed[(("kind", "events"),)] == 0
            away = False
            await until(lambda: counted(gateway, "calls") == 1)
            assert not gateway.tasks.crashes

    run(main)


def test_paging_continues_after_records_were_removed(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock(1000.0)
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            async with gateway.database.transaction() as tx:
                await calls.insert(tx, [record(number) for number in range(1, 7)])
            first = await gateway.calls.page(Page(2))
            assert [call.id for call in first.items] == ["call_6", "call_5"]
            clock.wall = days(30) + 5.5
            assert (await gateway.retention.remove())["calls"].number == 5
            rest = await gateway.calls.page(Page(2, first.after))
            assert rest.items == () and rest.after is None
            assert [call.id for call in (await gateway.calls.page(Page(2))).items] == ["call_6"]

    run(main)

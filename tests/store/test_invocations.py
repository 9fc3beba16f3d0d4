"""Invocations: opened, closed once, read back unchanged."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plugbay.host.invocations.context import moment
from plugbay.host.ports import InvocationRecord
from plugbay.store import invocations, leases
from plugbay.store.database import Database
from plugbay.store.invocations import Outcome, Wanted
from plugbay.store.pages import Page
from tests.support.databases import run_write
from tests.support.loops import Run
from tests.support.requirements import requirement


def record(number: int = 1, **fields: Any) -> InvocationRecord:
    values: dict[str, Any] = {
        "invocation_id": f"inv_{number}",
        "trace_id": "tr_1",
        "export_kind": "tool",
        "export_id": "t",
        "package_id": "acme/p",
        "package_version": "1.0.0",
        "binding_id": "bind_1",
        "execution_class": "isolated",
        "org_id": "org_1",
        "project_id": None,
        "session_id": "sess_1",
        "chain_id": None,
        "run_id": None,
        "execution_id": "toolx_1",
        "retry_count": 0,
        "started_at": moment(1_770_000_000.123 + number),
        "permissions": {"network": "none"},
        "narrowed": True,
        "request_bytes": 7,
    }
    return InvocationRecord(**{**values, **fields})


def ended(opened: InvocationRecord, status: str = "succeeded") -> InvocationRecord:
    return replace(opened, status=status, ended_at=moment(1_770_000_100.001), event_count=3)


@requirement("vai:control-invocation-record")
def test_a_record_is_read_back_as_it_was_written_and_closed_once(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await run_write(tx, invocations.opening(record()))
            assert await invocations.get(tx, "inv_1") == record() and await invocations.is_open(tx, "inv_1")
            assert (await run_write(tx, invocations.closing(ended(record())))).changed
            assert not (await run_write(tx, invocations.closing(ended(record(), "failed")))).changed
            assert await invocations.get(tx, "inv_1") == ended(record())
            assert not await invocations.is_open(tx, "inv_1") and await invocations.get(tx, "inv_2") is None
            assert not (await run_write(tx, invocations.closing(ended(record(2))))).changed
        await database.close()

    run(main)


def test_what_is_open_is_closed_together_and_nothing_else(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for number in (1, 2, 3):
                await run_write(tx, invocations.opening(record(number)))
            await run_write(tx, invocations.closing(ended(record(2))))
            left = await invocations.close_all(tx, 1_770_000_200.0, "failed", "host_restarted", "host_restarted")
            assert sorted(left) == ["inv_1", "inv_3"]
            closed = await invocations.get(tx, "inv_3")
            assert closed is not None and (closed.status, closed.error_code) == ("failed", "host_restarted")
            assert await invocations.get(tx, "inv_2") == ended(record(2))
            assert await invocations.close_all(tx, 1.0, "failed", "a", "b") == []
        await database.close()

    run(main)


@requirement("vai:control-invocation-filters")
def test_a_list_is_narrowed_by_anything_that_was_written_down(database_url: str, run: Run) -> None:
    rows = [
        record(1),
        record(2, org_id="org_2", export_id="u", export_kind="hook", trace_id="tr_2"),
        record(3, project_id="proj_1", run_id="run_1", chain_id="ch_1", binding_id="bind_2"),
    ]
    at = 1_770_000_000.123

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for row in rows:
                await run_write(tx, invocations.opening(row))
            await run_write(tx, invocations.closing(ended(rows[0])))

            async def found(org: str | None = None, project: str | None = None, **wanted: Any) -> list[str]:
                times = {name: wanted.pop(name) for name in ("status", "since", "until") if name in wanted}
                part = await invocations.select_part(tx, org, project, Page(), Wanted(wanted, **times))
                return [item.invocation_id for item in part.items]

            assert await found() == ["inv_3", "inv_2", "inv_1"]
            assert await found("org_1") == ["inv_3", "inv_1"] and await found("org_1", "proj_2") == ["inv_1"]
            assert await found(export_id="u") == ["inv_2"] == await found(export_kind="hook", trace_id="tr_2")
            assert await found(run_id="run_1") == ["inv_3"] == await found(chain_id="ch_1", binding_id="bind_2")
            assert await found(status="running") == ["inv_3", "inv_2"] and await found(status="succeeded") == ["inv_1"]
            assert await found(since=at + 2) == ["inv_3", "inv_2"] and await found(until=at + 2) == ["inv_1"]
        await database.close()

    run(main)


@requirement("vai:control-invocation-result")
def test_the_outcome_is_closed_with_the_record_and_read_apart_from_it(database_url: str, run: Run) -> None:
    outcome = Outcome(b'{"content":[]}', 14, {"code": "acme.half", "detail": {"exit_code": 7}})

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await run_write(tx, invocations.opening(record()))
            assert await invocations.outcome(tx, "inv_1") == Outcome()
            await run_write(tx, invocations.closing(ended(record(), "failed"), outcome))
            await run_write(tx, invocations.closing(ended(record(), "failed"), Outcome(b"{}", 2)))
            assert await invocations.outcome(tx, "inv_1") == outcome, "it is closed once"
            assert await invocations.get(tx, "inv_1") == ended(record(), "failed")
            assert await invocations.outcome(tx, "inv_2") == Outcome()
        await database.close()

    run(main)


@requirement("vai:host-retry-count")
def test_the_attempts_at_an_execution_are_counted_for_its_org(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for number, fields in enumerate(({}, {}, {"org_id": "org_2"}, {"execution_id": "toolx_2"})):
                await run_write(tx, invocations.opening(record(number, **fields)))
            assert await invocations.count(tx, "org_1", "toolx_1") == 2
            assert await invocations.count(tx, "org_1", "toolx_9") == 0
        await database.close()

    run(main)


def test_the_invocations_of_other_gateways_are_found_while_they_are_open_or_new(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            for name in ("mine", "other"):
                taken = await leases.take(tx, f"gateway/{name}", name, 60.0)
                assert taken is not None
                for number in range(2):
                    opened = await run_write(
                        tx, invocations.opening(record(invocation_id=f"inv_{name}_{number}"), taken.fence)
                    )
                    assert opened.changed == 1
            fenced = await run_write(
                tx, invocations.opening(record(invocation_id="inv_late"), leases.Fence("gateway/other", "other", 0))
            )
            assert fenced.changed == 0, "nothing is inserted for an old epoch"
            await run_write(tx, invocations.closing(ended(record(invocation_id="inv_other_1"))))
            assert await invocations.of_others(tx, "mine", 0.0) == {"inv_other_0": True, "inv_other_1": False}
            assert await invocations.of_others(tx, "mine", 1e12) == {"inv_other_0": True}
            found = await invocations.with_outcomes(tx, ["inv_other_1", "inv_gone"])
            assert [pair[0].invocation_id for pair in found] == ["inv_other_1"]
            await invocations.request_cancel(tx, "inv_mine_0", "user_cancelled")
            assert await invocations.to_cancel(tx, "mine") == [("inv_mine_0", "user_cancelled")]
            assert await invocations.to_cancel(tx, "other") == []
            left = await invocations.close_all(tx, 5.0, "failed", "host_restarted", "host_restarted", owner="mine")
            assert sorted(left) == ["inv_mine_0", "inv_mine_1"]
            assert await invocations.of_others(tx, "mine", 1e12) == {"inv_other_0": True}
        await database.close()

    run(main)

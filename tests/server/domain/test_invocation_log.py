"""Invocations as rows: closed once, in the end, whatever happens in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.host.ports import InvocationRecord, ResumeState
from plugbay.server.domain import invocation_log
from plugbay.server.domain.invocation_log import KEPT_JOURNEYS, RESTARTED, SqlCheckpoints
from plugbay.server.domain.live import ENDED, STARTED
from plugbay.server.domain.principal import OPERATOR
from plugbay.store import invocations as rows
from plugbay.store.database import Tx
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page
from tests.server.domain.test_credentials import claims, refused
from tests.store.test_invocations import ended, record
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

ROOT = Path(__file__).parents[3]

OPENED = record(1, binding_id=None)


@requirement("vai:control-invocation-restart")
def test_what_a_killed_gateway_left_open_is_closed_by_the_next_one_and_its_tokens_are_dead(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await gateway.invocation_log.opened(OPENED)
            token = await gateway.credentials.issue(claims(clock))
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            found = await gateway.invocations.get(OPERATOR, "inv_1")
            assert (found.status, found.status_reason, found.error_code) == ("failed", RESTARTED, RESTARTED)
            assert found.ended_at is not None and await refused(gateway, token) == "auth.token_revoked"
            assert await gateway.invocation_log.recover() == 0

    run(main)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path

from tests.server.domain.test_invocations import WAITS, KEY, plugged, work
from tests.support.packaged import bind

async def main() -> None:
    data = Path(sys.argv[2])
    async with plugged(sys.argv[1], data, WAITS) as (gateway, package, _):
        issue = gateway.credentials.issue

        async def told(claims):
            token = await issue(claims)
            (data / "token").write_text(token)
            return token

        gateway.credentials.issue = told
        await bind(gateway, package, secrets=KEY)
        await gateway.invocations.invoke(work(), lambda event: os.kill(os.getpid(), signal.SIGKILL))

asyncio.run(main())
"""


@requirement("vai:control-invocation-restart")
def test_a_gateway_that_is_killed_in_the_middle_of_an_invocation_leaves_neither_a_row_open_nor_a_token_alive(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, database_url, str(tmp_path)], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            (left,) = (await gateway.invocations.page(OPERATOR, Page(), Wanted({}))).items
            assert (left.status, left.error_code) == ("failed", RESTARTED)
            token = (tmp_path / "token").read_text()
            assert await refused(gateway, token) == "auth.token_revoked"

    run(main)


@requirement("vai:control-invocation-record")
def test_an_end_that_cannot_be_written_down_is_written_down_later_and_told_once(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation_log, "PAUSE", 0.001)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            watch = gateway.live.watch(lambda event: True)
            assert watch is not None
            await gateway.invocation_log.opened(OPENED)
            close, away = rows.close, True

            async def closing(tx: Tx, told: InvocationRecord) -> bool:
                if away:
                    raise StoreUnavailable("it is away")
                return await close(tx, told)

            monkeypatch.setattr(rows, "close", closing)
            await gateway.invocation_log.closed(ended(OPENED))
            assert (await gateway.invocations.get(OPERATOR, "inv_1")).status is None
            away = False
            await until(lambda: not gateway.invocation_log._unclosed)
            assert await gateway.invocations.get(OPERATOR, "inv_1") == ended(OPENED)
            await gateway.invocation_log.closed(ended(OPENED, "failed"))
            assert await gateway.invocations.get(OPERATOR, "inv_1") == ended(OPENED)
            assert [(await anext(watch)).type for _ in range(2)] == [STARTED, ENDED]
            assert sum(gateway.meters.counters["plugin_invocations"].values()) == 1

    run(main)


def test_journeys_are_kept_for_a_month(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            kept = SqlCheckpoints(gateway.database, clock)
            await kept.save("exec_1", ResumeState(summary="so far"))
            clock.turn(KEPT_JOURNEYS)
            await gateway.retention.remove()
            assert await kept.load("exec_1") == ResumeState(summary="so far")
            clock.turn(1)
            await gateway.retention.remove()
            assert await kept.load("exec_1") is None

    run(main)


@exhaustive
@requirement("vai:control-group-commit", "vai:control-invocation-restart")
def test_a_gateway_that_is_killed_among_many_has_written_all_that_were_answered(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    command = [sys.executable, "-m", "tests.server.domain.acknowledging", database_url, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as gateway_process:
        assert gateway_process.stdout is not None
        told = [gateway_process.stdout.readline() for _ in range(200)]
        gateway_process.send_signal(signal.SIGKILL)
        told += gateway_process.stdout.readlines()
    answered = dict(line.decode().split() for line in told if line.endswith(b"\n"))
    assert len(answered) >= 200 and set(answered.values()) == {"succeeded"}

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            found: list[InvocationRecord] = []
            page: Page | None = Page(limit=200)
            while page is not None:
                part = await gateway.invocations.page(OPERATOR, page, Wanted({}))
                found += part.items
                page = None if part.after is None else Page(200, part.after)
            statuses = {each.invocation_id: each.status for each in found}
            assert {id: statuses.get(id) for id in answered} == answered
            rest = [each for each in found if each.invocation_id not in answered]
            assert {(each.status, each.error_code) for each in rest} <= {("succeeded", None), ("failed", RESTARTED)}

    run(main)

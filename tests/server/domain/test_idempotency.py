"""A repeated request is carried out once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.server.domain.idempotency import LOST, MAX_BODY, REFUSED, Completed
from plugbay.store import idempotency as rows
from plugbay.store.failures import StoreUnavailable
from tests.support.clocks import TurnedClock
from tests.support.gateways import code_of, gateway_at
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

KEY, DIGEST, OTHER = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32


@requirement("vai:control-idempotency")
def test_a_request_is_carried_out_once_until_its_answer_is_too_old(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            requests = gateway.idempotency
            assert await requests.begin(KEY, DIGEST, 60.0) is None
            assert await code_of(requests.begin(KEY, DIGEST, 60.0)) == "idempotency.in_progress"
            await requests.finish(KEY, Completed(201, {"location": "/x"}, b"{}"))
            again = await requests.begin(KEY, DIGEST, 60.0)
            assert again is not None and (again.status, again.body) == (201, b"{}")
            assert await code_of(requests.begin(KEY, OTHER, 60.0)) == "idempotency.conflict"
            clock.turn(60)
            assert await requests.begin(KEY, OTHER, 60.0) is None, "its time is over"
            await requests.finish(KEY, REFUSED)
            assert await requests.begin(KEY, DIGEST, 60.0) is None
            await requests.finish(KEY, Completed(201, {}, b"{}"))
            clock.turn(61)
            assert (await gateway.retention.remove())["answers"].number == 1

    run(main)


@requirement("vai:control-idempotency")
def test_an_answer_that_is_not_stored_or_lost_in_a_crash_is_reported_as_lost(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            requests = gateway.idempotency
            for outcome in (LOST, Completed(200, {}, b"x" * (MAX_BODY + 1))):
                await requests.begin(KEY, DIGEST, 60.0)
                await requests.finish(KEY, outcome)
                assert await code_of(requests.begin(KEY, DIGEST, 60.0)) == "idempotency.answer_lost"
                await requests.finish(KEY, REFUSED)
            await requests.begin(KEY, DIGEST, 60.0)
            await requests.start()
            assert await code_of(requests.begin(KEY, DIGEST, 60.0)) == "idempotency.answer_lost"

    run(main)


@requirement("vai:control-idempotency")
def test_of_many_requests_with_a_key_that_has_expired_one_is_carried_out(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            assert await gateway.idempotency.begin(KEY, DIGEST, 60.0) is None
            clock.turn(61)
            begun = [gateway.idempotency.begin(KEY, DIGEST, 60.0) for _ in range(10)]
            answers = await asyncio.gather(*begun, return_exceptions=True)
            assert [answer for answer in answers if not isinstance(answer, Exception)] == [None]

    run(main)


@requirement("vai:control-idempotency-database")
def test_a_claim_whose_commit_was_not_confirmed_is_taken_over(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            requests, now = gateway.idempotency, gateway.clock.now()
            async with gateway.database.transaction() as tx:
                await rows.insert(tx, KEY, DIGEST, now, now + 60.0)
            assert await requests.claim(KEY, DIGEST, 60.0) is None, "nobody is at it"
            assert await code_of(requests.claim(KEY, DIGEST, 60.0)) == "idempotency.in_progress"
            assert await code_of(requests.claim(KEY, OTHER, 60.0)) == "idempotency.conflict"
            await requests.settle(KEY, Completed(201, {}, b"{}"))
            again = await requests.claim(KEY, DIGEST, 60.0)
            assert again is not None and again.status == 201

    run(main)


@requirement("vai:control-idempotency-database")
def test_deferred_outcomes_are_written_once_the_database_is_back(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            requests, transaction = gateway.idempotency, gateway.database.transaction
            for outcome in (Completed(200, {}, b"{}"), LOST, REFUSED):
                assert await requests.claim(KEY, DIGEST, 60.0) is None

                def away(**_: Any) -> Any:
                    raise StoreUnavailable("away")

                gateway.database.transaction = away  # type: ignore[method-assign]
                await requests.settle(KEY, outcome)
                with pytest.raises(StoreUnavailable):
                    await requests.claim(KEY, DIGEST, 60.0)
                assert not await requests.write_deferred()
                gateway.database.transaction = transaction  # type: ignore[method-assign]
                await until(lambda: not requests._deferred)
                async with gateway.database.reading() as tx:
                    found = await rows.get(tx, KEY)
                states = {REFUSED: None, LOST: rows.UNKNOWN}
                assert (None if found is None else found.state) == states.get(str(outcome), rows.DONE)
                await requests.finish(KEY, REFUSED)

    run(main)

"""Tokens: for one invocation, known by their hash, spent within limits, dead when they should be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from plugbay.server.domain.clock import stamp
from plugbay.server.domain.credentials import KEPT_EXPIRED, NotOpen
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store import invocations
from plugbay.store.tables import TOKENS
from tests.store.test_invocations import ended, record
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.requirements import requirement


def claims(clock: TurnedClock, number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "invocation_id": f"inv_{number}",
        "binding_id": None,
        "org_id": "org_1",
        "project_id": "proj_1",
        "execution_id": "exec_1",
        "scopes": ["runs:write"],
        "policy": {"max_depth": 2, "max_child_runs": 3, "allow_compaction": False},
        "issued_at": stamp(clock.now()),
        "expires_at": stamp(clock.now() + 60),
        **fields,
    }


async def opened(gateway: Gateway, number: int = 1) -> None:
    async with gateway.database.transaction() as tx:
        await invocations.open(tx, record(number, binding_id=None))


async def refused(gateway: Gateway, token: str) -> str:
    with pytest.raises(GatewayError) as caught:
        await gateway.authenticate(token)
    assert caught.value.status == 401 and token not in str(caught.value)
    return caught.value.code


@requirement("vai:control-token")
def test_a_token_is_somebody_until_it_is_revoked_or_expires_and_only_its_hash_is_kept(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await opened(gateway)
            token, other = [await gateway.credentials.issue(claims(clock)) for _ in range(2)]
            who = await gateway.authenticate(token)
            assert (who.kind, who.org_id, who.project_id, who.scopes) == (
                "delegated",
                "org_1",
                "proj_1",
                frozenset({"runs:write"}),
            )
            assert who.invocation_id == "inv_1" and who.claims["execution_id"] == "exec_1"
            async with gateway.database.reading() as tx:
                kept = (await tx.execute(select(TOKENS))).all()
            assert token not in repr(kept) and len(kept) == 2
            await gateway.credentials.revoke(token)
            assert await refused(gateway, token) == "auth.token_revoked"
            clock.turn(60)
            assert await refused(gateway, other) == "auth.token_expired"
            assert await refused(gateway, "vai_dlg_invented") == "auth.key_unknown"
            clock.turn(KEPT_EXPIRED + 1)
            assert (await gateway.retention.remove())["tokens"].number == 2
            assert await refused(gateway, other) == "auth.key_unknown"

    run(main)


@requirement("vai:control-token")
def test_an_invocation_that_has_ended_gets_no_token_and_those_it_had_are_dead(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await opened(gateway)
            token = await gateway.credentials.issue(claims(clock))
            await gateway.invocation_log.closed(ended(record(1, binding_id=None)))
            assert await refused(gateway, token) == "auth.token_revoked"
            for wrong in (claims(clock), claims(clock, 2)):
                with pytest.raises(NotOpen):
                    await gateway.credentials.issue(wrong)

    run(main)


@requirement("vai:control-harness-limits")
def test_limits_hold_over_all_tokens_of_one_execution_however_many_ask_at_once(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await opened(gateway)
            await opened(gateway, 2)
            tokens = [await gateway.credentials.issue(claims(clock, number)) for number in (1, 2)]
            callers = [await gateway.authenticate(token) for token in tokens]

            async def spend(caller: Principal, **said: Any) -> GatewayError | None:
                try:
                    await gateway.credentials.spend(caller, said.pop("what", "child_run"), **said)
                except GatewayError as error:
                    return error
                return None

            refusals = [item for item in await asyncio.gather(*(spend(callers[n % 2]) for n in range(6))) if item]
            assert [(item.status, item.code) for item in refusals] == [(403, "policy.limit_exceeded")] * 3
            assert refusals[0].details == {"limit": "max_child_runs", "max": 3}
            deep = await spend(callers[0], depth=3)
            assert deep is not None and deep.details == {"limit": "max_depth", "max": 2}
            compaction = await spend(callers[0], what="compaction")
            assert compaction is not None and compaction.details == {"limit": "allow_compaction", "max": False}
            assert await spend(OPERATOR) is None and await spend(OPERATOR, what="compaction") is None

    run(main)


def test_what_is_not_done_is_not_spent(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await opened(gateway)
            one = claims(clock, policy={"max_child_runs": 1})
            caller = await gateway.authenticate(await gateway.credentials.issue(one))
            with pytest.raises(ZeroDivisionError):
                async with gateway.database.transaction():
                    await gateway.credentials.spend(caller, "child_run")
                    raise ZeroDivisionError
            await gateway.credentials.spend(caller, "child_run")
            with pytest.raises(GatewayError):
                await gateway.credentials.spend(caller, "child_run")
            free = claims(clock, policy={}, execution_id="exec_2")
            unlimited = await gateway.authenticate(await gateway.credentials.issue(free))
            await gateway.credentials.spend(unlimited, "compaction")

    run(main)

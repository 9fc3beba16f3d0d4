"""Tokens: for one invocation, known by their hash, spent within limits, dead when they should be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from plugbay.model.errors import PlugbayError
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.credentials import (
    API_KEY_PREFIX,
    KEPT_EXPIRED,
    InvocationClosed,
    digest_of,
    operator_token,
    read_token,
)
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store import invocations
from plugbay.store import keys as rows
from plugbay.store.database import Tx
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page
from plugbay.store.tables import TOKENS
from tests.server.domain.test_orgs import MINE, OTHER, PROJECT
from tests.store.test_invocations import ended, record
from tests.support.clocks import TurnedClock
from tests.support.databases import run_write
from tests.support.gateways import code_of, gateway_at, make_org
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
        await run_write(tx, invocations.opening(record(number, binding_id=None)))


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
                with pytest.raises(InvocationClosed):
                    await gateway.credentials.issue(wrong)
            assert gateway.credentials.holders == set()

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


@requirement("vai:control-api-keys")
def test_a_key_is_shown_once_and_only_its_digest_is_kept(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            made, key = await gateway.keys.create(OPERATOR, "org_1", "CI", "operator", "proj_1")
            assert key.startswith(API_KEY_PREFIX) and key.endswith(made.hint)
            expected = Principal("key", "org_1", "proj_1", "operator", key_id=made.id)
            assert await gateway.keys.principal(key) == expected
            async with gateway.database.reading() as tx:
                assert await rows.by_digest(tx, digest_of(key)) == made

    run(main)


@requirement("vai:control-api-keys")
def test_a_key_that_is_revoked_unknown_or_too_old_is_of_no_use(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            made, key = await gateway.keys.create(MINE, "org_1", "CI", "admin", expires_at=clock.now() + 10)
            assert await code_of(gateway.keys.principal("pb_sk_guess")) == "auth.key_unknown"
            assert await code_of(gateway.keys.principal("\ud800")) == "auth.key_unknown"
            clock.turn(10)
            assert await code_of(gateway.keys.principal(key)) == "auth.token_expired"
            first = await gateway.keys.revoke(MINE, made.id)
            clock.turn(10)
            assert await gateway.keys.revoke(MINE, made.id) == first
            assert await code_of(gateway.keys.principal(key)) == "auth.key_revoked"
            again = gateway.keys.create(MINE, "org_1", "CI", "admin", expires_at=clock.now())
            assert await code_of(again) == "key.expired"

    run(main)


@requirement("vai:control-revocation-at-once")
def test_a_key_is_looked_up_once_and_again_when_anything_has_changed(
    database_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes] = []
    by_digest = rows.by_digest

    async def counted(tx: Tx, digest: bytes) -> ApiKey | None:
        looks.append(digest)
        return await by_digest(tx, digest)

    monkeypatch.setattr(rows, "by_digest", counted)

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            made, key = await gateway.keys.create(MINE, "org_1", "CI", "admin")
            first = await gateway.keys.principal(key)
            assert await gateway.keys.principal(key) == first and len(looks) == 1
            await gateway.keys.revoke(MINE, made.id)
            assert await code_of(gateway.keys.principal(key)) == "auth.key_revoked" and len(looks) == 2
            for _ in range(2):
                assert await code_of(gateway.keys.principal("pb_sk_guess")) == "auth.key_unknown"
            assert len(looks) == 4, "guesses take no room"

    run(main)


@requirement("vai:control-cross-tenant")
def test_nobody_gives_more_than_they_have_or_sees_anothers_keys(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            keys = gateway.keys
            viewer = Principal("key", "org_1", None, "viewer", key_id="key_9")
            assert await code_of(keys.create(viewer, "org_1", "x", "admin")) == "auth.role_denied"
            assert await code_of(keys.create(OTHER, "org_1", "x", "viewer")) == "org.not_found"
            assert await code_of(keys.create(MINE, "org_1", "x", "viewer", "proj_2")) == "project.not_found"
            assert await code_of(keys.create(PROJECT, "org_1", "x", "viewer")) == "auth.role_denied"
            made, _ = await keys.create(MINE, "org_1", "x", "viewer")
            own, _ = await keys.create(PROJECT, "org_1", "x", "viewer", "proj_1")
            for stranger in (OTHER, PROJECT):
                assert await code_of(keys.get(stranger, made.id)) == "key.not_found"
                assert await code_of(keys.revoke(stranger, made.id)) == "key.not_found"
            assert (await keys.get(MINE, made.id)) == made
            assert [key.id for key in (await keys.page(PROJECT, Page())).items] == [own.id]
            assert len((await keys.page(MINE, Page())).items) == 2
            assert await code_of(keys.page(OTHER, Page(), "org_1")) == "org.not_found"

    run(main)


def test_the_operators_token_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    token, made = operator_token(tmp_path)
    assert made and operator_token(tmp_path) == (token, False)
    path = tmp_path / "operator.token"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(PlugbayError, match="other users can read"):
        operator_token(tmp_path)
    path.chmod(0o600)
    path.write_text("\n")
    with pytest.raises(PlugbayError, match="is empty"):
        read_token(path)


def test_whoever_has_the_operators_token_is_the_operator(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            assert gateway.made_operator_token is not None
            assert await gateway.authenticate(gateway.made_operator_token) == OPERATOR

    run(main)

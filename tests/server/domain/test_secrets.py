"""Secrets: in, and never out; sealed anew without a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.references import parse
from plugbay.server.domain.secrets import SecretScope
from plugbay.store import secrets as rows
from plugbay.store.database import Tx
from plugbay.store.pages import Page
from plugbay.store.secrets import SecretRow
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

ORG, PROJECT = SecretScope("org_1"), SecretScope("org_1", "proj_1")
VALUE = "correct horse battery"


async def value(gateway: Gateway, ref: str, org: str = "org_1") -> str | None:
    async with gateway.database.reading() as tx:
        return (await gateway.secrets.values(tx, org, {"slot": ref})).get("slot")


@requirement("vai:control-secrets")
def test_a_secret_is_kept_sealed_and_is_worth_what_was_set_last(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            row, new = await gateway.secrets.put(OPERATOR, ORG, "key", VALUE)
            assert (row.version, new) == (1, True) and VALUE.encode() not in row.sealed and VALUE not in repr(row)
            await gateway.secrets.put(OPERATOR, PROJECT, "key", "of the project")
            row, new = await gateway.secrets.put(OPERATOR, ORG, "key", "another value")
            assert (row.version, new) == (2, False)
            assert await value(gateway, "secret://org_1/key") == "another value"
            assert await value(gateway, "secret://proj_1/key") == "of the project"
            assert await value(gateway, "secret://org_1/none") is None and await value(gateway, "pasted") is None
            assert await value(gateway, "secret://org_1/key", "org_2") is None
            audit = await gateway.audit.page(OPERATOR, Page(), action="secret.put")
            assert len(audit.items) == 3 and VALUE not in repr(audit)
            await gateway.secrets.delete(OPERATOR, ORG, "key")
            assert await value(gateway, "secret://org_1/key") is None
            with pytest.raises(GatewayError) as caught:
                await gateway.secrets.delete(OPERATOR, ORG, "key")
            assert caught.value.code == "secret.not_found"

    run(main)


@requirement("vai:control-secret-rotation")
def test_a_new_key_seals_all_secrets_while_everything_runs(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            for number in range(3):
                await gateway.secrets.put(OPERATOR, ORG, f"key_{number}", f"{VALUE} {number}")
            before = (tmp_path / "secret.key").read_text()
            assert await gateway.secrets.rotate_key(OPERATOR) == 3
            assert (tmp_path / "secret.key").read_text() != before
            assert await value(gateway, "secret://org_1/key_2") == f"{VALUE} 2"
            with pytest.raises(GatewayError) as caught:
                await gateway.secrets.rotate_key(Principal("key", "org_1", role="admin"))
            assert caught.value.code == "auth.role_denied"
        (tmp_path / "secret.key").write_text(before)
        async with gateway_at(sqlite_url, tmp_path) as gateway:  # with the old key they are of no use, and say so
            with pytest.raises(GatewayError) as caught:
                await value(gateway, "secret://org_1/key_0")
            assert caught.value.code == "secret.unreadable" and VALUE not in str(caught.value)

    run(main)


def test_a_key_of_one_project_sees_and_sets_the_secrets_of_its_project_alone(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await gateway.secrets.put(OPERATOR, ORG, "key", VALUE)
            mine = Principal("key", "org_1", "proj_1", "admin")
            await gateway.secrets.put(mine, PROJECT, "own", VALUE)
            assert [row.name for row in (await gateway.secrets.page(mine, Page(), None, None)).items] == ["own"]
            assert len((await gateway.secrets.page(OPERATOR, Page(), "org_1", None)).items) == 2
            for caller, scope, code in (
                (mine, ORG, "auth.role_denied"),
                (mine, SecretScope("org_1", "proj_2"), "project.not_found"),
                (Principal("key", "org_2", role="admin"), ORG, "org.not_found"),
            ):
                with pytest.raises(GatewayError) as caught:
                    await gateway.secrets.put(caller, scope, "key", VALUE)
                assert caught.value.code == code
            ref = parse("secret://proj_1/own")
            assert ref is not None
            async with gateway.database.reading() as tx:
                missing = await gateway.secrets.missing(tx, "org_1", {"a": ref, "b": ref._replace(name="none")})
            assert missing == ["b"]

    run(main)


@requirement("vai:control-secret-rotation")
def test_rotations_at_the_same_time_and_secrets_set_meanwhile_lose_nothing(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            secrets = gateway.secrets
            for number in range(4):
                await secrets.put(OPERATOR, ORG, f"key_{number}", "old")
            puts = [secrets.put(OPERATOR, ORG, f"key_{number}", f"new {number}") for number in range(3)]
            rotations = [secrets.rotate_key(OPERATOR) for _ in range(3)]
            await asyncio.gather(*rotations, *puts)
            await secrets.rotate_key(OPERATOR)
            known = [await value(gateway, f"secret://org_1/key_{number}") for number in range(4)]
            assert known == ["new 0", "new 1", "new 2", "old"]

    run(main)


@requirement("vai:control-secret-rotation")
def test_the_end_of_a_rotation_does_not_forget_the_key_of_the_next_one(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await gateway.secrets.put(OPERATOR, ORG, "key", VALUE)
            look, others = rows.encrypted_with_other_key, list[asyncio.Task[int]]()

            async def at_the_end(tx: Tx, key_id: str, limit: int) -> list[SecretRow]:
                found = await look(tx, key_id, limit)
                if not found and not others:
                    others.append(asyncio.create_task(gateway.secrets.rotate_key(OPERATOR)))
                    await asyncio.sleep(0)
                return found

            monkeypatch.setattr(rows, "encrypted_with_other_key", at_the_end)
            assert await gateway.secrets.rotate_key(OPERATOR) == 1
            assert await others[0] == 1
            assert await value(gateway, "secret://org_1/key") == VALUE

    run(main)

"""Secrets: sealed, never returned, and resealed without a restart."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.secrets import (
    FILE_NAME,
    FILE_VARIABLE,
    VARIABLE,
    KeysUnusable,
    Sealed,
    SecretRef,
    SecretScope,
    load_keyring,
    parse_reference,
)
from plugbay.store import secrets as rows
from plugbay.store.database import Tx
from plugbay.store.pages import Page
from plugbay.store.secrets import SecretRow
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

ORG, PROJECT = SecretScope("org_1"), SecretScope("org_1", "proj_1")
OTHERS = Principal("key", "org_2", role="admin")
VALUE = "correct horse battery"


async def value(gateway: Gateway, ref: str, org: str = "org_1") -> str | None:
    async with gateway.database.reading() as tx:
        return (await gateway.secrets.values(tx, org, {"slot": ref})).get("slot")


@requirement("vai:control-secrets")
def test_a_secret_is_stored_sealed_and_has_the_value_set_last(database_url: str, tmp_path: Path, run: Run) -> None:
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
            assert (await gateway.secrets.get(mine, PROJECT, "own")).name == "own"
            for caller, scope, name in ((mine, ORG, "key"), (mine, PROJECT, "key"), (OTHERS, ORG, "key")):
                with pytest.raises(GatewayError) as caught:
                    await gateway.secrets.get(caller, scope, name)
                assert caught.value.status == 404
            for caller, scope, code in (
                (mine, ORG, "auth.role_denied"),
                (mine, SecretScope("org_1", "proj_2"), "project.not_found"),
                (OTHERS, ORG, "org.not_found"),
            ):
                with pytest.raises(GatewayError) as caught:
                    await gateway.secrets.put(caller, scope, "key", VALUE)
                assert caught.value.code == code
            ref = parse_reference("secret://proj_1/own")
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


def test_a_reference_names_scope_and_name_of_a_secret() -> None:
    assert parse_reference("secret://org_123/jira_token") == SecretRef("org_123", "jira_token")
    assert str(SecretRef("proj_1", "key")) == "secret://proj_1/key"


@pytest.mark.parametrize(
    "text",
    [
        "sk-live-0123456789",
        "secret://org_1",
        "secret://org_1/",
        "secret:///key",
        "secret://org_1/a/b",
        "secret://org_1/../key",
        "Secret://org_1/key",
        "secret://org_1/key\n",
        7,
        None,
    ],
)
def test_anything_else_is_none(text: object) -> None:
    assert parse_reference(text) is None


def key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


@requirement("vai:control-secret-at-rest")
def test_a_value_is_opened_by_its_key_in_its_place_and_nowhere_else(tmp_path: Path) -> None:
    ring = load_keyring(tmp_path, {})
    sealed = ring.seal(VALUE, "org_1/key/1")
    assert VALUE.encode() not in sealed.data and ring.open(sealed, "org_1/key/1") == VALUE
    assert ring.seal(VALUE, "org_1/key/1").data != sealed.data  # a nonce of its own each time
    for data, bound in (
        (sealed, "org_2/key/1"),
        (sealed, "org_1/key/2"),
        (sealed._replace(data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])), "org_1/key/1"),
        (sealed._replace(nonce=bytes(12)), "org_1/key/1"),
    ):
        with pytest.raises(KeysUnusable, match="was modified"):
            ring.open(data, bound)
    with pytest.raises(KeysUnusable, match="which is missing from"):
        ring.open(Sealed("0" * 16, sealed.nonce, sealed.data), "org_1/key/1")


def test_the_first_start_creates_a_private_file_and_the_next_one_reads_it(tmp_path: Path) -> None:
    first = load_keyring(tmp_path, {})
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600 and str(tmp_path) in first.place
    assert load_keyring(tmp_path, {}).current == first.current
    (tmp_path / FILE_NAME).chmod(0o644)
    with pytest.raises(KeysUnusable, match="other users can read"):
        load_keyring(tmp_path, {})


def test_the_operators_own_keys_come_first_and_are_never_written(tmp_path: Path) -> None:
    old, new = key(), key()
    sealed = load_keyring(tmp_path, {VARIABLE: old}).seal(VALUE, "x")
    ring = load_keyring(tmp_path, {VARIABLE: f"{new},{old}"})
    assert ring.open(sealed, "x") == VALUE and ring.seal(VALUE, "x").key_id != sealed.key_id
    file = tmp_path / "own.key"
    file.write_text(new + "\n")
    file.chmod(0o600)
    assert load_keyring(tmp_path, {FILE_VARIABLE: str(file)}).current == ring.current
    with pytest.raises(KeysUnusable, match="put the new key first"):
        ring.add_key()
    assert not (tmp_path / FILE_NAME).exists()
    link = tmp_path / "as Kubernetes mounts it"
    link.symlink_to(file)
    assert load_keyring(tmp_path, {FILE_VARIABLE: str(link)}).current == ring.current


@pytest.mark.parametrize("text", ["short", base64.b64encode(b"x" * 31).decode(), "é" * 44])
def test_an_invalid_key_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeysUnusable) as caught:
        load_keyring(tmp_path, {VARIABLE: text})
    assert text not in str(caught.value)


def test_a_file_that_is_named_must_have_a_key(tmp_path: Path) -> None:
    with pytest.raises(KeysUnusable, match="no key"):
        load_keyring(tmp_path, {FILE_VARIABLE: str(tmp_path / "none")})
    link = tmp_path / FILE_NAME
    os.symlink("/etc/passwd", link)
    with pytest.raises(KeysUnusable, match="cannot be read"):
        load_keyring(tmp_path, {})


def test_a_new_key_seals_from_then_on_and_the_old_ones_go_when_nothing_needs_them(tmp_path: Path) -> None:
    ring = load_keyring(tmp_path, {})
    old = ring.seal(VALUE, "x")
    assert ring.add_key() == ring.current != old.key_id
    assert ring.open(old, "x") == VALUE == load_keyring(tmp_path, {}).open(old, "x")
    ring.forget_others()
    for gone in (ring, load_keyring(tmp_path, {})):
        with pytest.raises(KeysUnusable):
            gone.open(old, "x")


def test_to_look_for_the_keyring_of_the_system_starts_no_program(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, plugbay.server.domain.secrets as module\n"
        "sys.addaudithook(lambda event, _: event in ('subprocess.Popen', 'os.posix_spawn') and print(event))\n"
        "module.load_keyring(pathlib.Path(sys.argv[1]), {})\n"
        "print('keyring.core' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("locked", [False, True])
def test_where_the_system_has_a_keyring_the_key_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    kept: dict[tuple[str, str], str] = {}

    class KeyringError(Exception):
        pass

    def put(service: str, user: str, password: str) -> None:
        if locked:
            raise KeyringError
        kept[service, user] = password

    def get(service: str, user: str) -> str | None:
        if locked:
            raise KeyringError
        return kept.get((service, user))

    library: Any = SimpleNamespace(
        set_password=put, get_password=get, errors=SimpleNamespace(KeyringError=KeyringError)
    )
    library.__spec__ = SimpleNamespace(name="keyring")
    monkeypatch.setitem(sys.modules, "keyring", library)
    ring = load_keyring(tmp_path, {})
    assert load_keyring(tmp_path, {}).current == ring.current
    assert (tmp_path / FILE_NAME).exists() == locked and bool(kept) != locked

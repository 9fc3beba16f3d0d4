"""Keys: made, used, revoked; and the operator's token."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.model.errors import PlugbayError
from plugbay.server.domain.keys import PREFIX, digest_of, operator_token, read_token
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store import keys as rows
from plugbay.store.database import Tx
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page
from tests.server.domain.test_orgs import MINE, OTHER, PROJECT, code_of
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-api-keys")
def test_a_key_is_shown_once_and_only_its_digest_is_kept(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            made, key = await gateway.keys.create(OPERATOR, "org_1", "CI", "operator", "proj_1")
            assert key.startswith(PREFIX) and key.endswith(made.hint)
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
    with pytest.raises(PlugbayError, match="can be read by others"):
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

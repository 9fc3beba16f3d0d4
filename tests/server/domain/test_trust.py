"""Trusted publishers: keys are added and revoked, and packages follow."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from plugbay.packages import keys
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain import trust
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.pages import Page
from tests.packages.builders import key
from tests.support.clocks import TurnedClock
from tests.support.conversing import settled
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import SIGNED_AT, Publisher, bind
from tests.support.requirements import requirement

ADMIN = Principal("key", "org_1", role="admin", key_id="key_1")


@requirement("vai:control-trust")
def test_revoking_a_key_quarantines_its_packages_and_disables_their_bindings(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            acme, other = Publisher(tmp_path, tmp_path), Publisher(tmp_path, tmp_path, "other")
            package = await acme.bring(gateway)
            stays = await bind(gateway, await other.bring(gateway, package="other/p"))
            binding = await bind(gateway, package)
            ended: list[str] = []
            gateway.bindings.on_disabled.append(ended.append)
            clock.turn(1)
            revoked, done = await gateway.trusted_publishers.remove(OPERATOR, acme.key_id)
            assert revoked.revoked and [row.id for row in done.packages] == [package.id]
            assert list(done.bindings) == ended == [binding.id]
            found = await gateway.packages.get(ADMIN, package.id)
            assert (found.status, found.signature_status, found.key_id) == ("quarantined", "untrusted", acme.key_id)
            assert (await gateway.bindings.get(ADMIN, binding.id)).status == "disabled"
            assert (await gateway.bindings.get(ADMIN, stays.id)).status == "active"
            activation = gateway.bindings.change(OPERATOR, binding.id, {"status": "active"})
            assert await code_of(activation) == "binding.package_quarantined"
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page())).items[:3]]
            assert sorted(actions) == ["binding.update", "package.distrust", "trust.revoke"]
            assert (await gateway.audit.page(ADMIN, Page())).items[0].details["reason"] == "trust_removed"

            new = acme.pack("# other contents")
            code = await code_of(gateway.packages.upload(OPERATOR, new.path))
            assert code == "package.version_conflict", "a version that was accepted stays as it is"
            assert (await gateway.trusted_publishers.enforce(OPERATOR)).packages == ()

    run(main)


@requirement("vai:control-trust")
def test_a_key_that_the_command_line_revokes_counts_soon_and_at_the_next_start(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "WATCH_SECONDS", 0.01)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            acme = Publisher(tmp_path, tmp_path)
            package = await acme.bring(gateway)
            file, aside = gateway.releases.trust.path, tmp_path / "aside.json"
            file.chmod(0o666)
            await asyncio.sleep(0.05)
            assert (await gateway.packages.get(OPERATOR, package.id)).status == "available", "an unusable file"
            file.chmod(0o600)
            file.rename(aside)
            await asyncio.sleep(0.05)
            assert (await gateway.packages.get(OPERATOR, package.id)).status == "available", "no file"
            assert await gateway.trusted_publishers.enforce(OPERATOR) == trust.Consequences(), "no file"
            aside.rename(file)
            gateway.releases.trust.revoke(acme.key_id)
            await settled(lambda: gateway.packages.get(OPERATOR, package.id), lambda row: row.status == "quarantined")
            next_key = Publisher(tmp_path, tmp_path)
            second = await next_key.bring(gateway, version="2.0.0")
        gateway.releases.trust.revoke(next_key.key_id)
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await settled(lambda: gateway.packages.get(OPERATOR, second.id), lambda row: row.status == "quarantined")

    run(main)


def test_a_key_whose_time_is_over_keeps_its_packages_and_without_required_signatures_they_are_only_marked(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        settings = GatewaySettings(tmp_path, require_signature=False)
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock(), settings=settings) as gateway:
            await make_org(gateway)
            acme = Publisher(tmp_path, tmp_path)
            package = await acme.bring(gateway)
            binding = await bind(gateway, package)
            gone = SIGNED_AT - timedelta(days=900)
            gateway.releases.trust.add(TrustedKey(keys.public_of(acme.key), "acme", not_after=gone))
            assert (await gateway.trusted_publishers.enforce(OPERATOR)).packages == ()
            _, done = await gateway.trusted_publishers.remove(OPERATOR, acme.key_id)
            assert [(row.status, row.signature_status) for row in done.packages] == [("available", "untrusted")]
            assert done.bindings == () and (await gateway.bindings.get(ADMIN, binding.id)).status == "active"

    run(main)


@requirement("vai:control-trust", "vai:package-trust-replace")
def test_another_key_of_a_publisher_is_added_only_as_the_operator_says(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            first, second = (keys.public_of(key()) for _ in range(2))
            trusted = gateway.trusted_publishers
            old, _ = await trusted.add(OPERATOR, first, "acme")
            with pytest.raises(GatewayError) as caught:
                await trusted.add(OPERATOR, second, "acme")
            assert (caught.value.status, caught.value.code) == (409, "trust.key_conflict")
            assert caught.value.details == {"keys": [old.key_id]} and caught.value.param == "other_keys"
            new, _ = await trusted.add(OPERATOR, second, "acme", other_keys="replace")
            ids = [item.key_id for item in (await trusted.page(OPERATOR, Page())).items if item.publisher == "acme"]
            assert ids == [new.key_id]
            await trusted.add(OPERATOR, first, "acme", other_keys="keep")
            part = await trusted.page(OPERATOR, Page(limit=1))
            rest = await trusted.page(OPERATOR, Page(after=part.after))
            assert part.after is not None and rest.after is None and part.items[0] not in rest.items
            await trusted.remove(OPERATOR, new.key_id)
            for work, code in (
                (trusted.add(OPERATOR, second, "acme", other_keys="replace"), "trust.key_revoked"),
                (trusted.add(OPERATOR, bytes(32), "acme"), "trust.key_unusable"),
                (trusted.add(OPERATOR, second, "a/b"), "trust.invalid_publisher"),
                (trusted.remove(OPERATOR, "0" * 16), "trusted_key.not_found"),
                (trusted.page(ADMIN, Page()), "auth.role_denied"),
                (trusted.add(ADMIN, second, "acme"), "auth.role_denied"),
                (trusted.remove(ADMIN, old.key_id), "auth.role_denied"),
            ):
                assert await code_of(work) == code

    run(main)

"""Installed plugins of a running server: looked at, installed, upgraded, rolled back, pinned, removed."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest
from msgspec.structs import replace

from plugbay.model.errors import CallFailed
from plugbay.packages import archive, keys
from plugbay.packages.archive import signature_path
from plugbay.packages.connection import Connection
from plugbay.packages.errors import Reason
from plugbay.packages.installer import Installer
from plugbay.packages.reference import parse
from plugbay.packages.registry import push
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain import installed_plugins
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.installed_plugins import FOLDER, KEPT_SECONDS, MAX_KEPT, KeptPackages
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.pages import Page
from tests.packages.builders import PLUGIN, Bench, key, pack, plugin, sign
from tests.packages.registry_server import serve
from tests.support.clocks import TurnedClock
from tests.support.gateways import code_of, gateway_at
from tests.support.installing import install, offer, signature_of, store_served, version_of
from tests.support.loops import Run

ADMIN = Principal("key", "org_1", role="admin", key_id="key_1")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def entries(gateway: Gateway) -> list[tuple[str, dict[str, object]]]:
    """The audit log, oldest first."""
    part = await gateway.audit.page(OPERATOR, Page(200), subject_id=PLUGIN)
    return [(entry.action, dict(entry.details)) for entry in reversed(part.items)]


async def refusal(gateway: Gateway, package: Path) -> tuple[Reason | None, str]:
    """Why the look says that a package would be refused, and the code with which the installation is refused."""
    kept, look = await gateway.installed_plugins.look(OPERATOR, (await offer(gateway, package)).id)
    before = "" if look.before is None else look.before.current.digest
    code = await code_of(gateway.installed_plugins.install(OPERATOR, kept.id, look.digest, before))
    return None if look.refused is None else look.refused.reason, code


def test_a_package_is_shown_and_then_installed_and_hosted_without_a_grant(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    package = bench.release("1.0.0", capabilities=["mail.send"])

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            kept, look = await area.look(OPERATOR, (await offer(gateway, package)).id)
            assert (look.spec.id, look.spec.version, look.before, look.refused) == (PLUGIN, "1.0.0", None, None)
            assert look.verified is not None and look.verified.key.publisher == "acme"
            assert bench.store.installed() == [] and gateway.host.plugins() == [], "nothing is done before the consent"
            done = await area.install(OPERATOR, kept.id, look.digest, "")
            assert done.before is None and not done.problem and bench.store.find(PLUGIN) == done.installed
            hosted = area.hosted(done.installed)
            assert hosted is not None and hosted.is_current and hosted.missing == ("mail.send",)
            with pytest.raises(CallFailed):
                await version_of(gateway)
            assert await code_of(area.look(OPERATOR, kept.id)) == "package.not_kept"
            release = done.installed.current
            assert release.source == "upload" and release.key_id == keys.key_id(keys.public_of(bench.key))
            ((action, facts),) = await entries(gateway)
            assert action == "plugin.install" and facts["digest"] == release.digest and facts["source"] == "upload"

    run(main)


def test_the_running_plugin_follows_an_upgrade_and_a_rollback_and_is_gone_after_the_removal(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0", capabilities=["mail.send"])

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            first = (await install(gateway, one)).installed.current
            assert await version_of(gateway) == "1.0.0"
            done = await install(gateway, two)
            hosted = area.hosted(done.installed)
            assert hosted is not None and (hosted.version, hosted.missing) == ("2.0.0", ("mail.send",))
            with pytest.raises(CallFailed) as refused:
                await version_of(gateway)
            assert "mail.send" in str(refused.value), "a new release gets no grant"
            shown = await area.look_back(OPERATOR, PLUGIN, first.digest)
            assert shown.difference is not None and shown.difference.dropped == ("mail.send",)
            await area.rollback(OPERATOR, PLUGIN, first.digest)
            assert await version_of(gateway) == "1.0.0"
            await area.uninstall(OPERATOR, PLUGIN)
            assert bench.store.installed() == [] and gateway.host.plugins() == []
            actions = [action for action, _ in await entries(gateway)]
            assert [action for action in actions if action != "plugin.reload"] == [
                "plugin.install",
                "plugin.upgrade",
                "plugin.rollback",
                "plugin.uninstall",
            ]
            assert actions.count("plugin.reload") == 2
            assert await code_of(area.get(OPERATOR, PLUGIN)) == "installed_plugin.not_found"

    run(main)


def test_a_pinned_plugin_stays_until_it_is_unpinned(sqlite_url: str, bench: Bench, run: Run) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            first = (await install(gateway, one)).installed.current
            await install(gateway, two)
            assert (await area.pin(OPERATOR, PLUGIN, True)).installed.state.pinned
            assert await refusal(gateway, three) == (Reason.PINNED, "package.pinned")
            assert await code_of(area.look_back(OPERATOR, PLUGIN, first.digest)) == "package.pinned"
            assert await code_of(area.rollback(OPERATOR, PLUGIN, first.digest)) == "package.pinned"
            assert not (await area.pin(OPERATOR, PLUGIN, False)).installed.state.pinned
            assert (await install(gateway, three)).installed.current.version == "3.0.0"
            found = [action for action, _ in await entries(gateway) if "pin" in action]
            assert found == ["plugin.pin", "plugin.unpin"]

    run(main)


def test_the_look_names_the_reason_with_which_the_installation_is_refused(
    sqlite_url: str, bench: Bench, tmp_path: Path, run: Run
) -> None:
    other = key()
    installed = bench.release("2.0.0")
    unsigned = pack(tmp_path / "unsigned", "3.0.0")
    unknown = sign(pack(tmp_path / "unknown", "3.0.0"), other)
    foreign = sign(pack(tmp_path / "foreign", "3.0.0", "other.notes"), bench.key)
    changed = bench.release("3.0.0")
    signature_path(changed).write_bytes(signature_path(installed).read_bytes())
    conflicting = sign(pack(tmp_path / "conflicting", "2.0.0", description="other contents"), bench.key)
    older, replayed = bench.release("1.0.0"), bench.release("1.5.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            await install(gateway, installed)
            for package, reason in (
                (unsigned, Reason.UNSIGNED),
                (unknown, Reason.KEY_UNKNOWN),
                (foreign, Reason.KEY_OF_OTHER_PUBLISHER),
                (changed, Reason.IDENTITY_MISMATCH),
                (conflicting, Reason.VERSION_CONFLICT),
                (older, Reason.DOWNGRADE),
            ):
                assert await refusal(gateway, package) == (reason, f"package.{reason}"), package
            await gateway.installed_plugins.uninstall(OPERATOR, PLUGIN)
            assert await refusal(gateway, replayed) == (Reason.REPLAYED, "package.replayed")
            gateway.releases.trust.add(TrustedKey(keys.public_of(other), "acme"), "keep")
            assert (await install(gateway, unknown)).installed.current.version == "3.0.0", "the server trusts it now"
            gateway.releases.trust.revoke(keys.key_id(keys.public_of(bench.key)))
            again = await refusal(gateway, sign(pack(tmp_path / "revoked", "4.0.0"), bench.key))
            assert again == (Reason.KEY_REVOKED, "package.key_revoked")

    run(main)


def test_a_package_that_cannot_be_read_is_not_kept(sqlite_url: str, bench: Bench, tmp_path: Path, run: Run) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"no archive")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            assert await code_of(offer(gateway, broken)) == "package.bad_archive"
            assert os.listdir(tmp_path / FOLDER) == []

    run(main)


def test_unsigned_packages_need_a_server_that_takes_them_and_wrong_signatures_are_refused_there_too(
    sqlite_url: str, bench: Bench, tmp_path: Path, run: Run
) -> None:
    unsigned, unknown = pack(tmp_path / "unsigned"), sign(pack(tmp_path / "unknown", "2.0.0"), key())

    async def main() -> None:
        async with store_served(sqlite_url, bench, require_signature=False) as gateway:
            assert (await install(gateway, unsigned)).installed.current.key_id is None
            assert await refusal(gateway, unknown) == (Reason.KEY_UNKNOWN, "package.key_unknown")

    run(main)


def test_a_change_between_look_and_consent_is_refused_and_the_package_stays(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            await install(gateway, one)
            kept, look = await area.look(OPERATOR, (await offer(gateway, three)).id)
            assert look.before is not None
            shown = look.before.current.digest
            other = f"sha256:{'0' * 64}"
            assert await code_of(area.install(OPERATOR, kept.id, other, shown)) == "package.changed_meanwhile"
            await asyncio.to_thread(bench.install, two)  # by the command line
            code = await code_of(area.install(OPERATOR, kept.id, look.digest, shown))
            assert code == "package.changed_meanwhile"
            assert await code_of(area.rollback(OPERATOR, PLUGIN, other)) == "package.changed_meanwhile"
            found = await area.get(OPERATOR, PLUGIN)
            assert found.current.version == "2.0.0"
            done = await area.install(OPERATOR, kept.id, look.digest, found.current.digest)
            assert done.installed.current.version == "3.0.0" and await version_of(gateway) == "3.0.0"

    run(main)


def test_of_two_operators_at_once_one_installs_and_the_other_is_told(sqlite_url: str, bench: Bench, run: Run) -> None:
    one, two, three = (bench.release(f"{number}.0.0") for number in (1, 2, 3))

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            shown = (await install(gateway, one)).installed.current.digest
            looks = [await area.look(OPERATOR, (await offer(gateway, package)).id) for package in (two, three)]
            work = [area.install(OPERATOR, kept.id, look.digest, shown) for kept, look in looks]
            results = await asyncio.gather(*work, return_exceptions=True)
            (refused,) = [each for each in results if isinstance(each, GatewayError)]
            assert refused.code == "package.changed_meanwhile"
            assert await version_of(gateway) == (await area.get(OPERATOR, PLUGIN)).current.version

    run(main)


def test_installing_the_installed_package_again_changes_nothing(sqlite_url: str, bench: Bench, run: Run) -> None:
    one = bench.release("1.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            await install(gateway, one)
            before = await entries(gateway)
            assert (await install(gateway, one)).is_same and await entries(gateway) == before

    run(main)


def test_a_stopped_plugin_stays_stopped_and_starts_with_the_new_release(
    sqlite_url: str, bench: Bench, run: Run
) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            await install(gateway, one)
            await gateway.operator_plugins.operate(OPERATOR, PLUGIN, "stop")
            done = await install(gateway, two)
            hosted = area.hosted(done.installed)
            assert not done.problem and hosted is not None and not hosted.is_current
            assert gateway.operator_plugins.plugin(PLUGIN)["state"] == "stopped"
            await gateway.operator_plugins.operate(OPERATOR, PLUGIN, "start")
            assert await version_of(gateway) == "2.0.0"

    run(main)


def test_a_release_that_the_host_cannot_load_is_installed_and_the_problem_is_named(
    sqlite_url: str, bench: Bench, tmp_path: Path, run: Run
) -> None:
    """Another folder of the server has a plugin with this id."""
    elsewhere = tmp_path / "elsewhere"
    plugin(elsewhere)
    one = bench.release("1.0.0")

    async def main() -> None:
        folders = (elsewhere / "1.0.0", bench.store.plugins)
        async with store_served(sqlite_url, bench, folders=folders) as gateway:
            await gateway._rescan_folders()
            done = await install(gateway, one)
            assert "is also the id of" in done.problem
            assert gateway.installed_plugins.hosted(done.installed) is None

    run(main)


def test_a_package_comes_from_a_registry_by_its_tag_and_is_recorded_by_its_digest(
    sqlite_url: str, bench: Bench, tmp_path: Path, run: Run
) -> None:
    package = bench.release("1.0.0")

    async def main() -> None:
        allowed = {"registries": {registry: {"private": True, "plain_http": True}}}
        async with store_served(sqlite_url, bench, config=allowed) as gateway:
            area = gateway.installed_plugins
            kept, look = await area.look(OPERATOR, (await area.pull(OPERATOR, str(reference))).id)
            done = await area.install(OPERATOR, kept.id, look.digest, "")
            assert done.installed.current.source == str(pushed.reference) != str(reference)
            assert await code_of(area.pull(OPERATOR, "no reference")) == "package.invalid_source"
            missing = str(replace(reference, tag="9.9.9"))
            assert await code_of(area.pull(OPERATOR, missing)) == "package.not_found"
        async with store_served(sqlite_url, bench) as gateway:
            code = await code_of(gateway.installed_plugins.pull(OPERATOR, str(reference)))
            assert code == "package.registry_failed", "a private address that nobody has allowed"

    with serve(tmp_path / "registry") as registry:
        reference = parse(f"oci://{registry}/acme/notes:1.0.0")
        with Connection(reference, plain_http=True, actions="pull,push") as connection:
            pushed = push(connection, reference, package, {})
        run(main)


def test_the_list_is_searched_and_paged_with_the_last_change_first(sqlite_url: str, bench: Bench, run: Run) -> None:
    clock = TurnedClock()
    packages = [sign(pack(bench.root / f"p{number}", "1.0.0", f"acme.p{number}"), bench.key) for number in range(3)]

    async def main() -> None:
        async with store_served(sqlite_url, bench, clock=clock) as gateway:
            for package in packages:
                await install(gateway, package)
                clock.turn(60)
            area = gateway.installed_plugins
            part = await area.page(OPERATOR, Page(2))
            rest = await area.page(OPERATOR, Page(2, part.after))
            assert [item.id for item in (*part.items, *rest.items)] == ["acme.p2", "acme.p1", "acme.p0"]
            assert rest.after is None
            assert [item.id for item in (await area.page(OPERATOR, Page(), "P1")).items] == ["acme.p1"]
            found = await area.get(OPERATOR, "acme.p2")
            edited = found.current.model_copy(update={"installed_at": "yesterday"})
            bench.store.record(found.state.model_copy(update={"releases": [edited]}))
            assert [item.id for item in (await area.page(OPERATOR, Page())).items][-1] == "acme.p2"

    run(main)


def test_the_operator_of_all_orgs_alone_sees_and_changes_them(sqlite_url: str, bench: Bench, run: Run) -> None:
    one = bench.release("1.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            kept = await offer(gateway, one)
            refused: list[Awaitable[object]] = [
                area.page(ADMIN, Page()),
                area.get(ADMIN, PLUGIN),
                area.keys(ADMIN),
                area.offer(ADMIN, one),
                area.pull(ADMIN, "oci://registry.example/acme/p"),
                area.look(ADMIN, kept.id),
                area.install(ADMIN, kept.id, "", ""),
                area.discard(ADMIN, kept.id),
                area.look_back(ADMIN, PLUGIN, ""),
                area.rollback(ADMIN, PLUGIN, ""),
                area.pin(ADMIN, PLUGIN, True),
                area.uninstall(ADMIN, PLUGIN),
            ]
            assert {await code_of(work) for work in refused} == {"auth.role_denied"}
            await area.discard(OPERATOR, kept.id)
            assert await code_of(area.look(OPERATOR, kept.id)) == "package.not_kept"

    run(main)


def test_a_server_without_a_store_installs_nothing(sqlite_url: str, bench: Bench, run: Run) -> None:
    """A folder `plugins` beside folders of the same names is no store: a change would delete what is in them."""
    one, store = bench.release("1.0.0"), bench.store

    async def main() -> None:
        settings = GatewaySettings(bench.root, folders=(store.plugins,))
        async with gateway_at(sqlite_url, bench.root, settings=settings) as gateway:
            area = gateway.installed_plugins
            store.plugins.mkdir(parents=True)
            assert await code_of(offer(gateway, one)) == "plugin.no_store"
            store.create()
            (store.root / "packages" / "web").mkdir()
            assert await area.store() is None and await area.find(PLUGIN) is None
            assert await code_of(area.pin(OPERATOR, PLUGIN, True)) == "plugin.no_store"
            (store.root / "packages" / "web").rmdir()
            assert await area.store() is not None, "the control"

    run(main)


def test_a_store_that_cannot_be_used_is_named(sqlite_url: str, bench: Bench, run: Run) -> None:
    one = bench.release("1.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            await install(gateway, one)
            (state,) = (bench.store.root / "state").iterdir()
            kept = state.read_bytes()
            state.write_text("{")
            with pytest.raises(GatewayError) as refused:
                await area.page(OPERATOR, Page())
            assert refused.value.code == "package.invalid_config" and str(state) in refused.value.message
            assert await area.find(PLUGIN) is None
            state.write_bytes(kept)
            assert (await area.get(OPERATOR, PLUGIN)).current.version == "1.0.0"

    run(main)


def test_a_full_disk_is_named_and_the_package_stays_for_another_try(
    sqlite_url: str, bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = bench.release("1.0.0"), bench.release("2.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            area = gateway.installed_plugins
            shown = (await install(gateway, one)).installed.current.digest
            kept, look = await area.look(OPERATOR, (await offer(gateway, two)).id)
            for number, code in ((errno.ENOSPC, "disk.full"), (errno.EROFS, "plugin.store_unwritable")):

                def fail(name: str, number: int = number) -> None:
                    if name == "published":
                        raise OSError(number, os.strerror(number))

                with monkeypatch.context() as patch:
                    stepping = Installer(bench.store, bench.trust, gateway.releases.clock, step=fail)
                    patch.setattr(area, "_installer", lambda store, stepping=stepping: stepping)
                    assert await code_of(area.install(OPERATOR, kept.id, look.digest, shown)) == code
                assert await version_of(gateway) == "1.0.0"
            assert (await area.install(OPERATOR, kept.id, look.digest, shown)).installed.current.version == "2.0.0"

    run(main)


# Packages between look and consent.


def test_kept_packages_are_few_small_and_not_for_long(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, folder = TurnedClock(), tmp_path / "kept"
    given = tmp_path / "given"
    given.write_bytes(bytes(100))
    monkeypatch.setattr(installed_plugins, "MAX_KEPT_BYTES", 1000)

    async def main() -> None:
        kept = KeptPackages(folder, clock)
        made = [await kept.keep(given, b"s", "upload") for _ in range(MAX_KEPT + 2)]
        assert [each.archive.exists() for each in made] == [False] * 2 + [True] * MAX_KEPT, "the oldest gave way"
        assert archive.signature_path(made[-1].archive).read_bytes() == b"s"
        assert await code_of(kept.find(made[0].id)) == "package.not_kept"
        given.write_bytes(bytes(600))
        large = await kept.keep(given, None, "upload")
        assert sum(path.stat().st_size for path in folder.rglob("*.gz")) <= 1000
        assert await kept.find(large.id) == large
        clock.turn(KEPT_SECONDS)
        assert await code_of(kept.find(large.id)) == "package.not_kept" and os.listdir(folder) == []
        last = await kept.keep(given, None, "upload")
        await kept.remove(last.id)
        await kept.remove(last.id)
        assert os.listdir(folder) == []

    run(main)


def test_kept_packages_do_not_survive_a_restart(sqlite_url: str, bench: Bench, run: Run) -> None:
    one = bench.release("1.0.0")

    async def main() -> None:
        async with store_served(sqlite_url, bench) as gateway:
            kept = await offer(gateway, one)
            assert kept.archive.exists() and kept.archive.parent.parent == bench.root / FOLDER
            assert signature_of(kept.archive) == signature_of(one)
        async with store_served(sqlite_url, bench) as gateway:
            assert not kept.archive.exists()
            assert await code_of(gateway.installed_plugins.look(OPERATOR, kept.id)) == "package.not_kept"

    run(main)


def test_a_package_that_cannot_be_copied_leaves_nothing(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        kept = KeptPackages(tmp_path / "kept", TurnedClock())
        assert await code_of(kept.keep(tmp_path, None, "upload")) == "plugin.store_unwritable", "a folder is not a file"
        assert os.listdir(tmp_path / "kept") == []

    run(main)

"""Packages: owners, trust in signatures, and one release per version."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shutil
import socket
import tarfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.config.config import Config, NetworkConfig
from plugbay.host.config.sections import RegistryConfig
from plugbay.host.host import Host
from plugbay.packages.archive import pack
from plugbay.packages.connection import Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import parse
from plugbay.packages.registry import push
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.packages import MAX_PULLS, Packages, Releases
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store import invocations
from plugbay.store.pages import Page
from tests.packages import lying_registry
from tests.packages.lying_registry import Answer
from tests.packages.registry_server import serve
from tests.packages.test_connection import dripping
from tests.store.test_invocations import record
from tests.support.clocks import TurnedClock
from tests.support.conversing import settled
from tests.support.databases import run_write
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.plugins import ECHO_SH, write_plugin
from tests.support.requirements import requirement
from tests.support.vai import export

ADMIN = Principal("key", "org_1", role="admin", key_id="key_1")
STRANGER = Principal("key", "org_2", role="admin", key_id="key_2")


@requirement("vai:control-package-immutable")
def test_the_same_package_twice_is_one_row_and_other_contents_are_a_conflict(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            publisher = Publisher(tmp_path, tmp_path)
            packed = publisher.pack()
            row, new = await gateway.packages.upload(OPERATOR, packed.path, publisher.sign(packed))
            assert new and (row.status, row.signature_status, row.org_id) == ("available", "verified", None)
            assert row.digest == packed.digest and row.manifest["exports"][0]["id"] == "t"
            again, new = await gateway.packages.upload(OPERATOR, packed.path, publisher.sign(packed))
            assert (again, new) == (row, False)
            other = publisher.pack(exports=[export("u")])
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(OPERATOR, other.path, publisher.sign(other))
            assert (caught.value.status, caught.value.code) == (409, "package.version_conflict")
            clock.turn(1)
            own, new = await gateway.packages.upload(ADMIN, other.path, publisher.sign(other))
            assert new and own.org_id == "org_1"  # another owner's version is another package

            async def seen(caller: Principal, **wanted: str) -> list[str]:
                part = await gateway.packages.page(caller, Page(), **wanted)
                return [item.id for item in part.items]

            assert await seen(ADMIN) == [own.id, row.id] and await seen(STRANGER) == [row.id]
            assert await seen(ADMIN, version="2.0.0") == [] and await seen(OPERATOR, package_id="acme/p") != []
            assert await gateway.packages.get(STRANGER, row.id) == row
            for id in (own.id, "pkg_none"):
                with pytest.raises(GatewayError) as caught:
                    await gateway.packages.get(STRANGER, id)
                assert caught.value.code == "package.not_found"
            async with gateway.database.reading() as tx:
                assert await gateway.packages.usable_by(tx, "org_1", "acme/p", "1.0.0") == own
                assert await gateway.packages.usable_by(tx, "org_2", "acme/p", "1.0.0") == row

    run(main)


@requirement("vai:control-package-signature")
def test_without_a_signature_that_counts_a_package_is_quarantined_until_it_has_one(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            publisher, stranger = Publisher(tmp_path, tmp_path), Publisher(tmp_path / "s", tmp_path)
            packed = publisher.pack()
            row, _ = await gateway.packages.upload(OPERATOR, packed.path)
            assert (row.status, row.signature_status, row.key_id) == ("quarantined", "missing", None)
            judged, new = await gateway.packages.upload(OPERATOR, packed.path, stranger.sign(packed))
            assert not new and judged.signature_status == "untrusted" and judged.status == "quarantined"
            judged, _ = await gateway.packages.upload(OPERATOR, packed.path, publisher.sign(packed))
            posture: dict[str, Any] = {
                "status": "available",
                "signature_status": "verified",
                "key_id": publisher.key_id,
            }
            assert judged == replace(row, **posture, accepted_at=judged.accepted_at) and judged.accepted_at
            assert (await gateway.packages.upload(OPERATOR, packed.path))[0] == judged  # and keeps it
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(OPERATOR, packed.path, publisher.sign(publisher.pack(version="2.0.0")))
            assert (caught.value.status, caught.value.code) == (422, "package.identity_mismatch")

    (tmp_path / "s").mkdir()
    run(main)


ORG_OF_PROJECT = Principal("key", "org_1", "proj_1", role="admin", key_id="key_3")


async def _audited(gateway: Gateway, caller: Principal, action: str) -> list[dict[str, object]]:
    return [entry.details for entry in (await gateway.audit.page(caller, Page(), action=action)).items]


@requirement("vai:control-package-quarantine-replaced")
def test_a_quarantined_upload_is_replaced_by_the_next_one_and_an_accepted_one_is_not(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            publisher = Publisher(tmp_path, tmp_path)
            bad, good, other = (publisher.pack(f"# {text}") for text in ("bad", "good", "other"))
            theirs, _ = await gateway.packages.upload(STRANGER, bad.path)
            first, _ = await gateway.packages.upload(ADMIN, bad.path)
            assert first.status == "quarantined"
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(ORG_OF_PROJECT, good.path, publisher.sign(good))
            assert (caught.value.status, caught.value.details) == (403, {"required": ["org key"]})
            row, new = await gateway.packages.upload(ADMIN, good.path, publisher.sign(good))
            assert new and (row.id, row.digest, row.status) == (first.id, good.digest, "available")
            assert await _audited(gateway, ADMIN, "package.replace") == [
                {"package_id": "acme/p", "version": "1.0.0", "signature": "verified", "before": bad.digest}
            ]
            assert gateway.releases.folder(bad.digest, "acme/p").is_dir(), "the other org still has this upload"
            assert await gateway.packages.get(STRANGER, theirs.id) == theirs, "the upload of another org stays"
            for caller in (ADMIN, ORG_OF_PROJECT):
                assert await code_of(gateway.packages.upload(caller, other.path)) == "package.version_conflict"
            assert not gateway.releases.folder(other.digest, "acme/p").exists(), "files of a refused upload go"
            await gateway.packages.upload(STRANGER, other.path)
            assert not gateway.releases.folder(bad.digest, "acme/p").exists(), "files without a package go"

    run(main)


@requirement("vai:control-package-quarantine-replaced")
def test_drafts_keep_their_binding_if_the_next_upload_has_their_export(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            row, _ = await gateway.packages.upload(ADMIN, publisher.pack("# 1").path)
            draft = await bind(gateway, row, status="draft")
            lacking = publisher.pack("# 2", [export("u")])
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(ADMIN, lacking.path)
            assert (caught.value.code, caught.value.details) == ("package.in_use", {"bindings": [draft.id]})
            packed = publisher.pack("# 3")
            await gateway.packages.upload(ADMIN, packed.path, publisher.sign(packed))
            assert (await gateway.bindings.change(ADMIN, draft.id, {"status": "active"})).status == "active"

    run(main)


@requirement("vai:control-package-quarantine-replaced")
def test_a_quarantined_upload_of_an_org_does_not_hide_the_shared_package(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            shared = await publisher.bring(gateway)
            await gateway.packages.upload(ADMIN, publisher.pack("# of the org").path)
            assert (await bind(gateway, shared)).package_row == shared.id

    run(main)


@requirement("vai:control-package-delete")
def test_a_package_is_deleted_by_its_owner_once_nothing_uses_it(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            packed, other = publisher.pack("# 1"), publisher.pack("# 2")
            row, _ = await gateway.packages.upload(ADMIN, packed.path, publisher.sign(packed))
            shared = await publisher.bring(gateway, package="acme/shared")
            binding = await bind(gateway, row, status="draft")
            async with gateway.database.transaction() as tx:
                await run_write(tx, invocations.opening(record(1)))
                await run_write(tx, invocations.opening(record(2, org_id="org_2")))
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.delete(ADMIN, row.id)
            assert (caught.value.status, caught.value.code) == (409, "package.in_use")
            assert caught.value.details == {"bindings": [binding.id], "invocations": ["inv_1"]}
            assert await code_of(gateway.packages.delete(STRANGER, row.id)) == "package.not_found"
            for caller, id in ((ORG_OF_PROJECT, row.id), (ADMIN, shared.id)):
                assert await code_of(gateway.packages.delete(caller, id)) == "auth.role_denied"
            await gateway.bindings.delete(ADMIN, binding.id)
            async with gateway.database.transaction() as tx:
                await invocations.close_all(tx, 9.0, "failed", "x", "x")
            await gateway.packages.delete(ADMIN, row.id)
            assert await code_of(gateway.packages.get(ADMIN, row.id)) == "package.not_found"
            assert await code_of(gateway.packages.delete(ADMIN, row.id)) == "package.not_found"
            assert [item.id for item in (await gateway.packages.page(ADMIN, Page())).items] == [shared.id]
            assert await code_of(bind(gateway, row)) == "binding.package_not_found"
            assert not gateway.releases.folder(row.digest, "acme/p").exists()
            assert [details["version"] for details in await _audited(gateway, ADMIN, "package.delete")] == ["1.0.0"]

            assert await code_of(gateway.packages.upload(ADMIN, other.path)) == "package.version_conflict"
            again, new = await gateway.packages.upload(ADMIN, packed.path, publisher.sign(packed))
            assert new and again.status == "available"
            await bind(gateway, again)
            await gateway.packages.delete(OPERATOR, shared.id)

    run(main)


@requirement("vai:control-package-delete")
def test_a_package_is_either_bound_or_deleted_when_both_happen_at_once(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=TurnedClock()) as gateway:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            for number in range(8):
                row = await publisher.bring(gateway, version=f"1.0.{number}", caller=ADMIN)
                works = [bind(gateway, row, traffic_percent=1), gateway.packages.delete(ADMIN, row.id)]
                done = await asyncio.gather(*(works if number % 2 else works[::-1]), return_exceptions=True)
                codes = [result.code for result in done if isinstance(result, GatewayError)]
                assert codes in (["package.in_use"], ["binding.package_not_found"]), done

    run(main)


def test_an_operator_may_do_without_signatures(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        settings = GatewaySettings(tmp_path, require_signature=False)
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway:
            row, _ = await gateway.packages.upload(OPERATOR, Publisher(tmp_path, tmp_path).pack().path)
            assert (row.status, row.signature_status) == ("available", "missing")

    run(main)


def test_an_invalid_package_is_refused_with_its_own_code(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    def archive(files: dict[str, bytes]) -> Path:
        path = tmp_path / "made.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for name, data in files.items():
                header = tarfile.TarInfo(name)
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
        return path

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=TurnedClock()) as gateway:
            rubbish = tmp_path / "rubbish.tar.gz"
            rubbish.write_bytes(b"no archive")
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(OPERATOR, rubbish)
            assert (caught.value.status, caught.value.code) == (422, "package.bad_archive")
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.upload(OPERATOR, archive({"vai-plugin.toml": b'api_version = "vai.plugin.v2"'}))
            assert caught.value.status == 422 and caught.value.code.startswith("manifest.")
            assert len(caught.value.details["problems"]) > 1
            for source, code in (
                ("nowhere", "package.invalid_source"),
                ("oci://localhost:1/acme/p:1.0.0", "package.unpinned_source"),
                (f"oci://localhost:1/acme/p@sha256:{'0' * 64}", "package.registry_failed"),
            ):
                with pytest.raises(GatewayError) as caught:
                    await gateway.packages.pull(OPERATOR, source)
                assert caught.value.code == code

    run(main)


@requirement("vai:control-package-source", "vai:control-package-addresses", "vai:package-plain-http-named")
def test_a_package_comes_from_a_registry_by_its_digest(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    publisher = Publisher(tmp_path, tmp_path)
    packed = publisher.pack()
    packed.path.with_name(packed.path.name + ".signature.json").write_bytes(publisher.sign(packed))

    async def main() -> None:
        section = RegistryConfig(private=True, plain_http=True)
        host = Host([], Config(registries={registry: section}))
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            row, new = await gateway.packages.pull(OPERATOR, str(pushed.reference))
            assert new and row.status == "available" and row.source == str(pushed.reference)
            assert row.digest == packed.digest

    with serve(tmp_path / "registry") as registry:
        reference = parse(f"oci://{registry}/acme/p:1.0.0")
        with Connection(reference, plain_http=True, actions="pull,push") as connection:
            pushed = push(connection, reference, packed.path, {})
        run(main)


DIGEST = f"sha256:{'0' * 64}"
PLACE = f"/v2/acme/p/manifests/{DIGEST}"
SECRET = json.dumps({"errors": [{"code": "INTERNAL", "message": "the inner secret"}]}).encode()


async def told(gateway: Gateway, address: str) -> tuple[int, str, str]:
    """Status, code and words for a package at this address, the address itself left out."""
    with pytest.raises(GatewayError) as caught:
        await gateway.packages.pull(ADMIN, f"oci://{address}/acme/p@{DIGEST}")
    error = caught.value
    assert error.details == {} and "secret" not in error.message
    return error.status, error.code, error.message.replace(address, "ADDRESS")


@requirement("vai:control-package-source", "vai:control-package-addresses")
def test_a_failed_pull_reveals_nothing_about_this_machine_or_its_network(
    sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        plain = {place: RegistryConfig(plain_http=True) for place in (web, silent, absent)}
        host = Host([], Config(registries=plain))
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            places = [web, silent, absent, "169.254.169.254:80", "10.255.255.1:22", "localhost:1", "nowhere.invalid"]
            answers = {await told(gateway, place) for place in places}
            assert len(answers) == 1 and {answer[:2] for answer in answers} == {(503, "package.registry_failed")}
            assert seen == [], "nobody was connected to"
            reasons = " ".join(str(getattr(record, "reason", "")) for record in caplog.records)
            assert "loopback" in reasons and f'allow_private = ["{web}"]' in reasons, "the operator's log has it"
            assert f'[registries."{web}"] with private = true' in reasons
            assert all("[registries] of its plugbay.toml" in message for _, _, message in answers)
        host = Host([], Config(network=NetworkConfig(allow_private=[web, absent]), registries=plain))
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            assert {await told(gateway, place) for place in (web, absent, silent)} == answers
            assert [request.path for request in seen] == [PLACE], "the operator has opened this one"

    caplog.set_level(logging.WARNING, "plugbay.server.domain")
    with (
        lying_registry.serve({PLACE: Answer(SECRET, 500)}) as (web, seen),
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket() as bound,
    ):
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        silent, absent = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listener, bound))
        run(main)


@requirement("vai:package-slow-registry")
def test_an_org_pulls_few_packages_at_a_time(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, release = threading.Semaphore(0), threading.Event()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            source = f"oci://registry.test/acme/p@{DIGEST}"
            pulls = [asyncio.ensure_future(gateway.packages.pull(ADMIN, source)) for _ in range(MAX_PULLS)]
            for _ in pulls:
                await asyncio.to_thread(started.acquire)
            assert await code_of(gateway.packages.pull(ADMIN, source)) == "quota.pulls"
            release.set()
            assert await code_of(gateway.packages.pull(STRANGER, source)) == "package.registry_failed"
            assert [await code_of(pull) for pull in pulls] == ["package.registry_failed"] * MAX_PULLS
            assert await code_of(gateway.packages.pull(ADMIN, source)) == "package.registry_failed"

    def wait(*_: object) -> tuple[Path, bytes | None]:
        started.release()
        release.wait()
        raise PackageRefused(Reason.REGISTRY_FAILED, "gone")

    monkeypatch.setattr(Packages, "_pull_archive", wait)
    run(main)


@requirement("vai:package-slow-registry")
def test_a_pull_ends_with_the_server(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        section = RegistryConfig(private=True, plain_http=True)
        async with gateway_at(sqlite_url, tmp_path, host=Host([], Config(registries={slow: section}))) as gateway:
            pull = asyncio.ensure_future(gateway.packages.pull(ADMIN, f"oci://{slow}/acme/p@{DIGEST}"))
            await settled(lambda: asyncio.sleep(0, gateway.packages._connections), bool)
        assert await code_of(pull) == "package.registry_failed"

    with dripping(b"HTTP/1.1 200 OK\r\nx-header: ", 0.01) as slow:
        run(main)


NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    (tmp_path / "data").mkdir()
    return Releases(tmp_path / "data", lambda: NOW)


def test_a_release_is_stored_whole_and_read_only_with_its_manifest(releases: Releases, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.unpack(packed.path, publisher.sign(packed)) as unpacked:
        assert unpacked.verdict.status == "verified" and unpacked.verdict.key_id == publisher.key_id
        assert unpacked.manifest["package_id"] == "acme/p" and unpacked.digest == packed.digest
        releases.keep(unpacked)
    with releases.unpack(packed.path) as again:
        releases.keep(again)  # nothing happens to what is there
    root = releases.folder(packed.digest, "acme/p")
    assert (root / "bin" / "plugin").stat().st_mode & 0o777 == 0o555
    found = releases.load_verified(packed.digest, "acme/p", packed.package.tree_sha256)
    assert found.spec is not None and found.spec.id == "acme/p"
    assert releases.load(packed.digest, "acme/p") is found


def test_files_that_were_changed_after_they_were_verified_are_not_started(releases: Releases, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.unpack(packed.path) as unpacked:
        assert unpacked.verdict.status == "missing"
        releases.keep(unpacked)
    program = releases.folder(packed.digest, "acme/p") / "bin" / "plugin"
    program.chmod(0o755)
    program.write_text(program.read_text() + "\n")
    with pytest.raises(PackageRefused) as caught:
        releases.load_verified(packed.digest, "acme/p", packed.package.tree_sha256)
    assert caught.value.reason is Reason.TAMPERED
    with pytest.raises(PackageRefused) as caught:
        releases.load("sha256:" + "0" * 64, "acme/p")
    assert caught.value.reason is Reason.MISSING_FILE


def test_a_false_signature_is_refused_and_one_of_a_stranger_counts_for_nothing(
    releases: Releases, tmp_path: Path
) -> None:
    publisher, stranger = Publisher(tmp_path / "data", tmp_path), Publisher(tmp_path, tmp_path, "acme")
    packed, other = publisher.pack(), publisher.pack(version="2.0.0")
    with releases.unpack(packed.path, stranger.sign(packed)) as unpacked:
        assert unpacked.verdict.status == "untrusted" and unpacked.verdict.why
    for signature in (publisher.sign(other), b"{}", publisher.sign(packed).replace(b'"1.0.0"', b'"1.0.1"')):
        with pytest.raises(PackageRefused), releases.unpack(packed.path, signature):
            pass


def test_only_packages_of_this_contract_are_taken(releases: Releases, tmp_path: Path) -> None:
    packed = pack(write_plugin(tmp_path / "src", "acme.notes", script=ECHO_SH), tmp_path)
    with pytest.raises(PackageRefused, match="is a rune plugin"), releases.unpack(packed.path):
        pass


def test_leftovers_of_a_killed_upload_are_removed_and_releases_stay(releases: Releases, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "data", tmp_path)
    packed = publisher.pack()
    with releases.unpack(packed.path) as unpacked:
        releases.keep(unpacked)
    left = tmp_path / "data" / "packages" / "tmp" / "left"
    shutil.copytree(releases.folder(packed.digest, "acme/p"), left / "acme")
    releases.sweep()
    assert not left.exists() and releases.load(packed.digest, "acme/p").spec is not None


EXPORTS = [export("t"), export("u"), export("h", "hook"), export("c", "compactor"), export("x", "harness")]


@requirement("vai:control-discovery")
def test_exports_of_available_packages_are_listed_with_their_schemas_and_the_bindings_that_are_seen(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            publisher = Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway, exports=EXPORTS)
            clock.turn(1)
            quarantined = publisher.pack(exports=[export("q")], version="2.0.0")
            await gateway.packages.upload(OPERATOR, quarantined.path)
            own = Principal("key", "org_1", role="admin")
            await publisher.bring(gateway, exports=[export("o")], version="3.0.0", caller=own)
            binding = await bind(gateway, package)

            async def listed(caller: Principal, kind: str, page: Page | None = None) -> list[str]:
                part = await gateway.packages.exports(caller, kind, page or Page())
                return [item.export.name for item in part.items]

            assert await listed(own, "tool") == ["o", "u", "t"]
            stranger = Principal("key", "org_2", role="viewer")
            assert await listed(stranger, "tool") == ["u", "t"] and await listed(stranger, "hook") == ["h"]
            assert [await listed(stranger, kind) for kind in ("compactor", "harness")] == [["c"], ["x"]]
            first = await gateway.packages.exports(own, "tool", Page(limit=2))
            assert [item.export.name for item in first.items] == ["o", "u"] and first.after is not None
            rest = await gateway.packages.exports(own, "tool", Page(limit=2, after=first.after))
            (item,) = rest.items
            assert rest.after is None and item.export.name == "t"
            assert [row.id for row in item.bindings] == [binding.id]
            assert item.kind_table() == {"effect_class": "read_only", "input_schema": {"type": "object"}}
            theirs = await gateway.packages.exports(stranger, "tool", Page())
            assert all(item.bindings == () for item in theirs.items)
            with pytest.raises(GatewayError) as caught:
                await gateway.packages.exports(stranger, "tool", Page(), "org_1")
            assert caught.value.status == 404

    run(main)

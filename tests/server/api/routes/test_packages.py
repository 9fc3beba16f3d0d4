"""Packages over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plugbay.packages.registry import ARCHIVE_TYPE
from plugbay.packages.rules import Limits
from plugbay.server.api.routes import packages as routes
from plugbay.server.domain.principal import Role
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export

ARCHIVE = {"content-type": ARCHIVE_TYPE}


@requirement("vai:control-package-upload", "vai:control-package-delete")
def test_a_package_is_uploaded_once_listed_read_and_deleted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            publisher = Publisher(tmp_path, tmp_path)
            packed = publisher.pack()
            headers = {**ARCHIVE, **publisher.header(packed), "idempotency-key": "once"}
            first = await client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
            assert first.status_code == 201, first.text
            row = first.json()
            assert (row["package_id"], row["version"], row["status"]) == ("acme/p", "1.0.0", "available")
            assert row["signature"] == {"status": "verified", "key_id": publisher.key_id}
            again = await client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
            assert (again.status_code, again.json()) == (200, row)
            other = publisher.pack("# other")
            conflict = await client.post("/v1/plugin-packages", content=other.path.read_bytes(), headers=ARCHIVE)
            assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "package.version_conflict")
            assert (await client.get(f"/v1/plugin-packages/{row['id']}")).json() == row
            for query, count in (("?package_id=acme/p&version=1.0.0", 1), ("?status=quarantined", 0), ("", 1)):
                assert len((await client.get(f"/v1/plugin-packages{query}")).json()["items"]) == count
            assert (await client.get("/v1/plugin-packages/acme%2Fp")).status_code == 404
            assert (await client.delete(f"/v1/plugin-packages/{row['id']}")).json() == row
            for method in ("GET", "DELETE"):
                assert (await client.request(method, f"/v1/plugin-packages/{row['id']}")).status_code == 404

    run(main)


def test_an_invalid_package_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            for content, headers, status, code in (
                (b"rubbish", ARCHIVE, 422, "package.bad_archive"),
                (b"rubbish", {"content-type": "text/plain"}, 400, "request.invalid_content_type"),
                (b"rubbish", {**ARCHIVE, "x-vai-signature": "?"}, 400, "request.invalid"),
                (b"{}", {"content-type": "application/json"}, 400, "request.invalid"),
                (b'{"source": "oci://x/y:1"}', {"content-type": "application/json"}, 422, "package.unpinned_source"),
            ):
                answer = await client.post("/v1/plugin-packages", content=content, headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    run(main)


@requirement("vai:control-package-upload")
def test_more_bytes_than_a_package_may_have_are_refused_while_they_come(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "DEFAULT_LIMITS", Limits(packed=1_000))
    sent = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(10):
            sent.append(number)
            yield b"x" * 400

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            answer = await client.post("/v1/plugin-packages", content=pieces(), headers=ARCHIVE)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "package.too_large")

    run(main)


def test_an_orgs_packages_are_its_own_and_only_admins_bring_any(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            publisher = Publisher(tmp_path, tmp_path)
            packed = publisher.pack()
            keys = [await make_key(gateway, org, role) for org, role in _WHO]
            answers = []
            for key in keys:
                async with client_of(gateway, key) as client:
                    body, headers = packed.path.read_bytes(), {**ARCHIVE, **publisher.header(packed)}
                    answers.append(await client.post("/v1/plugin-packages", content=body, headers=headers))
            assert [answer.status_code for answer in answers] == [201, 201, 403]
            async with client_of(gateway, keys[1]) as client:
                assert (await client.get(f"/v1/plugin-packages/{answers[0].json()['id']}")).status_code == 404
                (item,) = (await client.get("/v1/plugin-packages")).json()["items"]
                assert item["org_id"] == "org_2"

    run(main)


_WHO: tuple[tuple[str, Role], ...] = (("org_1", "admin"), ("org_2", "admin"), ("org_1", "operator"))


LISTS = {"harness": "harnesses", "tool": "tools", "hook": "hooks", "compactor": "compactors"}


@requirement("vai:control-discovery")
def test_each_kind_has_its_list_with_its_own_table(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            exports = [export(f"an_{kind}", kind) for kind in LISTS]
            package = await Publisher(tmp_path, tmp_path).bring(gateway, exports=exports)
            binding = await bind(gateway, package, "an_tool")
            for kind, name in LISTS.items():
                (item,) = (await client.get(f"/v1/plugin-{name}")).json()["items"]
                assert (item["export_id"], item["kind"], item["package"]) == (f"an_{kind}", kind, package.id)
                assert item[kind] and all(item[other] is None for other in LISTS if other != kind)
            (tool,) = (await client.get("/v1/plugin-tools?org_id=org_1&project_id=proj_1")).json()["items"]
            scope = {"org_id": "org_1", "project_id": "proj_1"}
            assert tool["bindings"] == [{"binding_id": binding.id, "scope": scope, "status": "active"}]
            assert tool["tool"]["input_schema"] == {"type": "object"}
            assert (await client.get("/v1/plugin-tools?org_id=org_9")).status_code == 404

    run(main)

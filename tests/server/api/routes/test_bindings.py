"""Bindings over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher
from tests.support.requirements import requirement

BINDING: dict[str, Any] = {
    "package_id": "acme/p",
    "package_version": "1.0.0",
    "export_id": "t",
    "scope": {"org_id": "org_1", "project_id": "proj_1"},
}


@requirement("vai:control-binding-lifecycle", "vai:control-binding-delete")
def test_a_binding_is_made_validated_changed_and_read(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await Publisher(tmp_path, tmp_path).bring(gateway)
            made = await client.post("/v1/plugin-bindings", json=BINDING)
            assert made.status_code == 201, made.text
            row = made.json()
            assert row["scope"] == BINDING["scope"] and row["rollout"] == {"traffic_percent": 100}
            path = f"/v1/plugin-bindings/{row['binding_id']}"
            verdict = await client.post(f"{path}:validate")
            assert verdict.status_code == 200 and verdict.json()["valid"] and verdict.json()["errors"] == []
            changed = await client.patch(path, json={"status": "disabled", "rollout": {"traffic_percent": 10}})
            assert (changed.json()["status"], changed.json()["rollout"]) == ("disabled", {"traffic_percent": 10})
            assert (await client.get(path)).json() == changed.json()
            assert (await client.get("/v1/plugin-bindings?status=disabled&kind=tool")).json()["items"] == [
                changed.json()
            ]
            assert (await client.get("/v1/plugin-bindings?org_id=org_9")).status_code == 404
            assert (await client.delete(path)).json() == changed.json()
            assert (await client.get(path)).status_code == (await client.delete(path)).status_code == 404

    run(main)


@requirement("vai:control-no-raw-secrets")
def test_bad_bindings_are_told_what_is_wrong_and_a_pasted_secret_comes_back_nowhere(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    pasted = "sk-live-0123456789abcdef"

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await Publisher(tmp_path, tmp_path).bring(gateway)
            for change, status, code in (
                ({"secrets": {"key": pasted}}, 422, "binding.raw_secret"),
                ({"package_version": "9.9.9"}, 422, "binding.package_not_found"),
                ({"export_id": "none"}, 422, "binding.unknown_export"),
                ({"rollout": {"traffic_percent": 101}}, 400, "request.invalid"),
                ({"rollout": {"traffic_percent": True}}, 400, "request.invalid"),
                ({"policy": {"network": "egress"}}, 422, "binding.policy_widens"),
                ({"policy": {"colour": "red"}}, 422, "policy.invalid"),
                ({"config": {"x": 1}}, 422, "binding.invalid_config"),
                ({"scope": {"org_id": "org_9"}}, 404, "org.not_found"),
                ({"colour": "red"}, 400, "request.invalid"),
            ):
                answer = await client.post("/v1/plugin-bindings", json={**BINDING, **change})
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
                assert pasted not in answer.text

    run(main)


def test_ids_with_a_colon_are_not_found_and_neither_are_another_tenants(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            await Publisher(tmp_path, tmp_path).bring(gateway)
            id = (await client.post("/v1/plugin-bindings", json=BINDING)).json()["binding_id"]
            assert (await client.get(f"/v1/plugin-bindings/{id}:validate")).status_code == 404
            async with client_of(gateway, await make_key(gateway, "org_2")) as other:
                for method, path, body in (
                    ("GET", f"/v1/plugin-bindings/{id}", None),
                    ("PATCH", f"/v1/plugin-bindings/{id}", {}),
                    ("DELETE", f"/v1/plugin-bindings/{id}", None),
                    ("POST", f"/v1/plugin-bindings/{id}:validate", None),
                ):
                    answer = await other.request(method, path, json=body)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "binding.not_found")

    run(main)


@requirement("vai:control-binding-lifecycle", "vai:control-no-raw-secrets")
def test_a_dry_run_judges_a_change_and_makes_none(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    pasted = "sk-live-0123456789abcdef"

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await Publisher(tmp_path, tmp_path).bring(gateway)
            keyed = {"Idempotency-Key": "with a key the transaction is the request's"}
            new = await client.post("/v1/plugin-bindings?dry_run=true", json=BINDING, headers=keyed)
            assert (new.status_code, new.json()["accepted"], new.json()["before"]) == (200, True, None)
            assert new.json()["after"]["rollout"] == {"traffic_percent": 100} and new.json()["validation"]["valid"]
            assert (await client.get("/v1/plugin-bindings")).json()["items"] == []

            made = (await client.post("/v1/plugin-bindings", json=BINDING)).json()
            path, audit = f"/v1/plugin-bindings/{made['binding_id']}", (await client.get("/v1/audit")).json()
            wrong = await client.patch(f"{path}?dry_run=true", json={"config": {"cups": 2}}, headers=keyed)
            assert (wrong.status_code, wrong.json()["accepted"]) == (200, False)
            assert wrong.json()["validation"]["errors"][0]["code"] == "binding.invalid_config"
            assert (wrong.json()["before"]["config"], wrong.json()["after"]["config"]) == ({}, {"cups": 2})
            draft = await client.patch(f"{path}?dry_run=true", json={"config": {"cups": 2}, "status": "draft"})
            assert (draft.json()["accepted"], draft.json()["validation"]["valid"]) == (True, False)
            secret = await client.patch(f"{path}?dry_run=true", json={"secrets": {"key": pasted}})
            assert secret.json()["accepted"] is False and pasted not in secret.text
            gone = await client.delete(f"{path}?dry_run=true", headers=keyed)
            assert (gone.json()["accepted"], gone.json()["after"], gone.json()["validation"]) == (True, None, None)
            assert (await client.get(path)).json() == made
            assert (await client.get("/v1/audit")).json() == audit

            token = await make_key(gateway, "org_1", "viewer")
            viewer = {"authorization": f"Bearer {token}"}
            denied = await client.patch(f"{path}?dry_run=true", json={"status": "draft"}, headers=viewer)
            assert denied.status_code == 403
            assert (await client.patch(f"{path}?dry_run=false", json={"status": "draft"})).json()["status"] == "draft"

    run(main)


@requirement("vai:control-binding-lifecycle")
def test_a_change_that_names_a_revision_is_made_only_from_that_one(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await Publisher(tmp_path, tmp_path).bring(gateway)
            made = (await client.post("/v1/plugin-bindings", json=BINDING)).json()
            path = f"/v1/plugin-bindings/{made['binding_id']}"
            first = await client.patch(path, json={"rollout": {"traffic_percent": 50}, "revision": 1})
            assert (first.status_code, first.json()["revision"]) == (200, 2)
            for query in ("", "?dry_run=true"):
                late = await client.patch(path + query, json={"rollout": {"traffic_percent": 60}, "revision": 1})
                error = late.json()["error"]
                assert (late.status_code, error["code"]) == (409, "binding.changed_meanwhile")
                assert error["details"] == {"revision": 2} and error["param"] == "revision"
            assert (await client.get(path)).json()["rollout"] == {"traffic_percent": 50}
            assert (await client.patch(path, json={"revision": "2"})).status_code == 400
            assert (await client.patch(path, json={"status": "draft"})).status_code == 200, "without one as before"

    run(main)

"""Secrets over HTTP: values are set and never returned."""

from __future__ import annotations

from pathlib import Path

from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement

VALUE = "correct horse battery"


@requirement("vai:control-secrets")
def test_a_secret_is_set_listed_by_name_and_removed_and_no_answer_has_its_value(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            said = []
            async with client_of(gateway, await make_key(gateway, "org_1")) as client:
                for number, status in ((1, 201), (2, 200)):
                    answer = await client.put("/v1/secrets/jira_token", json={"value": f"{VALUE} {number}"})
                    assert (answer.status_code, answer.json()["version"]) == (status, number)
                    said.append(answer.text)
                listed = await client.get("/v1/secrets")
                assert [item["ref"] for item in listed.json()["items"]] == ["secret://org_1/jira_token"]
                own = await client.put("/v1/secrets/own", json={"value": VALUE, "project_id": "proj_1"})
                assert own.json()["ref"] == "secret://proj_1/own"
                removed = await client.delete("/v1/secrets/jira_token")
                assert (removed.status_code, removed.text) == (204, "")
                assert (await client.delete("/v1/secrets/jira_token")).status_code == 404
                for body in ({"value": "short"}, {"value": 7}, {"value": VALUE, "extra": 1}, {}):
                    answer = await client.put("/v1/secrets/x", json=body)
                    assert answer.status_code == 400
                    said.append(answer.text)
                assert (await client.post("/v1/secrets:rotate-key")).status_code == 403
                said.append(listed.text + own.text)
            assert VALUE not in "".join(said)

    run(main)


def test_the_operator_names_the_org_and_may_rotate_the_key(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            unsaid = await client.put("/v1/secrets/key", json={"value": VALUE})
            assert (unsaid.status_code, unsaid.json()["error"]["param"]) == (400, "org_id")
            assert (await client.put("/v1/secrets/key", json={"value": VALUE, "org_id": "org_1"})).status_code == 201
            assert (await client.post("/v1/secrets:rotate-key")).json() == {"resealed": 1}
            async with client_of(gateway, await make_key(gateway, "org_1", "operator")) as operator:
                assert (await operator.put("/v1/secrets/key", json={"value": VALUE})).status_code == 403

    run(main)

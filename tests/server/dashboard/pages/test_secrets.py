"""Pages of secrets: set, listed by name, deleted after a confirmation; no page, log or audit entry has a value."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from plugbay.server.api.routes.secrets import MAX_VALUE
from plugbay.server.domain.bindings import Draft
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.secrets import SecretScope
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_bindings import stocked
from tests.server.dashboard.pages.test_orgs import HOSTILE, actions
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run

VALUE = "correct-horse-battery-7"
NEW = {"org": "org_1", "name": "jira_token", "value": VALUE}


def test_a_secret_is_set_listed_changed_and_deleted_and_its_value_is_nowhere(
    sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            said = [await visitor.get("/secrets?org=org_1")]
            assert "No secrets yet" in text_of(said[0]) and "plugbay secret set token --org org_1" in text_of(said[0])
            form = said[0].text.partition('name="value"')[2].partition(">")[0]
            assert 'type="password"' in form and 'autocomplete="new-password"' in form and "value=" not in form
            assert said[0].headers["cache-control"] == "no-store"
            for version in ("is set", "version 2"):
                done = await visitor.post("/secrets", NEW)
                said.append(done)
                assert done.headers["location"] == "/secrets/jira_token?org=org_1", text_of(done)
                said.append(await visitor.get(done.headers["location"]))
                assert version in text_of(said[-1]) and "secret://org_1/jira_token" in text_of(said[-1])
            said.append(await visitor.get("/secrets?search=JIRA&org=org_1"))
            assert 'href="/secrets/jira_token?org=org_1"' in said[-1].text
            said.append(await visitor.get("/secrets?search=nothing"))
            assert "Nothing found" in text_of(said[-1])
            stored = await gateway.secrets.get(OPERATOR, SecretScope("org_1"), "jira_token")
            assert gateway.secrets._unseal(stored) == VALUE, "the control: the form has set it"
            asked = await visitor.post("/secrets/jira_token:delete", {"org": "org_1"})
            assert "Delete jira_token?" in text_of(asked) and "No binding uses it" in text_of(asked)
            gone = await visitor.post("/secrets/jira_token:delete", {"org": "org_1", "confirm": "yes"})
            assert gone.headers["location"] == "/secrets"
            said += [asked, gone, await visitor.get("/secrets"), await visitor.get("/audit?search=secret")]
            assert (await visitor.get("/secrets/jira_token?org=org_1")).status_code == 404
            assert (await actions(gateway))[-3:] == ["secret.put", "secret.put", "secret.delete"]
            entries = (await gateway.audit.page(OPERATOR, Page())).items
            assert "jira_token" in json.dumps([entry.subject_id for entry in entries])
            assert VALUE not in json.dumps([dict(entry.details) for entry in entries])
            assert VALUE not in "".join(page.text + str(page.headers) for page in said)
            assert VALUE not in caplog.text and "/secrets" in "".join(str(vars(each)) for each in caplog.records)
            assert VALUE not in "".join(str(vars(each)) for each in caplog.records)

    run(main)


REFUSED: tuple[tuple[dict[str, str], int], ...] = (
    ({"value": "x-7q"}, 400),
    ({"value": ""}, 400),
    ({"value": VALUE * (MAX_VALUE // len(VALUE) + 1)}, 400),
    ({"name": HOSTILE}, 400),
    ({"name": "../x"}, 400),
    ({"name": ""}, 400),
    ({"org": "org_9"}, 404),
    ({"org": ""}, 400),
    ({"project": "proj_9"}, 404),
    ({"project": "a/b"}, 400),
)


def test_a_refused_form_keeps_what_was_typed_but_not_the_value(
    sqlite_url: str, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            for wrong, status in REFUSED:
                answer = await visitor.post("/secrets", {**NEW, "project": "proj_1", **wrong})
                assert answer.status_code == status, text_of(answer)
                assert ("A value has 6 to 65,536 characters" in text_of(answer)) is ("value" in wrong)
                for shown in (VALUE, "x-7q", "<script>"):
                    assert shown not in answer.text and shown not in caplog.text
                assert 'value="proj_1"' in answer.text or "project" in wrong
                assert 'value="jira_token"' in answer.text or "name" in wrong
            assert not (await gateway.secrets.page(OPERATOR, Page(), None, None)).items

    run(main)


def test_the_bindings_that_use_a_secret_are_shown_before_it_is_deleted(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            await visitor.post("/secrets", {**NEW, "name": "key"})
            await visitor.post("/secrets", {**NEW, "name": "ke"})
            secrets = {"key": "secret://org_1/key"}
            draft = Draft(package.package_id, package.version, "s", "org_1", secrets=secrets)
            binding = (await gateway.bindings.create(OPERATOR, draft)).id
            assert "1 binding" in text_of(await visitor.get("/secrets?search=key"))
            other = text_of(await visitor.get("/secrets/ke?org=org_1"))
            assert "No bindings use it" in other, "a name that is part of another one is another secret"
            page = await visitor.get("/secrets/key?org=org_1")
            assert f'href="/bindings/{binding}"' in page.text
            asked = text_of(await visitor.post("/secrets/key:delete", {"org": "org_1"}))
            assert binding in asked and "will fail" in asked

    run(main)


def test_secrets_are_listed_for_operators_set_by_admins_and_of_another_org_not_there(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            for org, project in (("org_1", None), ("org_1", "proj_1"), ("org_2", None)):
                await gateway.secrets.put(OPERATOR, SecretScope(org, project), f"of_{project or org}", VALUE)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                for path in ("/secrets", "/secrets/of_org_1"):
                    assert (await visitor.get(path)).status_code == 403
                assert "/secrets" not in (await visitor.get("/orgs")).text
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                page = await visitor.get("/secrets")
                assert "of_org_1" in page.text and "of_proj_1" in page.text and "of_org_2" not in page.text
                assert 'name="value"' not in page.text
                one = await visitor.get("/secrets/of_proj_1?project=proj_1")
                assert one.status_code == 200 and "Delete" not in text_of(one) and 'name="value"' not in one.text
                for path, form in (("/secrets", NEW), ("/secrets/of_org_1:delete", {"confirm": "yes"})):
                    assert (await visitor.post(path, form)).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                assert (await visitor.get("/secrets?org=org_2")).status_code == 404
                assert (await visitor.get("/secrets/of_org_2?org=org_2")).status_code == 404
                foreign = {"org": "org_2", "confirm": "yes"}
                assert (await visitor.post("/secrets/of_org_2:delete", foreign)).status_code == 404
                assert (await visitor.post("/secrets", {**NEW, "org": "org_2"})).status_code == 404
                assert (await visitor.post("/secrets", {**NEW, "org": ""})).status_code == 303, "its own org"
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin", "proj_1")) as visitor:
                page = await visitor.get("/secrets")
                assert "of_proj_1" in page.text and "of_org_1" not in page.text
                assert (await visitor.get("/secrets/of_org_1?org=org_1")).status_code == 404
                assert (await visitor.get("/secrets/of_proj_1")).status_code == 200
                assert (await visitor.post("/secrets/of_proj_1:delete", {"confirm": "yes"})).status_code == 303
            left = {row.name for row in (await gateway.secrets.page(OPERATOR, Page(), None, None)).items}
            assert left == {"of_org_1", "of_org_2", "jira_token"}

    run(main)

"""Pages of keys: created, shown once, revoked after a confirmation; closed to everybody but admins."""

from __future__ import annotations

import re
from pathlib import Path

from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_orgs import HOSTILE, actions
from tests.support.dashboards import Visitor, text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run

NEW = {"org": "org_1", "name": "ci", "role": "operator"}


def secret_in(text: str) -> str:
    return next(iter(re.findall(r"pb_sk_[\w-]{40,}", text)), "")


async def create(visitor: Visitor, **more: str) -> str:
    """Create a key; returns the path of its page."""
    made = await visitor.post("/keys", NEW | more)
    assert made.status_code == 303, text_of(made)
    return str(made.headers["location"])


def test_a_new_key_is_shown_once_and_works(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "Create an org" in text_of(await visitor.get("/keys"))
            await make_org(gateway)
            empty = await visitor.get("/keys")
            assert "No keys yet" in text_of(empty) and "plugbay key create --org" in empty.text
            path = await create(visitor, expires="2100-01-31", project_id="proj_1", name=HOSTILE)
            assert (await visitor.client.head(path)).status_code == 200, "looks without taking"
            other = await visitor.get("/keys")
            assert not secret_in(other.text), "no other page has it"
            page = await visitor.get(path)
            key = secret_in(page.text)
            principal = await gateway.keys.principal(key)
            assert (principal.org_id, principal.project_id, principal.role) == ("org_1", "proj_1", "operator")
            assert "2100-01-31T23:59:59Z" in page.text and "<script>x" not in page.text
            again = await visitor.get(path)
            assert again.status_code == 200 and not secret_in(again.text)
            assert (await actions(gateway))[-1] == "key.create"

    run(main)


def test_another_session_does_not_see_a_new_key(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with (
            gateway_at(sqlite_url, tmp_path) as gateway,
            visitor_of(gateway) as visitor,
            visitor_of(gateway) as other,
        ):
            await make_org(gateway)
            path = await create(visitor)
            assert not secret_in((await other.get(path)).text)
            assert secret_in((await visitor.get(path)).text)

    run(main)


def test_a_key_is_revoked_only_after_a_confirmation(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            path = await create(visitor)
            asked = await visitor.post(f"{path}:revoke")
            assert asked.status_code == 200 and "Revoke ci?" in text_of(asked)
            assert f'href="{path}"' in asked.text and 'name="confirm" value="yes"' in asked.text
            key = (await gateway.keys.page(OPERATOR, Page())).items[0]
            assert key.revoked_at is None
            assert (await visitor.post(f"{path}:revoke", {"confirm": "yes"})).status_code == 303
            page = await visitor.get(path)
            assert "revoked" in text_of(page) and ":revoke" not in page.text
            assert (await actions(gateway))[-1] == "key.revoke"
            assert "revoked" in text_of(await visitor.get("/keys?org=org_1&search=ci"))

    run(main)


def test_only_admins_of_the_org_see_and_make_keys(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            own, foreign = await make_key(gateway, "org_1", "admin"), await make_key(gateway, "org_2", "admin")
            keys = {key.org_id: key.id for key in (await gateway.keys.page(OPERATOR, Page())).items}
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                for path in ("/keys", f"/keys/{keys['org_1']}"):
                    assert (await visitor.get(path)).status_code == 403
                assert (await visitor.post("/keys", NEW)).status_code == 403
                assert (await visitor.post(f"/keys/{keys['org_1']}:revoke", {"confirm": "yes"})).status_code == 403
            async with visitor_of(gateway, own) as visitor:
                page = await visitor.get("/keys")
                assert keys["org_1"] in page.text and keys["org_2"] not in page.text
                assert (await visitor.get("/keys?org=org_2")).status_code == 404
                assert (await visitor.get(f"/keys/{keys['org_2']}")).status_code == 404
                assert (await visitor.post(f"/keys/{keys['org_2']}:revoke", {"confirm": "yes"})).status_code == 404
                refused = await visitor.post("/keys", NEW | {"org": "org_2"})
                assert refused.status_code == 404 and "org_2" in text_of(refused)
            assert (await gateway.keys.principal(foreign)).org_id == "org_2"

    run(main)


def test_a_wrong_key_form_keeps_what_was_typed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            for wrong in ({"role": "king"}, {"expires": "soon"}, {"expires": "2000-01-01"}, {"project_id": "proj_9"}):
                answer = await visitor.post("/keys", NEW | wrong)
                assert answer.status_code in (400, 404) and 'value="ci"' in answer.text, wrong
            assert not (await gateway.keys.page(OPERATOR, Page())).items

    run(main)

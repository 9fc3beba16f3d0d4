"""Pages of orgs and projects: what each token sees and does, and that the audit log has it."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run

HOSTILE = '<script>x</script>"\u202e'


async def actions(gateway: Gateway) -> list[str]:
    """The actions in the audit log, oldest first."""
    part = await gateway.audit.page(OPERATOR, Page(200))
    return [entry.action for entry in reversed(part.items)]


def test_the_operator_creates_an_org_and_a_project(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            first = await visitor.get("/orgs")
            assert "No orgs yet" in text_of(first) and "plugbay org create" in first.text
            assert '<details class="card" id="new" open>' in first.text, "the next step is a button"
            made = await visitor.post("/orgs", {"name": HOSTILE, "id": "tea"})
            assert (made.status_code, made.headers["location"]) == (303, "/orgs/tea")
            page = await visitor.get("/orgs/tea")
            assert "<script>x" not in page.text and "\\u202e" in page.text
            assert "No projects yet" in text_of(page) and "plugbay project create tea" in page.text
            assert (await visitor.post("/orgs/tea/projects", {"name": "Shop", "id": "shop"})).status_code == 303
            assert "Shop shop" in text_of(await visitor.get("/orgs/tea"))
            assert await actions(gateway) == ["org.create", "project.create"]

    run(main)


def test_a_refused_form_keeps_its_values_and_marks_the_field(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            wrong = await visitor.post("/orgs", {"name": "Kept name", "id": "no good"})
            assert wrong.status_code == 400 and 'value="Kept name"' in wrong.text
            assert 'id="id" name="id"' in wrong.text and wrong.text.count('aria-invalid="true"') == 1
            assert "String should match pattern" in text_of(wrong)
            twice = await visitor.post("/orgs", {"name": "Another", "id": "org_1"})
            assert twice.status_code == 409 and "already exists" in text_of(twice)
            nameless = await visitor.post("/orgs/org_1/projects", {"name": "\x01"})
            assert nameless.status_code == 400
            nul = await visitor.post("/orgs", {"name": "a\0b"})
            assert nul.status_code == 400 and "U+0000" in nul.text
            assert (await visitor.post("/orgs/org_9/projects", {"name": "x"})).status_code == 404
            assert [org.id for org in (await gateway.orgs.page(OPERATOR, Page())).items] == ["org_1"]

    run(main)


def test_limits_are_set_with_a_form_and_shown(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            assert "No limits." in text_of(await visitor.get("/orgs/org_1"))
            form = {
                "name": "Renamed",
                "policy:timeout_ms": "5000",
                "policy:network": '"none"',
                "policy:egress_domains": "[]",
                "policy:allow_compaction": "false",
            }
            assert (await visitor.post("/orgs/org_1:update", form)).status_code == 303
            org = await gateway.orgs.get(OPERATOR, "org_1")
            expected = {"timeout_ms": 5000, "network": "none", "allow_compaction": False}
            assert org.name == "Renamed" and org.policy == expected | {"egress_domains": []}
            page = await visitor.get("/orgs/org_1")
            assert 'value="5000"' in page.text and "timeout_ms 5000" in text_of(page)
            for name, text in (("timeout_ms", "many"), ("timeout_ms", "0"), ("egress_domains", "[1")):
                wrong = await visitor.post("/orgs/org_1:update", form | {f"policy:{name}": text})
                assert wrong.status_code in (400, 422) and 'value="Renamed"' in wrong.text
            assert (await gateway.orgs.get(OPERATOR, "org_1")).policy == org.policy, "nothing was changed"
            assert (await actions(gateway))[-1] == "org.update"

    run(main)


def test_a_key_sees_its_org_and_only_the_buttons_it_may_use(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            before = await actions(gateway)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                page = await visitor.get("/orgs")
                assert "org_1" in page.text and "org_2" not in page.text
                navigation = page.text.partition("<nav")[2].partition("</main>")[0]
                assert "Plugins" not in navigation and "/keys" not in navigation
                own = await visitor.get("/orgs/org_1")
                assert own.status_code == 200 and own.text.count('method="post"') == 1, "only to log out"
                for path in ("/orgs", "/orgs/org_1:update", "/orgs/org_1/projects"):
                    refused = await visitor.post(path, {"name": "x"})
                    assert refused.status_code == 403, path
                missing, nobodys = await visitor.get("/orgs/org_2"), await visitor.get("/orgs/org_9")
                assert missing.status_code == 404
                assert text_of(missing).replace("org_2", "") == text_of(nobodys).replace("org_9", "")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                assert "New org" not in (await visitor.get("/orgs")).text
                assert (await visitor.post("/orgs", {"name": "x"})).status_code == 403
                assert (await visitor.post("/orgs/org_2:update", {"name": "x"})).status_code == 404
                assert (await visitor.post("/orgs/org_2/projects", {"name": "x"})).status_code == 404
                assert (await visitor.post("/orgs/org_1/projects", {"name": "Mine"})).status_code == 303
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin", "proj_1")) as visitor:
                assert (await visitor.post("/orgs/org_1/projects", {"name": "x"})).status_code == 403
            assert [act for act in await actions(gateway) if act != "key.create"] == [*before, "project.create"]

    run(main)


def test_a_list_is_searched_and_paged(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for number in range(51):
                await gateway.orgs.create(OPERATOR, f"Shop {number:02} of 100%", {}, f"shop-{number:02}")
            page = await visitor.get("/orgs")
            assert page.text.count('<th scope="row">') == 50 and "shop-00" not in page.text
            older = page.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
            last = await visitor.get(older)
            assert "shop-00" in last.text and "Newest" in last.text and last.text.count('<th scope="row">') == 1
            assert "shop-07" in (await visitor.get("/orgs?search=SHOP+07")).text
            assert (await visitor.get("/orgs?search=100%25")).text.count('<th scope="row">') == 50
            nothing = await visitor.get("/orgs?search=_hop")
            assert "Nothing found" in text_of(nothing) and 'value="_hop"' in nothing.text
            assert (await visitor.get("/orgs?cursor=wrong")).status_code == 400

    run(main)

"""Pages of orgs, packages and bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind

SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "integer", "minimum": 1, "description": "On the receipt."},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "gift": {"type": "boolean"},
    },
}


def tool(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "description": "Says it again.", "input_schema": SCHEMA, **more}]


def test_the_operator_sees_every_org(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "No orgs yet" in text_of(await visitor.get("/orgs"))
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            page = await visitor.get("/orgs")
            assert 'href="/orgs/org_1"' in page.text and 'href="/orgs/org_2"' in page.text
            assert "Plugins" in page.text.partition("<nav")[2].partition("</nav>")[0]
            one = text_of(await visitor.get("/orgs/org_1"))
            assert "A project proj_1" in one and "proj_2" not in one and "Bindings None yet." in one

    run(main)


def test_a_key_of_one_org_sees_that_one_and_no_pages_of_the_host(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                page = await visitor.get("/orgs")
                assert "org_1" in page.text and "org_2" not in page.text
                assert "Plugins" not in page.text.partition("<nav")[2].partition("</nav>")[0]
                assert (await visitor.get("/orgs/org_1")).status_code == 200
                missing = await visitor.get("/orgs/org_2")
                assert missing.status_code == 404
                nobodys = await visitor.get("/orgs/org_9")
                assert text_of(missing).replace("org_2", "") == text_of(nobodys).replace("org_9", "")

    run(main)


def test_what_is_bound_and_the_packages_there_are(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            await bind(gateway, package)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                packages = text_of(await visitor.get("/orgs"))
                assert f"{package.package_id} {package.version} available verified" in packages
                bound = text_of(await visitor.get("/orgs/org_1"))
                assert f"t tool {package.package_id} {package.version} proj_1 active 100 %" in bound

    run(main)

"""The page of a cluster: its nodes and their orders."""

from __future__ import annotations

from pathlib import Path

from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.nodes import cell
from tests.support.requirements import requirement


@requirement("host:nodes-seen")
def test_nodes_are_seen_and_drained_by_a_button(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    data.mkdir()

    async def main() -> None:
        async with made.gateway(sqlite_url, data, "n1") as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get("/nodes")
            words = text_of(page)
            assert page.status_code == 200 and "1 node: 1 up" in words and "zone=n1" in words
            assert 'href="/nodes" aria-current="page"' in page.text
            done = await visitor.post("/nodes/n1:drain")
            assert done.status_code == 303
            after = await visitor.get("/nodes")
            assert "n1 takes no new calls" in text_of(after) and "1 draining" in text_of(after)
            assert (await visitor.post("/nodes/n1:undrain")).status_code == 303
            assert "1 node: 1 up" in text_of(await visitor.get("/nodes"))
            assert (await visitor.post("/nodes/n9:drain")).status_code == 404
            assert (await visitor.post("/nodes/n1:stop")).status_code == 404
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as member:
                assert (await member.get("/nodes")).status_code == 403
                assert (await member.post("/nodes/n1:drain")).status_code == 403
                assert 'href="/nodes"' not in (await member.get("/orgs")).text

    with cell(tmp_path / "cell") as made:
        run(main)


def test_without_a_cluster_the_page_is_not_in_the_navigation(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            assert 'href="/nodes"' not in (await visitor.get("/")).text
            assert "No cluster" in text_of(await visitor.get("/nodes"))

    run(main)

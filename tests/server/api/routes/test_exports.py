"""The four lists over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.support.gateways import client_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export

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

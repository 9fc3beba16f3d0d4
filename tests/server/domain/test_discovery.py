"""The lists of exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.pages import Page
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export

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
                part = await gateway.discovery.page(caller, kind, page or Page())
                return [item.export.name for item in part.items]

            assert await listed(own, "tool") == ["o", "u", "t"]
            stranger = Principal("key", "org_2", role="viewer")
            assert await listed(stranger, "tool") == ["u", "t"] and await listed(stranger, "hook") == ["h"]
            assert [await listed(stranger, kind) for kind in ("compactor", "harness")] == [["c"], ["x"]]
            first = await gateway.discovery.page(own, "tool", Page(limit=2))
            assert [item.export.name for item in first.items] == ["o", "u"] and first.after is not None
            rest = await gateway.discovery.page(own, "tool", Page(limit=2, after=first.after))
            (item,) = rest.items
            assert rest.after is None and item.export.name == "t"
            assert [row.id for row in item.bindings] == [binding.id]
            assert item.kind_table() == {"effect_class": "read_only", "input_schema": {"type": "object"}}
            theirs = await gateway.discovery.page(stranger, "tool", Page())
            assert all(item.bindings == () for item in theirs.items)
            with pytest.raises(GatewayError) as caught:
                await gateway.discovery.page(stranger, "tool", Page(), "org_1")
            assert caught.value.status == 404

    run(main)

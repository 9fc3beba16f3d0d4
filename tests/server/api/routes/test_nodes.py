"""Routes of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.nodes import cell
from tests.support.requirements import requirement


@requirement("host:nodes-seen", "host:nodes-drain")
def test_nodes_are_listed_and_drained_by_the_operator_alone(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    data.mkdir()

    async def main() -> None:
        async with made.gateway(sqlite_url, data, "n1") as gateway, client_of(gateway) as client:
            found = (await client.get("/api/v1/nodes")).json()
            assert (found["cluster"], found["problem"], found["gateways"]) == ("main", None, [])
            (node,) = found["nodes"]
            assert (node["node"], node["state"], node["labels"]["zone"]) == ("n1", "up", "n1")
            assert node["called"] == {"total": 0, "failed": 0, "refused": 0, "per_minute": 0, "p50_ms": None}
            drained = await client.post("/api/v1/nodes/n1:drain")
            assert (drained.status_code, drained.json()["state"]) == (200, "draining")
            assert (await client.post("/api/v1/nodes/n1:undrain")).json()["state"] == "up"
            assert (await client.post("/api/v1/nodes/n9:drain")).json()["error"]["code"] == "node.not_found"
            async with client_of(gateway, await make_key(gateway, "org_1", "admin")) as member:
                assert (await member.get("/api/v1/nodes")).status_code == 403
                assert (await member.post("/api/v1/nodes/n1:drain")).status_code == 403

    with cell(tmp_path / "cell") as made:
        run(main)


def test_a_server_without_a_cluster_has_none(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            empty: dict[str, Any] = {"cluster": None, "problem": None, "nodes": [], "gateways": []}
            assert (await client.get("/api/v1/nodes")).json() == empty
            assert (await client.get("/api/v1/plugins")).json()["on_nodes"] == []

    run(main)

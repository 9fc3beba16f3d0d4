"""A gateway with a cluster runs its packages on nodes; everything else stays in the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.config.config import parse
from plugbay.host.confinement.reach import Reach
from plugbay.host.host import Host
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from tests.support.gateways import client_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.nodes import PASSWORD, cell
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELL_PASSWORD", PASSWORD)


async def heard(gateway: Gateway, *names: str) -> None:
    nodes = gateway.nodes
    assert nodes is not None
    await until(lambda: {node.name for node, state in nodes.cluster.nodes() if state == "up"} == set(names))


@requirement("host:nodes-call", "host:nodes-packages")
def test_an_uploaded_package_runs_on_a_node(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with cell(tmp_path / "cell") as made:
        data = tmp_path / "data"
        data.mkdir()
        publisher = Publisher(data, tmp_path)
        config = parse('[plugins."acme/p"]\non = { zone = "b" }\n')

        async def main() -> None:
            async with (
                gateway_at(sqlite_url, data, host=Host([], config), settings=made.gateway_settings(data)) as gateway,
                client_of(gateway) as client,
                made.node("n1", labels={"zone": "a"}, trust=data / "trust.json"),
                made.node("n2", labels={"zone": "b"}, trust=data / "trust.json") as second,
            ):
                await make_org(gateway)
                await heard(gateway, "n1", "n2")
                package = await publisher.bring(gateway)
                bound = await bind(gateway, package)
                body = {"binding_id": bound.id, "input": {"city": "Lima"}}
                answer = await client.post("/v1/plugin-invocations", json=body)
                assert answer.status_code == 200, answer.text
                assert answer.json()["result"]["structured_output"]["input"] == {"city": "Lima"}, answer.text
                assert answer.json()["status"] == "succeeded"
                assert len(second._ended) == 1, "labels decide"
                assert (await gateway.checks())["nats"] == "ok"

        run(main)


def test_without_a_registry_an_upload_cannot_reach_the_nodes(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with cell(tmp_path / "cell") as made:
        data = tmp_path / "data"
        data.mkdir()
        publisher = Publisher(data, tmp_path)

        async def main() -> None:
            async with gateway_at(sqlite_url, data, settings=made.gateway_settings(data, registry=False)) as gateway:
                package = await publisher.bring(gateway)
                with pytest.raises(GatewayError, match="has no registry") as caught:
                    await gateway.runner.host(package, Reach()).__aenter__()
                assert caught.value.code == "package.not_published"

        run(main)


def test_without_nats_a_gateway_is_not_ready(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    with cell(tmp_path / "cell") as made:
        chosen = made.gateway_settings(tmp_path)
        made.nats.kill()

        async def main() -> None:
            async with gateway_at(sqlite_url, tmp_path, settings=chosen) as gateway:
                assert (await gateway.checks())["nats"].startswith("NATS cannot be reached")

        run(main)


def test_without_a_cluster_nothing_of_it_is_there(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            assert gateway.nodes is None and "nats" not in await gateway.checks()
            assert gateway.settings.plugin_url == gateway.settings.base_url

    run(main)

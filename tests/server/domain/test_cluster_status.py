"""What an operator sees of a cluster, and the orders to its nodes: real NATS, real nodes, real plugins."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from plugbay.host.admin.logs import LogLine
from plugbay.server.api.metrics import render_metrics
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.cluster_status import ClusterStatus, ReleaseOnNodes
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.secrets import SecretScope
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow
from tests.server.dashboard.pages.test_orgs import actions
from tests.server.domain.test_invocations import work
from tests.server.domain.test_membership import gateway as joined
from tests.server.domain.test_package_logs import SPEAKS
from tests.support.databases import database
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.nodes import cell
from tests.support.packaged import bind
from tests.support.patience import PATIENCE, pauses, until
from tests.support.requirements import requirement
from tests.support.vai import export

READER = Principal("key", "org_1", role="viewer", key_id="key_1")
STRANGER = Principal("key", "org_2", role="viewer", key_id="key_2")


async def check_logs(gateway: Gateway, package: PackageRow, binding: BindingRow) -> None:
    """Both calls left lines on n2; one more, which is followed, leaves some on either node."""
    log = await gateway.package_logs.open(READER, package.id)
    for pause in pauses():
        past = await log.tail(100)
        if sum("for org_1 with ***" in line.text for line in past.lines) == 2:
            break
        await asyncio.sleep(pause)
    written = [line for line in past.lines if line.source == "stderr"]
    assert {line.node for line in written} == {"n2"} and "hush" not in str(past.lines)
    assert [line.at for line in past.lines] == sorted(line.at for line in past.lines)
    following = gateway.package_logs.follow(log, past)
    reading = asyncio.ensure_future(first_of_a_node(following))
    (await gateway.invocations.invoke(work(binding_id=binding.id))).value_or_raise()
    assert "starting" in await asyncio.wait_for(reading, PATIENCE)
    await following.aclose()
    other = await gateway.package_logs.open(STRANGER, package.id)
    assert (await other.tail(100)).lines == [], "lines of another org"


async def first_of_a_node(lines: AsyncGenerator[LogLine, None]) -> str:
    async for line in lines:
        if line.node:
            return line.text
    raise AssertionError("the log has ended")


@requirement("host:nodes-seen")
def test_calls_logs_and_drained_nodes_are_seen_by_the_operator(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    data.mkdir()

    async def main() -> None:
        async with made.gateway(sqlite_url, data, "n1", "n2") as gateway:
            await make_org(gateway, "org_2", "proj_2")
            await gateway.secrets.put(OPERATOR, SecretScope("org_1"), "key", "hush-hush-1")
            slots = {"secret_slots": ["key"]}
            package = await made.publisher.bring(gateway, SPEAKS, [export(permissions=slots)])
            binding = await bind(gateway, package, secrets={"key": "secret://org_1/key"})
            found = await gateway.cluster.order(OPERATOR, "n1", "drain")
            assert found.state == "draining"
            for _ in range(2):
                result = await gateway.invocations.invoke(work(binding_id=binding.id))
                assert result.value_or_raise() and result.invocation is not None and result.invocation.node == "n2"
                record = await gateway.invocations.get(OPERATOR, result.invocation.invocation_id)
                assert record.node == "n2"
            first, second = gateway.cluster.nodes()
            assert (first.node, first.called.total) == ("n1", 0)
            assert (second.node, second.called.total, second.called.failed) == ("n2", 2, 0)
            assert second.called.per_minute == 2 and (second.called.p50_ms or 0) > 0
            await until(lambda: gateway.cluster.running() == [ReleaseOnNodes("acme/p", "1.0.0", ("n2",))])
            await until(lambda: min(node.memory_bytes for node in gateway.cluster.nodes()) > 1 << 20)
            assert (await gateway.cluster.order(OPERATOR, "n1", "undrain")).state == "up"
            assert await code_of(gateway.cluster.order(OPERATOR, "n9", "drain")) == "node.not_found"
            assert [action for action in await actions(gateway) if action.startswith("node.")] == [
                "node.drain",
                "node.undrain",
            ]
            metrics = render_metrics(gateway).decode()
            assert 'plugbay_nodes{state="up"} 2.0' in metrics
            assert 'plugbay_remote_calls_total{outcome="succeeded"} 2.0' in metrics
            assert "plugbay_beats_missed_total 0.0" in metrics
            await check_logs(gateway, package, binding)

    with cell(tmp_path / "cell") as made:
        run(main)


def test_a_gateway_alone_is_no_cluster(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            status = gateway.cluster
            assert not status.exists and status.name is None and status.problem is None
            assert list(status.nodes()) == [] and await status.gateways() == []
            with pytest.raises(GatewayError, match="node"):
                await status.order(OPERATOR, "n1", "drain")
            assert "plugbay_nodes" not in render_metrics(gateway).decode()

    run(main)


@requirement("host:nodes-seen")
def test_gateways_are_listed_with_their_leases(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with joined(url) as one, joined(url) as other:
            database = one._database
            status = ClusterStatus(database, Audit(database, one.clock), None, one)
            assert status.exists and status.name is None and list(status.nodes()) == []
            rows = {row.id: row for row in await status.gateways()}
            assert set(rows) == {one.id, other.id} and rows[one.id].is_this and not rows[other.id].is_this
            assert rows[one.id].pid == os.getpid() and rows[one.id].host
            assert await one._renew() and one.renewals == 1
            (renewed,) = [row for row in await status.gateways() if row.is_this]
            assert renewed.lease_ends_at > rows[one.id].lease_ends_at and renewed.epoch == rows[one.id].epoch
            await other.leave()
            assert [row.id for row in await status.gateways()] == [one.id]

    with database("postgresql", tmp_path) as url:
        run(main)

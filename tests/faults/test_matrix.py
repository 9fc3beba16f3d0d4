"""The faults that docs/scale.md and docs/nodes.md promise something about: real processes, load, a fault, the checker.

Each scenario looks at what its fault must cause, then everything is repaired, and no invariant of `checker` may be
violated. The seed is printed; `PLUGBAY_FAULTS_SEED` sets it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import faults
from tests.faults.checker import HOOK, LOST, READ, REFUSED, SUCCEEDED, WRITE, Entry, Request
from tests.faults.run import finish
from tests.faults.strangers import Nonsense, Silent, Stranger, stranger
from tests.faults.workload import MS, Workload, read_ledger
from tests.faults.world import HOUR, LEASE, Gateway, Node, World
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

pytestmark = pytest.mark.exhaustive

SEED = int(os.environ.get("PLUGBAY_FAULTS_SEED", random.randrange(10**6)))

CALL = 3.0
"""Seconds of a call that a fault interrupts."""


class Scenario:
    """A world under load, and calls of the test itself."""

    def __init__(self, world: World, load: Workload) -> None:
        self.world = world
        self.load = load
        self.dice = random.Random(SEED)
        self.last = ""
        self._count = iter(range(10**9))
        self._pool = ThreadPoolExecutor(8)

    def call(self, gateway: Gateway, kind: str, seconds: float = CALL, *, wait: bool = True) -> Future[Request]:
        """A call that a plugin has, or that has ended before."""
        execution = f"own-{next(self._count)}"

        def ask() -> Request:
            with gateway.client() as client:
                return self.load.invoke(gateway, client, kind, seconds, wait=wait, execution=execution)

        called = self._pool.submit(ask)
        self.world.until(lambda: bool(self.asked(execution)) or called.done(), "a plugin has the call")
        self.last = execution
        return called

    def asked(self, execution: str) -> list[Entry]:
        """What the ledger has of an execution."""
        return [entry for entry in read_ledger(self.load.ledger) if entry.execution == execution]

    def node(self) -> Node:
        """The node that has the last call."""
        place = self.asked(self.last)[-1].holder
        return next(node for node in self.world.nodes if str(node.folder) in place)

    def status(self, gateway: Gateway, path: str) -> int:
        with gateway.client() as client:
            return client.get(path).status_code

    def row(self, request: Request, closer: Gateway) -> dict[str, Any]:
        """The invocation once it has ended. On a machine that stood still, the gateway that closes it may have lost its
        own lease: then it is started again, as systemd would.
        """
        query = f"SELECT status, status_reason FROM plugin_invocations WHERE id = '{request.invocation}'"

        def has_ended() -> bool:
            if closer.notice_end():
                closer.start()
            return bool(self.world.postgres.writable.query(query)[0]["status"])

        self.world.until(has_ended, "it has ended")
        return self.world.postgres.writable.query(query)[0]


@contextmanager
def scenario(folder: Path, *, loaded: bool = True, **options: Any) -> Iterator[Scenario]:
    """A world with this many gateways, nodes and NATS servers; in the end all is repaired and checked."""
    print(f"seed {SEED}")
    with World(folder, **options) as world:
        load = Workload(world, SEED)
        load.prepare()
        if loaded:
            load.begin()
        try:
            yield Scenario(world, load)
        finally:
            load.stop()
        assert finish(world, load) == []


def pids(world: World) -> list[int]:
    return [gateway.pid for gateway in world.gateways]


@requirement("host:nodes-failures")
def test_calls_of_a_killed_node_are_repeated_elsewhere_or_unknown(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        gateway = made.world.gateways[0]
        write = made.call(gateway, WRITE)
        victim = made.node()
        victim.kill()
        lost = write.result(PATIENCE)
        assert lost.failure["code"] == "crashed" and lost.failure["detail"]["cause"] == "node_lost"
        assert lost.is_unknown
        made.world.heal()
        read = made.call(gateway, READ)
        made.node().kill()
        assert read.result(PATIENCE).status == SUCCEEDED


def test_the_work_of_a_killed_gateway_is_closed_by_the_other(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        first, other = made.world.gateways
        begun = made.call(first, WRITE, wait=False).result(PATIENCE)
        first.kill()
        closed = made.row(begun, other)
        assert (closed["status"], closed["status_reason"]) == ("failed", "host_restarted")
        assert made.status(other, "/readyz") == 200


def test_a_delivery_whose_gateway_is_killed_is_made_again(tmp_path: Path) -> None:
    with scenario(tmp_path, loaded=False) as made:
        first = made.world.gateways[0]
        for _ in range(6):
            with first.client() as client:
                answer = client.post(f"/v1/plugin-bindings/{made.load.bindings['h']}:test-delivery", json={})
                made.load.history.promised.add(answer.json()["id"])
        made.world.until(lambda: made.load.ledger.exists() and HOOK in made.load.ledger.read_text(), "a hook was asked")
        first.kill()
        query = "SELECT count(*) AS n FROM deliveries WHERE status = 'delivered'"
        made.world.until(lambda: made.world.postgres.primary.query(query)[0]["n"] == 6, "all are delivered")


@requirement("host:nodes-call")
def test_a_restart_of_nats_ends_no_call(tmp_path: Path) -> None:
    with scenario(tmp_path, lost=PATIENCE) as made:
        calls = [made.call(gateway, WRITE) for gateway in made.world.gateways]
        made.world.nats[0].kill()
        made.world.nats[0].start()
        assert [call.result(PATIENCE).status for call in calls] == [SUCCEEDED] * 2


def test_one_of_three_nats_servers_is_not_missed(tmp_path: Path) -> None:
    with scenario(tmp_path, nats=3, lost=PATIENCE) as made:
        for server in made.world.nats:
            calls = [made.call(gateway, WRITE) for gateway in made.world.gateways]
            server.kill()
            assert [call.result(PATIENCE).status for call in calls] == [SUCCEEDED] * 2
            server.start()


def test_without_nats_calls_fail_honestly_and_all_else_is_answered(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        gateway = made.world.gateways[0]
        write = made.call(gateway, WRITE, 6.0)
        made.world.nats[0].kill()
        made.world.until(lambda: made.status(gateway, "/readyz") == 503, "the gateway is not ready")
        assert made.status(gateway, "/v1/orgs/acme") == 200
        lost = write.result(PATIENCE)
        assert lost.failure["detail"]["cause"] == "link_lost" and lost.is_unknown
        refused = made.call(gateway, WRITE).result(PATIENCE)
        assert refused.failure["code"] == "unavailable" and refused.was_not_asked
        made.world.nats[0].start()
        made.load.wait_served()


def test_a_restart_of_postgresql_ends_no_gateway_and_no_call(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        before = pids(made.world)
        call = made.call(made.world.gateways[0], WRITE)
        made.world.postgres.crash()
        time.sleep(1.0)
        made.world.postgres.restart()
        assert call.result(PATIENCE).status in (SUCCEEDED, LOST)
        made.world.until(lambda: all(gateway.is_ready() for gateway in made.world.gateways), "all are ready")
        assert pids(made.world) == before and all(gateway.is_running for gateway in made.world.gateways)


def test_a_database_that_is_away_reaps_nobody(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        before, gateway = pids(made.world), made.world.gateways[0]
        made.world.postgres.crash()
        with gateway.client() as client:
            answer = client.get("/v1/orgs/acme")
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        time.sleep(2 * LEASE)
        made.world.postgres.restart()
        made.world.until(lambda: all(each.is_ready() for each in made.world.gateways), "all are ready")
        assert pids(made.world) == before and all(each.is_running for each in made.world.gateways)


def test_gateways_follow_the_promoted_standby(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        before = pids(made.world)
        faults.standby_promoted(made.world, made.dice)
        made.world.until(lambda: all(gateway.is_ready() for gateway in made.world.gateways), "all are ready")
        made.load.wait_served()
        assert pids(made.world) == before and all(gateway.is_running for gateway in made.world.gateways)


@pytest.mark.parametrize("toxic", ["mute", "deaf", "stall"])
def test_a_node_that_is_cut_off_gets_no_calls(tmp_path: Path, toxic: str) -> None:
    with scenario(tmp_path) as made:
        gateway = made.world.gateways[0]
        write = made.call(gateway, WRITE)
        victim = made.node()
        for relay in victim.nats:
            relay.inject(toxic)
        read = made.call(gateway, READ, 0.0)
        assert read.result(PATIENCE).status == SUCCEEDED, "another node has it"
        told = write.result(PATIENCE)
        assert told.status == SUCCEEDED or told.is_unknown
        for relay in victim.nats:
            relay.heal()


@pytest.mark.parametrize("toxic", ["stall", "down"])
def test_a_gateway_that_is_cut_from_nats_answers_what_needs_no_node(tmp_path: Path, toxic: str) -> None:
    with scenario(tmp_path) as made:
        cut, other = made.world.gateways
        for relay in cut.nats:
            relay.inject(toxic)
        made.world.until(lambda: made.status(cut, "/readyz") == 503, "it is not ready")
        assert made.status(cut, "/v1/orgs/acme") == 200
        assert made.call(other, WRITE, 0.0).result(PATIENCE).status == SUCCEEDED
        for relay in cut.nats:
            relay.heal()


def test_a_gateway_that_is_cut_from_its_database_is_replaced(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        cut, other = made.world.gateways
        begun = made.call(cut, WRITE, 2 * LEASE, wait=False).result(PATIENCE)
        for relay in cut.database:
            relay.inject("stall")
        assert made.row(begun, other)["status_reason"] == "host_restarted"
        assert made.status(other, "/readyz") == 200
        for relay in cut.database:
            relay.heal()
        made.world.until(lambda: not cut.is_running, "it ends: its work was taken over")


@pytest.mark.parametrize("seconds", [1.0, 6.0])
def test_a_suspended_node_carries_out_no_stale_call(tmp_path: Path, seconds: float) -> None:
    with scenario(tmp_path) as made:
        gateway = made.world.gateways[0]
        write = made.call(gateway, WRITE)
        victim = made.node()
        victim.suspend()
        others = [made._pool.submit(_ask, made, gateway, kind) for kind in (WRITE, READ, WRITE, READ)]
        time.sleep(seconds)
        victim.resume()
        told = [call.result(PATIENCE) for call in (write, *others)]
        assert all(each.status == SUCCEEDED for each in told if each.kind == READ)
        assert all(each.status == SUCCEEDED or each.is_unknown or each.was_not_asked for each in told), told


def _ask(made: Scenario, gateway: Gateway, kind: str, timeout_ms: int | None = None) -> Request:
    with gateway.client() as client:
        return made.load.invoke(gateway, client, kind, timeout_ms=timeout_ms)


def test_a_gateway_that_slept_beyond_its_lease_ends_and_changes_nothing(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        asleep, other = made.world.gateways
        begun = made.call(asleep, WRITE, 1.0, wait=False).result(PATIENCE)
        asleep.suspend()
        closed = made.row(begun, other)
        asleep.resume()
        made.world.until(lambda: not asleep.is_running, "it ends: its work was taken over")
        assert made.row(begun, other) == closed


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
def test_a_gateway_with_a_wrong_clock_steals_nothing(tmp_path: Path, skew: float) -> None:
    with scenario(tmp_path, skews={1: skew}) as made:
        before = pids(made.world)
        calls = [made.call(gateway, WRITE) for gateway in made.world.gateways]
        assert [call.result(PATIENCE).status for call in calls] == [SUCCEEDED] * 2, "no timeout comes early"
        time.sleep(2 * LEASE)
        assert pids(made.world) == before and all(gateway.is_running for gateway in made.world.gateways)


@requirement("host:nodes-failures")
@pytest.mark.parametrize("kind", [Stranger, Silent, Nonsense])
def test_a_node_that_misbehaves_gets_less(tmp_path: Path, kind: type[Stranger]) -> None:
    with scenario(tmp_path, loaded=False) as made, stranger(made.world, kind) as bad:
        gateway = made.world.gateways[0]
        for _ in range(5):
            asked = [made._pool.submit(_ask, made, gateway, READ, MS) for _ in range(6)]
            assert any(each.result(PATIENCE).status == SUCCEEDED for each in asked)
            if bad.calls:
                break
        assert bad.calls, "it had a share of the calls"
        before = bad.calls
        told = [_ask(made, gateway, READ) for _ in range(10)]
        assert all(each.status == SUCCEEDED for each in told) and bad.calls == before, "it is avoided"


def test_a_slow_node_loses_nothing(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        faults.node_slow(made.world, made.dice)


@requirement("host:nodes-drain")
def test_nodes_are_drained_one_by_one_without_a_failed_call(tmp_path: Path) -> None:
    with scenario(tmp_path, nodes=3, lost=PATIENCE) as made:
        faults.nodes_drained(made.world, made.dice)
        made.load.stop()
        told = [request for request in made.load.history.requests if request.status not in (SUCCEEDED, "begun")]
        wrong = [each for each in told if each.failure.get("code") != "unavailable" and each.status != REFUSED]
        assert wrong == []
        assert len(told) <= len(made.load.history.requests) // 4


def test_gateways_are_replaced_one_by_one(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        faults.gateways_replaced(made.world, made.dice)


def test_nothing_is_left_when_the_world_ends(tmp_path: Path) -> None:
    with scenario(tmp_path) as made:
        processes = [party.pid for party in made.world.parties]
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
    assert not [thread for thread in threading.enumerate() if thread.name == "toxic proxy"]

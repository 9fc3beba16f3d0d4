"""Instances by org and execution class: never two orgs in one, a new one for isolated work, a hung one replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.request import ExportBinding, Policy
from plugbay.host.supervision import per_org
from plugbay.host.supervision.per_org import PerOrgSupervisor, has_execution_class, has_execution_classes
from plugbay.model.errors import Code
from plugbay.model.operations import Shutdown
from plugbay.model.spec import Export, PluginSpec
from tests.examples.test_devkit import receiver
from tests.support.invoking import alive, host_of, raw_host_of, records, with_host
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

WORKER = {"execution_class": "worker"}


async def pid(host: Host, name: str = "t", **order: Any) -> int:
    result = await host.invoke(name, {}, **order)
    return int(result.value_or_raise()["structured_output"]["pid"])


def fleet_of(host: Host) -> PerOrgSupervisor:
    supervisor = host.calls.supervisors["acme/p"]
    assert isinstance(supervisor, PerOrgSupervisor)
    return supervisor


def test_only_exports_with_an_execution_class_need_a_per_org_supervisor() -> None:
    plain, classed = Export("tool", "t"), Export("tool", "t", facts=WORKER)
    assert not has_execution_class(plain) and has_execution_class(classed)
    assert has_execution_classes(PluginSpec("p", "1", "vai", Path("/"), ("run",), exports=(classed,)))
    assert not has_execution_classes(PluginSpec("p", "1", "rune", Path("/"), ("run",), exports=(plain,)))


@requirement("vai:host-org-isolation")
def test_the_instance_of_one_org_never_serves_another(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER), export("u", **WORKER)])

    async def main(host: Host) -> None:
        first = [await pid(host, org_id="org_1"), await pid(host, "u", org_id="org_1")]
        second = [await pid(host, org_id="org_2"), await pid(host, binding=ExportBinding(org_id="org_2"))]
        assert len(set(first)) == len(set(second)) == 1 and first[0] != second[0]
        status = host.plugins()[0]
        assert (status.state, status.ready, status.generation, status.pid) == ("running", 2, 2, None)

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-isolated")
def test_an_isolated_invocation_has_an_instance_of_its_own(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(execution_class="isolated")])

    async def main(host: Host) -> None:
        pids = await asyncio.gather(*(pid(host) for _ in range(4)))
        assert len(set(pids)) == 4
        await until(lambda: host.plugins()[0].busy == 0)
        assert host.plugins()[0].state == "idle"

    with_host(run, raw_host_of(root), main)


@requirement("vai:host-execution-class")
def test_the_operator_and_the_binding_can_only_want_more_isolation(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER), export("u", execution_class="isolated")])

    async def main(host: Host) -> None:
        narrow, wide = (
            ExportBinding(policy=Policy(execution_class="isolated")),
            ExportBinding(policy=Policy(execution_class="inline")),
        )
        assert await pid(host) == await pid(host, binding=wide) != await pid(host, binding=narrow)
        assert await pid(host, "u", binding=wide) != await pid(host, "u", binding=wide)
        classes = [record.execution_class for record in records(host)]
        assert classes == ["worker", "worker", "isolated", "isolated", "isolated"]

    with_host(run, raw_host_of(root), main)

    async def strict(host: Host) -> None:
        assert await pid(host) != await pid(host)
        assert {record.execution_class for record in records(host)} == {"isolated"}

    with_host(run, raw_host_of(root, 'execution_class = "isolated"'), strict)


OPEN = {"network": "egress", "filesystem": "scratch", "gateway_api_scopes": [], "secret_slots": []}
CLOSED = {"network": "none", "filesystem": "none", "gateway_api_scopes": [], "secret_slots": []}

REACHES = """
import urllib.request

def tool(body, m):
    found = {"network": False, "scratch": []}
    try:
        found["network"] = urllib.request.urlopen(body["input"]["url"], b"{}", timeout=60).status == 200
    except OSError as error:
        found["why"] = repr(error)
    places = [line.split()[4] for line in open("/proc/self/mountinfo") if "/rooms/" in line]
    for place in places + [body["context"]["scratch_dir"]]:
        try:
            open(os.path.join(place, "mine"), "w").close()
            found["scratch"].append(place)
        except (OSError, TypeError):
            pass
    succeed(m, output(found))
"""


@requirement("vai:host-permissions-by-export")
def test_a_process_has_the_network_and_a_scratch_directory_when_the_export_that_it_serves_has_them(
    run: Run, tmp_path: Path
) -> None:
    exports = [
        export(f"{name}_{kind}", permissions=asked, execution_class=kind)
        for kind in ("isolated", "worker")
        for name, asked in (("open", OPEN), ("closed", CLOSED), ("online", {**OPEN, "filesystem": "none"}))
    ]
    root = write_vai_plugin(tmp_path, REACHES, exports)
    with receiver() as (url, heard):
        toml = f'[network]\nallow_private = ["{url.removeprefix("http://")}"]\n'

        async def main(host: Host) -> None:
            for kind in ("isolated", "worker"):
                found = {}
                for name in ("open", "closed", "online"):
                    result = await host.invoke(f"{name}_{kind}", {"url": url})
                    found[name] = result.value_or_raise()["structured_output"]
                assert found["open"]["network"] and found["open"]["scratch"], found
                assert not found["closed"]["network"] and found["closed"]["scratch"] == [], found
                assert found["online"]["network"] and found["online"]["scratch"] == [], found
            assert len(heard) == 4
            assert {served.share for served in fleet_of(host)._workers} == {
                frozenset({"network", "filesystem=scratch"}),
                frozenset({"network"}),
                frozenset(),
            }

        with_host(run, host_of(root, f"timeouts = {{ handshake = 30 }}\n{toml}"), main)


@requirement("vai:host-permissions-by-export")
def test_exports_that_ask_for_the_same_access_share_a_confined_worker(run: Run, tmp_path: Path) -> None:
    body = """
    count = 0

    def tool(body, m):
        global count
        count += 1
        succeed(m, output({"count": count}))
    """
    scoped = {**OPEN, "gateway_api_scopes": ["runs:read"]}
    asked = {"a": OPEN, "b": scoped, "c": CLOSED}
    root = write_vai_plugin(tmp_path, body, [export(name, permissions=each, **WORKER) for name, each in asked.items()])

    async def main(host: Host) -> None:
        counts = [(await host.call(name, {}))["structured_output"]["count"] for name in ("a", "b", "c", "a")]
        assert counts == [1, 2, 1, 3], "the third has a process of its own"
        assert host.plugins()[0].ready == 2

    with_host(run, host_of(root, "timeouts = { handshake = 30 }"), main)


@requirement("vai:host-inline")
def test_an_inline_instance_of_the_hosts_own_org_is_ready_before_the_first_call(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(execution_class="inline"), export("u", **WORKER)])

    async def main(host: Host) -> None:
        assert await host.settled(PATIENCE)
        status = host.plugins()[0]
        assert status.ready == 1 and status.pid is not None
        assert await pid(host) == await pid(host, "u") == status.pid != await pid(host, org_id="org_1")

    with_host(run, raw_host_of(root), main)

    async def stricter(host: Host) -> None:
        assert await host.settled(PATIENCE) and host.plugins()[0].ready == 0

    with_host(run, raw_host_of(root, 'execution_class = "worker"'), stricter)


@requirement("vai:host-worker-replaced")
def test_a_worker_that_does_not_answer_finishes_its_other_work_and_is_replaced(run: Run, tmp_path: Path) -> None:
    body = """
    def cancelled(m):
        pass

    def tool(body, m):
        event(m)
        wait = body["input"].get("wait")
        while wait and not os.path.exists(wait):
            time.sleep(0.005)
        if not body["input"].get("hang"):
            succeed(m, output({"pid": os.getpid()}))
    """
    root = write_vai_plugin(tmp_path, body, [export(**WORKER, max_concurrency=4)])

    async def main(host: Host) -> None:
        begun = asyncio.Event()
        first = await pid(host)
        other = asyncio.ensure_future(host.invoke("t", {"wait": "go"}, on_progress=lambda _: begun.set()))
        await begun.wait()
        hung = await host.invoke("t", {"hang": True}, timeout=0.3)
        assert hung.status == "cancelled" and not other.done()
        assert await pid(host) != first
        (root / "go").touch()
        assert (await other).value_or_raise()["structured_output"]["pid"] == first
        assert host.journal.counts("acme/p")["replaced"] == 1
        await until(lambda: not fleet_of(host)._leaving)
        assert host.plugins()[0].ready == 1 and host.plugins()[0].generation == 2

    with_host(run, raw_host_of(root, "timeouts = { grace = 0.2, teardown = 0.2 }"), main)


@requirement("vai:host-idle-workers")
def test_workers_of_many_orgs_do_not_pile_up(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_org, "MAX_WORKERS", 2)
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER)])

    async def main(host: Host) -> None:
        pids = {org: await pid(host, org_id=org) for org in ("org_1", "org_2", "org_1", "org_3")}
        await until(lambda: not fleet_of(host)._leaving)
        assert host.plugins()[0].ready == 2
        assert await pid(host, org_id="org_1") == pids["org_1"]
        assert await pid(host, org_id="org_2") != pids["org_2"]

    with_host(run, raw_host_of(root), main)


def test_busy_workers_stay_and_a_further_org_gets_an_isolated_instance_or_waits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_org, "MAX_WORKERS", 1)
    body = """
    def tool(body, m):
        event(m)
        cancels[m["id"]].wait()

    def cancelled(m):
        succeed(m, output({"pid": os.getpid()}))
    """
    root = write_vai_plugin(tmp_path, body, [export(**WORKER)])

    async def main(host: Host) -> None:
        begun: list[Any] = []
        orgs = ("org_1", "org_2")
        tasks = [asyncio.ensure_future(host.invoke("t", {}, org_id=org, on_progress=begun.append)) for org in orgs]
        await until(lambda: len(begun) == 2)
        late = await host.invoke("t", {}, org_id="org_3", timeout=0.2)
        assert late.failure is not None and late.failure.code == Code.OVERLOADED
        assert host.plugins()[0].busy == 2 and [served.org for served in fleet_of(host)._workers] == ["org_1"]
        assert all(host.invocations.cancel(record.invocation_id) for record in records(host)[:2])
        results = await asyncio.gather(*tasks)
        pids = {result.value_or_raise()["structured_output"]["pid"] for result in results}
        assert len(pids) == 2
        await until(lambda: len([pid for pid in pids if alive(pid)]) == 1)

    with_host(run, raw_host_of(root, "concurrency = 1"), main)


@requirement("vai:host-idle-workers")
def test_an_idle_worker_ends_and_the_next_invocation_starts_another(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_org, "IDLE_SECONDS", 0.05)
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER)])

    async def main(host: Host) -> None:
        first = await pid(host)
        await until(lambda: host.plugins()[0].ready == 0)
        assert await pid(host) != first

    with_host(run, raw_host_of(root), main)


def test_a_reload_starts_afresh_and_loses_no_call(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER), export("u")])

    async def main(host: Host) -> None:
        first = await pid(host)
        busy = asyncio.ensure_future(pid(host, "u"))
        await asyncio.sleep(0)
        await host.reload("acme/p")
        assert await busy and await pid(host) != first

    with_host(run, raw_host_of(root), main)


def test_a_per_org_supervisor_is_a_supervisor_like_any_other(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, exports=[export(**WORKER)])

    async def main(host: Host) -> None:
        whole = fleet_of(host)
        assert whole.try_lease() is None and not whole.notify(Shutdown()) and whole.counters == {}
        whole.mark_shown()
        assert whole.starting is None and whole.state == "idle"
        await host.stop()
        assert (
            whole.state == "stopped"
            and whole.for_export("worker", "org_1", whole.binding.spec.exports[0]).state == "stopped"
        )

    with_host(run, raw_host_of(root), main)


def test_a_pool_of_isolated_instances_is_greeted_ahead_of_time(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path)

    async def main(host: Host) -> None:
        await until(lambda: host.plugins()[0].ready == 2)
        assert len({await pid(host) for _ in range(3)}) == 3

    with_host(run, raw_host_of(root, "pool = 2"), main)


@requirement("vai:host-shutdown")
@pytest.mark.parametrize("execution_class", ["isolated", "worker"])
def test_an_instance_that_has_answered_is_shut_down_and_may_clean_up(
    run: Run, tmp_path: Path, execution_class: str
) -> None:
    body = """
    def shutdown(m):
        time.sleep(0.05)
        open("cleared_up", "w").close()
        os._exit(0)
    """
    root = write_vai_plugin(tmp_path, body, [export(execution_class=execution_class)])

    async def main(host: Host) -> None:
        await host.call("t", {})

    with_host(run, raw_host_of(root), main)
    assert (root / "cleared_up").exists()


@requirement("vai:host-shutdown")
def test_an_instance_that_does_not_exit_is_killed_and_keeps_its_slot_until_then(run: Run, tmp_path: Path) -> None:
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def shutdown(m):
        pass
    """
    root = write_vai_plugin(tmp_path, body)

    async def main(host: Host) -> None:
        first = await pid(host)
        await pid(host)
        assert not alive(first), "the next one has its slot"

    with_host(run, raw_host_of(root, "concurrency = 1\ntimeouts = { teardown = 0.1 }"), main)

"""A remote plugin is a supervisor like any other."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from plugbay.cluster.calling import Cluster
from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.remote import Placed, RemoteSupervisor
from plugbay.host.config.sections import ClusterConfig
from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.lifecycle import State
from plugbay.model.operations import DeliverEvent
from tests.support.loops import Run, run  # noqa: F401
from tests.support.vai import export, write_vai_plugin

PACKAGE = Package("acme/p", "1.0.0", "0" * 64, "oci://registry.example/p@sha256:" + "0" * 64)


def supervisor(folder: Path) -> RemoteSupervisor:
    once = export("once", own={"effect_class": "non_idempotent_write"})
    spec = inspect(write_vai_plugin(folder, exports=[export(), once])).spec
    assert spec is not None
    cluster = Cluster(ClusterConfig(nats=["nats://127.0.0.1:1"]), {})
    return RemoteSupervisor(Binding(spec), cluster, Placed(PACKAGE, Access(), {"zone": "a"}))


def test_the_export_decides_on_place_and_repetition(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made = supervisor(tmp_path)
        tool, once = made.binding.spec.exports
        alone = made.for_export("isolated", "org_1", tool).target
        shared = made.for_export("worker", "org_1", tool).target
        other = made.for_export("worker", "org_2", once).target
        assert not alone.wish.shared and shared.wish.shared
        assert shared.wish.labels == {"zone": "a"} and shared.wish.confined
        assert shared.wish.key != other.wish.key
        assert shared.repeatable and not other.repeatable
        assert made.for_export("worker", "org_1", tool) is made.for_export("worker", "org_1", tool)

    run(main)


def test_a_stopped_one_gives_no_leases(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made = supervisor(tmp_path)
        assert made.state is State.IDLE and made.try_lease() is not None
        assert made.pid is None and made.starting is None and made.counters == {} and made.ready == 0
        assert not made.notify(DeliverEvent("a", {}))
        made.begin()
        made.mark_shown()
        assert await made.retire() == 0.0
        refusal = await made.lease(Deadline(1))
        assert isinstance(refusal, Failure) and refusal.code == Code.UNAVAILABLE
        assert str(made.state) == State.STOPPED.value

    run(main)


def test_it_retires_after_its_last_call(tmp_path: Path, run: Run) -> None:  # noqa: F811
    import asyncio

    from tests.support.patience import until

    async def main() -> None:
        made = supervisor(tmp_path)
        made.busy = 1
        retiring = asyncio.create_task(made.retire())
        await asyncio.sleep(0)
        assert not retiring.done() and made.state is State.RUNNING
        made.busy = 0
        made.idle.set()
        await until(retiring.done)

    run(main)


def test_a_lease_redacts_the_secrets_of_the_plugin_and_of_its_call(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made = supervisor(tmp_path)
        made.binding = replace(made.binding, secrets={"key": "of-the-plugin"})
        first, second = made.try_lease(), made.try_lease()
        assert first is not None and second is not None
        first.instance.redactor.learn({"key": "of-the-call"})
        assert first.instance.redactor.redact_text("of-the-plugin, of-the-call") == "***, ***"
        assert second.instance.redactor.redact_text("of-the-plugin, of-the-call") == "***, of-the-call"

    run(main)

"""An installed plugin on nodes is a supervisor like any other; the operator's settings go with each call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugbay.cluster.calling import Cluster
from plugbay.cluster.envelope import Package
from plugbay.cluster.installed import Installed, InstalledSupervisor, is_single
from plugbay.cluster.operated import decode_settings
from plugbay.cluster.singletons import Singletons
from plugbay.host.config.config import Config
from plugbay.host.config.sections import ClusterConfig
from plugbay.host.discovery.folders import inspect
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.spec import PluginSpec
from tests.cluster.test_envelope import beat
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run, run  # noqa: F401
from tests.support.plugins import write_plugin
from tests.support.vai import write_vai_plugin

PACKAGE = Package("p", "1.0.0", "1" * 64, "oci://registry.example/p@sha256:" + "0" * 64)


def spec_of(root: Path) -> PluginSpec:
    spec = inspect(root).spec
    assert spec is not None
    return spec


class Runtime:
    """What a supervisor gets of its host."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def greeted(self, plugin_id: str, hello: Any) -> None:
        self.heard.append((plugin_id, hello))


class Calls(Cluster):
    """Keeps the targets of calls."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(nats=["nats://127.0.0.1:1"]), {})
        self.called: list[Any] = []
        self.answer = CallFinished(0, msgspec.Raw(b'{"tools":[]}'), None)

    async def call(self, target: Any, op: Any, *_: Any) -> CallFinished:
        self.called.append((target, op))
        return self.answer


def supervisor(
    spec: PluginSpec, missing: Failure | None = None, **plugin: Any
) -> tuple[InstalledSupervisor, Calls, Runtime]:
    cluster, runtime = Calls(), Runtime()

    async def package(spec: PluginSpec) -> Package:
        if missing is not None:
            raise CallFailed(missing)
        return PACKAGE

    installed = Installed(cluster, Singletons(cluster.roster), package, confined=False)
    settings = Config.model_validate({"plugins": {spec.id: plugin}}).plugin(spec.id)
    binding = Binding(spec, ("x",), secrets={"key": "hunter2"})
    return InstalledSupervisor(binding, runtime, installed, settings), cluster, runtime  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "copies", "single"),
    [
        ("kaged", None, True),
        ("kaged", "many", False),
        ("rune", None, False),
        ("rune", "one", True),
        ("vai", None, False),
    ],
)
def test_a_plugin_that_stays_is_one(kind: str, copies: str | None, single: bool, tmp_path: Path) -> None:
    write: Any = {"kaged": write_kaged_plugin, "rune": write_plugin, "vai": write_vai_plugin}[kind]
    spec = spec_of(write(tmp_path))
    settings = Config.model_validate({"plugins": {spec.id: {"copies": copies}}}).plugin(spec.id)
    assert is_single(spec, settings) is single


def test_settings_and_lease_go_with_each_call(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made, cluster, runtime = supervisor(spec_of(write_kaged_plugin(tmp_path)), on={"zone": "a"})
        assert await made.start_somewhere() is None
        assert runtime.heard == [("p", {"tools": []})]
        lease = made.try_lease()
        assert lease is not None
        await lease.call("op", 1.0)  # type: ignore[arg-type]
        (start, nothing), (target, op) = cluster.called
        assert nothing is None and start.repeatable and op == "op" and not target.repeatable
        for each in (start, target):
            assert each.package is PACKAGE and (each.wish.lease, each.wish.key) == ("plugin/p", "p")
            assert each.wish.labels == {"zone": "a"} and not each.wish.confined
            assert decode_settings(each.settings)[0].secrets == {"key": "hunter2"}

    run(main)


def test_without_a_package_no_node_is_asked(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        missing = Failure(Code.UNAVAILABLE, "no registry")
        made, cluster, runtime = supervisor(spec_of(write_kaged_plugin(tmp_path)), missing)
        assert await made.start_somewhere() is missing and cluster.called == [] and runtime.heard == []

    run(main)


def test_an_eager_plugin_is_kept_running_until_it_is_stopped(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        made, cluster, _ = supervisor(spec_of(write_kaged_plugin(tmp_path)))
        made.begin()
        assert made._installed.singletons._keeping and not made.is_stopped
        assert made.state is State.IDLE
        cluster.roster.hear(beat(held={"plugin/p": 1}), 0.0)
        assert str(made.state) == State.RUNNING.value
        await made.stop()
        assert made.is_stopped and made.try_lease() is None and str(made.state) == State.STOPPED.value
        await made._installed.singletons.stop()
        await asyncio.sleep(0)

    run(main)


def test_a_refused_plugin_is_not_run(tmp_path: Path, run: Run) -> None:  # noqa: F811
    from msgspec.structs import replace

    async def main() -> None:
        made, _, _ = supervisor(spec_of(write_kaged_plugin(tmp_path)))
        refusal = Failure(Code.LAUNCH_FAILED, "its settings cannot be used")
        made.binding = replace(made.binding, refusal=refusal)
        made.begin()
        assert not made._installed.singletons._keeping
        assert made.try_lease() is None and await made.lease(Deadline(1)) is refusal

    run(main)

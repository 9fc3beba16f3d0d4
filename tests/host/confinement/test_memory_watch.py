"""A plugin that uses more memory than it may is killed and told why, where no control group does it. Real children."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, Host
from plugbay.host.confinement import memory_watch
from plugbay.process.sandbox import cgroup, launcher
from plugbay.process.sandbox.cgroup import Cgroups
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import run_on

USES = """
import mmap, signal, socket
kept = []

def parts(size):
    for _ in range(4):
        reading, writing = os.pipe()
        if os.fork() == 0:
            kept.append(b"x" * (size // 4))
            os.write(writing, b"x")
            signal.pause()
        os.read(reading, 1)

def shared(size):
    kept.append(mmap.mmap(-1, size))
    kept[0].write(b"x" * size)

def file(size):
    kept.append(os.memfd_create("x"))
    for _ in range(size >> 20):
        os.write(kept[0], b"x" * (1 << 20))

def sockets(size):
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    kept.append(listening)
    while size > 0:
        with socket.create_connection(listening.getsockname()) as gone:
            size -= gone.send(bytes(50000))

def one(size):
    kept.append(b"x" * size)

def tool(name, params, m):
    try:
        globals()[params["how"]](params["mib"] << 20)
    except MemoryError:
        reply(m, "no memory")
        return
    if params["reply"]:
        reply(m, "had it")
"""
"""Without a reply, the call ends with the plugin."""


def loaded(folder: Path, memory: str) -> Host:
    """A host with one plugin, which may use so much memory."""
    root = folder / "plugins"
    if not root.exists():
        write_kaged_plugin(root, body=USES)
    config = folder / "plugbay.toml"
    config.write_text(f'[plugins.p.sandbox]\nlimits = {{ memory = "{memory}" }}')
    return Host.load(root, config=config, grant_all=True)


@pytest.fixture
def no_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without control groups, looked at often."""
    monkeypatch.setattr(launcher, "Cgroups", lambda: Cgroups(tmp_path / "none"))
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", 0.05)


@pytest.mark.usefixtures("no_groups")
@pytest.mark.parametrize("how", ["parts", "shared", "file", "sockets"])
def test_without_control_groups_a_plugin_that_uses_too_much_is_killed_and_told_why(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with loaded(tmp_path, "64 MiB") as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": how, "mib": 120, "reply": False}, timeout=25)
            cause = caught.value.failure.detail["cause"]
            assert ": it was killed because it used " in cause
            assert cause.endswith(" MiB of memory and may use 64 MiB")
            assert "limits = { memory" in caught.value.failure.detail["hint"]
            assert host.journal.counts("p")["out_of_memory"] == 1
        async with loaded(tmp_path, "512 MiB") as host:
            assert await host.call("echo", {"how": how, "mib": 120, "reply": True}) == "had it"
            assert host.plugins()[0].limits == "degraded"
            assert "out_of_memory" not in host.journal.counts("p")

    run_on("asyncio")(main)


@pytest.mark.usefixtures("no_groups")
def test_without_control_groups_one_process_cannot_map_much_more_than_it_may_use(tmp_path: Path) -> None:
    async def main() -> None:
        for memory, answer in (("64 MiB", "no memory"), ("512 MiB", "had it")):
            async with loaded(tmp_path, memory) as host:
                assert await host.call("echo", {"how": "one", "mib": 200, "reply": True}) == answer

    run_on("asyncio")(main)


IN_SOCKETS = {"how": "sockets", "mib": 24}


@pytest.mark.skipif(Cgroups().state != cgroup.V1_STATE, reason="needs control groups of version 1")
@pytest.mark.parametrize(
    ("memory", "seconds", "killed"),
    [("64 MiB", 0.05, True), ("64 MiB", 3600.0, False), ("1 GiB", 0.05, False)],
    ids=["looked at", "not looked at", "allowed"],
)
def test_data_in_connections_that_nobody_accepts_is_found_although_control_groups_miss_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, seconds: float, killed: bool
) -> None:
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", seconds)

    async def main() -> None:
        async with loaded(tmp_path, memory) as host:
            if not killed:
                assert await host.call("echo", {**IN_SOCKETS, "reply": True}) == "had it"
                assert "out_of_memory" not in host.journal.counts("p")
                return
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {**IN_SOCKETS, "reply": False}, timeout=25)
            cause = caught.value.failure.detail["cause"]
            assert ": it was killed because its sockets held " in cause
            assert cause.endswith(" MiB and may hold 16 MiB, a part of its 64 MiB")
            assert "limits = { memory" in caught.value.failure.detail["hint"]
            assert host.journal.counts("p")["out_of_memory"] == 1

    run_on("asyncio")(main)

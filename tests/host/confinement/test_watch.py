"""Processes are checked until they end, and a problem is reported once. Real processes."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from plugbay import CallFailed, Host
from plugbay.host.confinement import watch as watch_module
from plugbay.host.confinement.watch import StateCheck, Watch
from plugbay.model.errors import Code
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch
from plugbay.process.sandbox import cgroup, launcher
from plugbay.process.sandbox.cgroup import Cgroups
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run, run_on
from tests.support.machine import limits_state
from tests.support.patience import until
from tests.support.requirements import requirement


async def waiting(spawner: Spawner) -> Child:
    return await spawner.spawn(Launch((sys.executable, "-c", "input()"), Path.cwd(), label="p"), 20)


def test_a_problem_is_reported_once_and_checks_end_with_the_last_process(run: Run) -> None:
    async def main() -> None:
        spawner, watch, told = Spawner(), Watch(0.01), list[str]()
        before = asyncio.all_tasks()
        first, second = await waiting(spawner), await waiting(spawner)
        looks = threading.Semaphore(0)
        watch.begin(first, lambda: looks.release(), told.append)
        watch.begin(second, lambda: "too much", told.append)
        (looking,) = asyncio.all_tasks() - before
        for _ in range(3):  # the first is looked at in each round, and so would be the second
            await asyncio.to_thread(looks.acquire)
        await until(lambda: bool(told))
        assert told == ["too much"]
        second.kill()
        await second.wait()
        assert not looking.done()
        first.kill()
        await first.wait()
        await until(looking.done)
        third = await waiting(spawner)
        watch.begin(third, lambda: "again", told.append)
        await until(lambda: told == ["too much", "again"])
        for child in (first, second, third):
            child.close()
        await spawner.close()

    run(main)


MIB = 1 << 20

KEEPS = """
def tool(name, params, m):
    how = params["how"]
    path = os.path.expanduser("~/" + how)
    if how == "little":
        open(path, "wb").write(bytes(1 << 19))
        reply(m, "kept")
        return
    if how == "large":
        open(path, "wb").write(b"x" * (4 << 20))
    if how == "nameless":
        global held
        held = open(path, "wb")
        os.unlink(path)
        held.write(b"x" * (4 << 20))
        held.flush()
    if how in ("in flight", "one page"):
        import ctypes, socket
        ends = globals().setdefault("ends", socket.socketpair())
        file = open(path, "w+b")
        os.unlink(path)
        file.write(b"x" * (64 << 20))
        file.flush()
        if how == "one page":
            number = ctypes.c_long  # the module mmap keeps a descriptor
            ctypes.CDLL(None).mmap(None, number(4096), 1, 1, file.fileno(), number(0))
        else:
            socket.send_fds(ends[0], [b"."], [file.fileno()])
        file.close()
"""

CONFIG = """
[host]
state_dir = "state"
[plugins.p.sandbox]
limits = { state = "2 MiB" }
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "STATE_SECONDS", 0.02)


def loaded(root: Path, toml: str = CONFIG) -> Host:
    config = root.parent / "plugbay.toml"
    config.write_text(toml)
    return Host.load(root, config=config, grant_all=True)


@pytest.mark.parametrize("how", ["large", "nameless"])
def test_a_plugin_that_keeps_too_much_is_killed_with_the_reason(run: Run, tmp_path: Path, how: str) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", body=KEEPS)

    async def main() -> None:
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": how}, timeout=120)
            failure = caught.value.failure
            assert failure.code == Code.CRASHED
            assert failure.detail["cause"].endswith("/state/plugins/p is too full: it has more than 2,097,152 bytes")
            assert "limits = { state" in failure.detail["hint"]
            assert host.journal.counts("p")["too_much_state"] == 1

    run(main)


@requirement("host:state-hidden")
@pytest.mark.parametrize("how", ["in flight", "one page"])
def test_a_plugin_that_hides_deleted_files_is_killed_and_one_with_room_for_them_is_not(
    run: Run, tmp_path: Path, how: str
) -> None:
    body = KEEPS + '    reply(m, "kept")\n'
    root = write_kaged_plugin(tmp_path / "plugins", body=body)

    async def main() -> None:
        async with loaded(root, CONFIG.replace("2 MiB", "4 GiB")) as host:
            assert await host.call("echo", {"how": how}) == "kept"
            assert await host.call("echo", {"how": "little"}) == "kept"
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"
            await host.attempt("echo", {"how": how}, timeout=120)  # answers, or is killed before it does
            await until(lambda: host.journal.counts("p").get("too_much_state") == 1)

    run(main)


def test_a_plugin_that_keeps_too_much_is_not_started_before_there_is_room(run: Run, tmp_path: Path) -> None:
    root = write_kaged_plugin(tmp_path / "plugins", body=KEEPS)
    kept = root.parent / "state" / "plugins" / "p" / "large"

    async def main() -> None:
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"
        kept.write_bytes(b"x" * 3 * MIB)
        async with loaded(root) as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": "little"})
            assert "is too full: it has more than 2,097,152 bytes" in str(caught.value)
            assert "delete unneeded files from it" in caught.value.failure.detail["hint"]
        kept.unlink()
        async with loaded(root) as host:
            assert await host.call("echo", {"how": "little"}) == "kept"

    run(main)


def test_a_larger_limit_leaves_room_for_more(run: Run, tmp_path: Path) -> None:
    body = KEEPS + '    reply(m, "kept")\n'
    root = write_kaged_plugin(tmp_path / "plugins", body=body)

    async def main() -> None:
        async with loaded(root, CONFIG.replace("2 MiB", "64 MiB")) as host:
            for how in ("large", "nameless", "little"):
                assert await host.call("echo", {"how": how}) == "kept"
            assert "too_much_state" not in host.journal.counts("p")

    run(main)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert StateCheck(1 << 30, tmp_path / "never", 1)() is None


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


def load_host_with_memory(folder: Path, memory: str) -> Host:
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
    monkeypatch.setattr(watch_module, "MEMORY_SECONDS", 0.05)


@pytest.mark.usefixtures("no_groups")
@pytest.mark.parametrize("how", ["parts", "shared", "file", "sockets"])
def test_without_control_groups_a_plugin_that_uses_too_much_is_killed_with_the_reason(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with load_host_with_memory(tmp_path, "64 MiB") as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("echo", {"how": how, "mib": 120, "reply": False}, timeout=25)
            cause = caught.value.failure.detail["cause"]
            assert ": it was killed because it used " in cause
            assert cause.endswith(" MiB of memory and may use 64 MiB")
            assert "limits = { memory" in caught.value.failure.detail["hint"]
            assert host.journal.counts("p")["out_of_memory"] == 1
        async with load_host_with_memory(tmp_path, "512 MiB") as host:
            assert await host.call("echo", {"how": how, "mib": 120, "reply": True}) == "had it"
            assert host.plugins()[0].limits == "degraded"
            assert "out_of_memory" not in host.journal.counts("p")

    run_on("asyncio")(main)


@pytest.mark.usefixtures("no_groups")
def test_without_control_groups_one_process_cannot_map_much_more_than_it_may_use(tmp_path: Path) -> None:
    async def main() -> None:
        for memory, answer in (("64 MiB", "no memory"), ("512 MiB", "had it")):
            async with load_host_with_memory(tmp_path, memory) as host:
                assert await host.call("echo", {"how": "one", "mib": 200, "reply": True}) == answer

    run_on("asyncio")(main)


IN_SOCKETS = {"how": "sockets", "mib": 24}


@pytest.mark.skipif(limits_state() != cgroup.V1_STATE, reason="needs control groups of version 1")
@pytest.mark.parametrize(
    ("memory", "seconds", "killed"),
    [("64 MiB", 0.05, True), ("64 MiB", 3600.0, False), ("1 GiB", 0.05, False)],
    ids=["looked at", "not looked at", "allowed"],
)
def test_data_in_unaccepted_connections_is_found_although_control_groups_miss_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, seconds: float, killed: bool
) -> None:
    monkeypatch.setattr(watch_module, "MEMORY_SECONDS", seconds)

    async def main() -> None:
        async with load_host_with_memory(tmp_path, memory) as host:
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

"""Nothing outlives its host or its child: the marks, the helper's life, and hosts that died."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugbay.process import warden, warden_main
from plugbay.process.warden import Warden, sweep_orphans
from tests.process.churn import SCRIPTS
from tests.process.doomed_host import CHILDREN
from tests.process.helpers import ROOT, SHELL, Run, carrying, detached, exists, open_fds, open_spawner, spawn
from tests.support.patience import PATIENCE, until, until_blocking


@pytest.fixture
def only_sweeper() -> Iterator[None]:
    """One such test at a time on this machine: each sweeps the orphans of all."""
    with open(Path(tempfile.gettempdir()) / f"plugbay-test-sweep-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def doomed_host(loop: str = "asyncio") -> Iterator[tuple[subprocess.Popen[bytes], int, str]]:
    """A host with twenty children; its process, its helper's pid, and the mark of all it started."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.process.doomed_host", loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=env) as process:
        try:
            assert process.stdout is not None
            helper, mark = process.stdout.readline().split()
            yield process, int(helper), mark.decode()
        finally:
            process.kill()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_host_that_is_killed_leaves_nothing_behind(loop: str) -> None:
    with doomed_host(loop) as (host, helper, mark):
        assert len(carrying(mark)) >= CHILDREN
        host.kill()
        until_blocking(lambda: not carrying(mark))
        until_blocking(lambda: not exists(helper))


@pytest.mark.alone
@pytest.mark.usefixtures("only_sweeper")
def test_without_the_helper_a_killed_host_would_leave_its_detached_children() -> None:
    with doomed_host() as (host, helper, mark):
        _kill_host_and_helper(host, helper)
        detached = CHILDREN // len(SCRIPTS)
        # Direct children see the end of their stdin and leave; what left their groups has no reason to.
        assert len(carrying(mark)) >= detached
        sweep_orphans()
        assert not carrying(mark)


@pytest.mark.alone
@pytest.mark.usefixtures("only_sweeper")
def test_orphans_of_dead_hosts_are_swept_and_children_of_living_hosts_are_not(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            with doomed_host() as (host, helper, mark):
                await asyncio.to_thread(sweep_orphans)
                assert len(carrying(mark)) >= CHILDREN
                _kill_host_and_helper(host, helper)
                assert await asyncio.to_thread(sweep_orphans) >= CHILDREN // len(SCRIPTS)
                await until(lambda: not carrying(mark))
            assert exists(child.pid)
            assert child.exit is None

    run(main())


def _kill_host_and_helper(host: subprocess.Popen[bytes], helper: int) -> None:
    host.send_signal(signal.SIGSTOP)  # so that it does not bring its helper back
    os.kill(helper, signal.SIGKILL)
    until_blocking(lambda: not exists(helper))
    host.kill()
    host.wait(PATIENCE)


@pytest.mark.alone
@pytest.mark.usefixtures("only_sweeper")
@pytest.mark.parametrize("mark", ["", "nonsense", "1.2", "1.2.3.4", "x.1.0-t", "1.1.fffff-t"])
def test_a_mark_that_says_nothing_here_is_left_alone(mark: str) -> None:
    """Among them a dead host of another pid namespace: its pid means nothing in this one."""
    with subprocess.Popen(["/bin/sleep", "600"], env={"PLUGBAY_HOST": mark}) as process:
        sweep_orphans()
        assert process.poll() is None
        process.kill()


@pytest.mark.alone
@pytest.mark.usefixtures("only_sweeper")
def test_a_dead_host_of_this_namespace_is_recognised() -> None:
    """The positive control of the test above: same shape, but this namespace and a start time long gone."""
    namespace = warden_main.pid_namespace()
    mark = f"{os.getpid()}.1.{namespace:x}-t"
    with subprocess.Popen(["/bin/sleep", "600"], env={"PLUGBAY_HOST": mark}) as process:
        assert sweep_orphans() >= 1
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_the_mark_names_this_very_process() -> None:
    pid, started, token = Warden().mark.split(".")
    assert int(pid) == os.getpid()
    assert started == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert token != Warden().mark.split(".")[2]


def test_every_child_carries_the_marks(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat", env={"PLUGBAY_CHILD": "forged"})
            path = Path(f"/proc/{child.pid}/environ")
            await until(lambda: path.read_bytes() != b"")
            environ = path.read_bytes().split(b"\0")
            assert f"PLUGBAY_HOST={spawner.warden.mark}".encode() in environ
            assert f"PLUGBAY_CHILD={child.token}".encode() in environ
            assert b"PLUGBAY_CHILD=forged" not in environ

    run(main())


def test_the_helper_starts_with_the_first_child_and_ends_with_the_spawner(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            assert spawner.warden.pid is None
            await spawn(spawner, "/bin/cat")
            helper = spawner.warden.pid
            assert helper is not None
            await spawn(spawner, "/bin/cat")
            assert spawner.warden.pid == helper
        assert not exists(helper)
        assert spawner.warden.pid is None

    run(main())


def test_the_helper_has_nothing_it_does_not_need(run: Run) -> None:
    async def main() -> None:
        canary = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(canary, True)
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "exit 0")
            await child.wait(PATIENCE)
            assert await spawner.swept(PATIENCE)  # it has answered, so it has closed what starting had opened
            helper = Path(f"/proc/{spawner.warden.pid}")
            assert (helper / "environ").read_bytes() == b"LC_ALL=C.UTF-8\0"
            assert set(os.listdir(helper / "fd")) == {"0", "1", "2", "3"}
            assert os.readlink(helper / "fd" / "3") == "anon_inode:[pidfd]"
            assert os.readlink(helper / "cwd") == "/"
            assert os.getsid(int(helper.name)) == int(helper.name)
        os.close(canary)

    run(main())


def test_descendants_that_left_the_group_are_swept_and_counted(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child, escaped = await detached(spawner)
            assert len(escaped) == 1
            child.kill()
            await child.wait(PATIENCE)
            assert await spawner.swept(PATIENCE)
            assert not any(map(exists, escaped))
            assert spawner.survivors_killed == 1

    run(main())


def test_without_the_sweep_they_would_stay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            monkeypatch.setattr(Warden, "sweep", lambda self, token: None)
            child, escaped = await detached(spawner)
            child.kill()
            await child.wait(PATIENCE)
            assert all(map(exists, escaped))
        await until(lambda: not any(map(exists, escaped)))

    run(main())


def test_a_helper_that_was_killed_is_brought_back_and_finishes_the_work(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child, escaped = await detached(spawner)
            first = spawner.warden.pid
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            child.kill()
            await child.wait(PATIENCE)
            assert not await spawner.swept(0.05)
            os.kill(first, signal.SIGKILL)
            assert await spawner.swept(PATIENCE)
            assert not any(map(exists, escaped))
            assert spawner.warden.pid not in (None, first)

    run(main())


def test_a_helper_that_is_brought_back_knows_until_when_children_may_live(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            spawner.warden.live_until(warden_main.boot_time() + 3600)
            child = await spawn(spawner, "/bin/cat")
            first = spawner.warden.pid
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            spawner.warden.live_until(warden_main.boot_time())
            os.kill(first, signal.SIGKILL)
            assert await child.wait(PATIENCE) is not None
            assert spawner.warden.pid not in (None, first)

    run(main())


def test_a_helper_that_cannot_be_started_again_is_tried_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            await spawn(spawner, "/bin/cat")
            helper = spawner.warden.pid
            assert helper is not None
            attempts: list[int] = []

            def broken() -> str:
                attempts.append(1)
                return "/no/such/python"

            monkeypatch.setattr(warden, "_interpreter", broken)
            os.kill(helper, signal.SIGKILL)
            await until(lambda: len(attempts) >= 2)
            monkeypatch.undo()
            await until(lambda: spawner.warden.pid is not None)

    run(main())


def test_a_thousand_requests_while_the_helper_sleeps_are_not_lost(run: Run) -> None:
    """More than its pipe holds, so some of them wait in the host."""

    async def main() -> None:
        async with open_spawner() as spawner:
            await spawn(spawner, "/bin/cat")
            helper = spawner.warden.pid
            assert helper is not None
            os.kill(helper, signal.SIGSTOP)
            for number in range(5000):
                spawner.warden.sweep(f"{number:016x}")
            os.kill(helper, signal.SIGCONT)
            assert await spawner.swept(PATIENCE)

    run(main())


def test_a_stream_of_children_is_told_in_few_messages(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            await spawn(spawner, "/bin/cat")
            helper = spawner.warden._helper
            assert helper is not None
            await until(lambda: not spawner.warden._told_of_starts)
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            real, helper._stdin = helper._stdin, theirs
            try:
                spawner.warden.starting()
                assert os.read(ours, 100) == b"start\n", "before the child exists"
                for token in ("a", "b"):
                    spawner.warden.started()
                    spawner.warden.sweep(token)
                    spawner.warden.starting()
                spawner.warden.started()
                with pytest.raises(BlockingIOError):
                    os.read(ours, 100)
                await until(lambda: select.select([ours], [], [], 0)[0] == [ours])
                assert os.read(ours, 100) == b"sweep a\nsweep b\nstarted\n"
            finally:
                helper._stdin = real
                os.close(ours)
                os.close(theirs)
                spawner.warden._swept("a", 0)
                spawner.warden._swept("b", 0)

    run(main())


def test_a_frozen_application_does_not_run_itself_as_its_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "python" in os.path.basename(warden._interpreter())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="python3"):
        warden._interpreter()


def test_where_there_is_no_proc_there_is_no_helper_and_nothing_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warden, "supported", lambda: False)

    async def main() -> None:
        before = open_fds()
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "exit 0")
            assert await child.wait(PATIENCE) is not None
            assert await spawner.swept(PATIENCE)
            assert spawner.warden.pid is None
            child.close()
        assert open_fds() == before

    run(main())
    assert sweep_orphans() == 0


CLEAN_UP = """
import asyncio, os, subprocess, sys
from pathlib import Path
from plugbay.process import warden_main
from plugbay.process.child import Spawner
from plugbay.process.command import Launch

async def main(clean_up):
    spawner = Spawner(clean_up=clean_up)
    child = await spawner.spawn(Launch(("/bin/true",), Path("/")), 60)
    await child.wait(60)
    await spawner.close()

mark = f"999999.1.{warden_main.pid_namespace():x}-test"
orphan = subprocess.Popen(["sleep", "600"], env={"PLUGBAY_HOST": mark})
asyncio.run(main(False))
print(orphan.poll())
asyncio.run(main(True))
print(orphan.wait(60))
"""


def test_a_host_cleans_up_after_one_that_was_killed_together_with_its_warden() -> None:
    """In a pid namespace of its own, so that nothing of anybody else is touched; without `clean_up` it lives on."""
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        CLEAN_UP,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.split() == ["None", "-9"], done.stderr

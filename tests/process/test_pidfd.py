"""Learning of an exit with a pidfd, and without one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from plugbay.process import pidfd
from plugbay.process.status import ExitStatus
from tests.process.helpers import Run, open_fds, threads
from tests.support.patience import PATIENCE, until


@pytest.fixture(params=["pidfd", "timer"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test with pidfds, and as if the system had none."""
    monkeypatch.setattr(pidfd, "AVAILABLE", request.param == "pidfd")
    return str(request.param)


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Pids to be killed and collected after the test, if they still are ours."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        pidfd.signal_group(pid, signal.SIGKILL)
        if pidfd.reap(pid) is None:
            os.waitpid(pid, 0)


def start(started: list[int], *argv: str) -> int:
    process = subprocess.Popen(argv, start_new_session=True)
    process.returncode = 0
    started.append(process.pid)
    return process.pid


def test_an_exit_is_reported_once_and_leaves_the_status_to_be_collected(run: Run, way: str, started: list[int]) -> None:
    async def main() -> None:
        calls: list[ExitStatus | None] = []
        pid = start(started, "/bin/sh", "-c", "exit 7")
        pidfd.watch_exit(asyncio.get_running_loop(), pid, lambda: calls.append(pidfd.reap(pid)))
        await until(lambda: bool(calls))
        assert calls == [ExitStatus(code=7)]

    run(main())


def test_a_process_that_ended_before_the_watch_is_reported(run: Run, way: str, started: list[int]) -> None:
    async def main() -> None:
        calls: list[bool] = []
        pid = start(started, "/bin/true")
        await until(lambda: pidfd.has_ended(pid))
        pidfd.watch_exit(asyncio.get_running_loop(), pid, lambda: calls.append(True))
        await until(lambda: calls == [True])

    run(main())


def test_a_status_that_something_else_collected_is_still_an_exit(run: Run, way: str) -> None:
    async def main() -> None:
        calls: list[ExitStatus | None] = []
        process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
        pid = process.pid
        pidfd.watch_exit(asyncio.get_running_loop(), pid, lambda: calls.append(pidfd.reap(pid)))
        process.kill()
        process.communicate()
        await until(lambda: bool(calls))
        assert calls == [ExitStatus()]
        assert not pidfd.has_ended(pid)

    run(main())


def test_a_cancelled_watch_says_nothing_and_gives_its_descriptor_back(run: Run, way: str, started: list[int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: list[str] = []
        first, second = start(started, "/bin/cat"), start(started, "/bin/cat")
        before = open_fds()
        watch = pidfd.watch_exit(loop, first, lambda: calls.append("first"))
        assert open_fds() - before == (1 if way == "pidfd" else 0)
        pidfd.watch_exit(loop, second, lambda: calls.append("second"))
        watch.cancel()
        watch.cancel()
        os.kill(first, signal.SIGKILL)
        await until(lambda: pidfd.has_ended(first))
        os.kill(second, signal.SIGKILL)
        await until(lambda: calls == ["second"])
        assert open_fds() == before

    run(main())


def test_no_way_needs_a_thread(run: Run, way: str, started: list[int]) -> None:
    async def main() -> None:
        before = threads()
        watches = [pidfd.watch_exit(asyncio.get_running_loop(), start(started, "/bin/cat"), print) for _ in range(20)]
        assert threads() == before
        for watch in watches:
            watch.cancel()

    run(main())


def test_a_callback_that_raises_does_not_silence_the_others(run: Run, way: str, started: list[int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[object] = []
        calls: list[bool] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))

        def fail() -> None:
            raise RuntimeError("on purpose")

        pids = [start(started, "/bin/cat") for _ in range(3)]
        for pid, callback in zip(pids, (fail, lambda: calls.append(True), fail), strict=True):
            pidfd.watch_exit(loop, pid, callback)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: calls == [True] and len(complaints) == 2)

    run(main())


def test_a_kernel_without_pidfds_is_distinguished_from_a_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(code: int) -> None:
        def pidfd_open(pid: int) -> int:
            raise OSError(code, "no")

        monkeypatch.setattr(os, "pidfd_open", pidfd_open)

    refuse(38)
    assert pidfd.open_pidfd(1) is None
    refuse(24)
    with pytest.raises(OSError, match="no"):
        pidfd.open_pidfd(1)


def test_a_signal_reaches_the_whole_group(started: list[int]) -> None:
    pid = start(started, "/bin/cat", "/dev/zero")
    assert pidfd.signal_group(pid, 0)
    assert pidfd.signal_group(pid, signal.SIGSTOP)


def test_a_group_without_members_is_not_an_error() -> None:
    with subprocess.Popen(["/bin/true"], start_new_session=True) as process:
        process.wait(PATIENCE)
    assert not pidfd.signal_group(process.pid, signal.SIGTERM)


def test_a_group_that_may_not_be_signalled_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    assert not pidfd.signal_group(1, signal.SIGTERM)


def test_a_process_is_stopped_between_sigstop_and_sigcont_and_not_when_it_is_gone(run: Run, started: list[int]) -> None:
    async def main() -> None:
        pid = start(started, "/bin/sleep", "60")
        assert not pidfd.is_stopped(pid)
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: pidfd.is_stopped(pid))
        os.kill(pid, signal.SIGCONT)
        await until(lambda: not pidfd.is_stopped(pid))
        assert not pidfd.is_stopped(0)

    run(main())

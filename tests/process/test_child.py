"""Children from their start to after their end, on both loops, with real processes."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plugbay.process import pidfd, usage
from plugbay.process.child import THREADS, Child, Exit, Logs, Outcome, Spawner, Starts
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.launch import StartedProcess
from plugbay.process.sandbox.jail import Jail
from plugbay.process.sandbox.launcher import Sandbox
from plugbay.process.sandbox.policy import Policy
from plugbay.process.status import ExitStatus, OutOfMemory
from plugbay.process.stderr import LOG_BURST, LOG_RATE, LOG_RESUME, StderrDrain
from plugbay.process.warden import Warden
from tests.process.churn import SCRIPTS, churn, end_child
from tests.process.helpers import (
    ROOT,
    SHELL,
    Run,
    carrying,
    close_pipes,
    detached,
    exists,
    launch,
    open_fds,
    open_spawner,
    output_of,
    read_until,
    rss_kib,
    spawn,
    state,
    threads,
)
from tests.support.descriptors import many_descriptors
from tests.support.machine import AS_ROOT
from tests.support.patience import PATIENCE, until, until_blocking
from tests.support.tiers import exhaustive, first_alone

# Pipes.


def test_bytes_go_in_and_come_out(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            stdout, stdin = child.take_pipes()
            os.write(stdin, b"hello\n")
            assert await read_until(stdout) == b"hello\n"
            os.close(stdin)
            assert await child.wait(PATIENCE) == ExitStatus(code=0)
            os.close(stdout)

    run(main())


def test_what_was_written_before_the_exit_can_be_read_after_it(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "echo answer")
            assert await child.wait(PATIENCE) == ExitStatus(code=0)
            stdout, stdin = child.take_pipes()
            assert await read_until(stdout) == b"answer\n"
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_pipes_are_handed_out_once(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            close_pipes(child)
            with pytest.raises(RuntimeError, match="already taken"):
                child.take_pipes()

    run(main())


@pytest.mark.parametrize("how", ["close", "stop", "forgotten", "spawner"])
def test_pipes_that_were_not_taken_are_closed(run: Run, how: str) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            close_pipes(await spawn(spawner, "/bin/cat"))
            await until(lambda: not spawner.children)
            before = open_fds()
            child: Child | None = await spawn(spawner, *SHELL, "exit 0")
            assert child is not None
            await child.wait(PATIENCE)
            if how == "close":
                child.close()
                child.close()
            elif how == "stop":
                await child.stop(PATIENCE, PATIENCE)
            elif how == "forgotten":
                child = None  # the thread that started it may know it for a moment longer
                await until(lambda: gc.collect() >= 0 and open_fds() == before)
            if how != "spawner":
                assert open_fds() == before
        assert open_fds() < before

    run(main())  # The end of a process.


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 0", "exit code 0"), ("exit 3", "exit code 3"), ("kill -SEGV $$", "killed by SIGSEGV")],
)
def test_the_exit_says_how_it_ended(run: Run, script: str, words: str) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, script)
            assert child.label == "test"
            assert child.argv == (*SHELL, script)
            assert child.started <= asyncio.get_running_loop().time()
            status = await child.wait(PATIENCE)
            assert status is not None
            assert status.describe() == words
            assert child.exit == status
            assert child.pid not in spawner.children

    run(main())


@pytest.mark.parametrize(
    ("counts", "killed_by_host", "oom"),
    [
        ((4, 4), False, OutOfMemory.NO),
        ((4, 5), False, OutOfMemory.LIKELY),
        ((4, 5), True, OutOfMemory.NO),
        ((None, 5), False, OutOfMemory.NO),
        ((4, None), False, OutOfMemory.NO),
    ],
)
def test_a_process_that_was_killed_while_the_kernel_lacked_memory_was_probably_killed_for_it(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int | None, int | None],
    killed_by_host: bool,
    oom: OutOfMemory,
) -> None:
    told = iter(counts)
    monkeypatch.setattr(usage, "oom_kills", lambda: next(told))

    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            if killed_by_host:
                child.kill()
            else:
                os.kill(child.pid, signal.SIGKILL)
            assert await child.wait(PATIENCE) == ExitStatus(signal=signal.SIGKILL)
            assert child.oom is oom and bool(child.oom) is (oom is OutOfMemory.LIKELY)

    run(main())


def test_a_wait_that_ends_first_returns_none_and_leaves_the_child_alone(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            assert await child.wait(0.01) is None
            assert await child.wait(0) is None
            assert exists(child.pid)
            waiters = [asyncio.create_task(child.wait(None)) for _ in range(3)]
            cancelled = asyncio.create_task(child.wait(None))
            await asyncio.sleep(0)
            cancelled.cancel()
            child.kill()
            assert await asyncio.gather(*waiters) == [ExitStatus(signal=9)] * 3

    run(main())


def test_callbacks_run_once_each_also_when_they_come_late_or_one_raises(run: Run) -> None:
    async def main() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            seen: list[tuple[str, ExitStatus]] = []

            def fail(status: ExitStatus) -> None:
                raise RuntimeError("on purpose")

            child.on_exit(fail)
            child.on_exit(lambda status: seen.append(("early", status)))
            child.kill()
            await child.wait(PATIENCE)
            child.on_exit(lambda status: seen.append(("late", status)))
            await until(lambda: len(seen) == 2)
            assert seen == [("early", ExitStatus(signal=9)), ("late", ExitStatus(signal=9))]
            assert ["exit callback of test failed" in context["message"] for context in complaints] == [True]

    run(main())


def test_the_end_goes_in_order(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is killed while the dead child still holds its number; the sweep is last; all in one tick."""

    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "read line; exit 4")
            steps: list[object] = []

            def note(name: str, target: Any, attribute: str) -> None:
                original = getattr(target, attribute)

                def noted(*args: Any) -> Any:
                    steps.append(name)
                    return original(*args)

                monkeypatch.setattr(target, attribute, noted)

            note("kill group", pidfd, "signal_group")
            note("collect", pidfd, "reap")
            note("drain", StderrDrain, "drain_now")
            note("sweep", Warden, "sweep")
            child.on_exit(lambda status: steps.append(status))
            child.on_exit(lambda _: asyncio.get_running_loop().call_soon(steps.append, "next tick"))
            close_pipes(child)
            await until(lambda: "next tick" in steps)
            monkeypatch.undo()
            expected = ["kill group", "collect", "drain", ExitStatus(code=4), "sweep", "next tick"]
            assert steps == expected

    run(main())


def test_an_exit_status_taken_by_other_code_is_unknown_and_kills_no_group(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "read line")
            groups: list[int] = []
            monkeypatch.setattr(pidfd, "signal_group", lambda pid, number: groups.append(pid))
            close_pipes(child)
            os.waitpid(child.pid, 0)
            assert await child.wait(PATIENCE) == ExitStatus()
            assert groups == []

    run(main())


def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_exit(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child, escaped = await detached(spawner, "exit 3")
            stdout, stdin = child.take_pipes()
            holders: list[set[int]] = []
            child.on_exit(lambda _: holders.append(carrying(child.token)))
            os.write(stdin, b"go\n")
            assert await child.wait(PATIENCE) == ExitStatus(code=3)
            assert holders == [escaped], "the holder of the pipes should have been alive at that moment"
            os.close(stdout)
            os.close(stdin)

    run(main())  # Whole trees.


@pytest.mark.parametrize("end", ["killed", "stopped", "left"])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_nothing_of_a_tree_is_left(run: Run, kind: str, end: str) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, SCRIPTS[kind])
            stdout, stdin = child.take_pipes()
            await read_until(stdout)
            await until(lambda: len(carrying(child.token)) == (1 if kind == "direct" else 2))
            family = carrying(child.token)
            await end_child(child, end, stdin)
            assert await spawner.swept(PATIENCE)
            await until(lambda: not any(map(exists, family)))
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_stop_asks_first(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done")
            stdout, stdin = child.take_pipes()
            await read_until(stdout)
            assert await child.stop(PATIENCE, PATIENCE) == ExitStatus(code=5)
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_a_child_that_ignores_the_request_is_killed(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "trap '' TERM; echo up; while :; do sleep 1; done")
            stdout, stdin = child.take_pipes()
            await read_until(stdout)
            child.terminate()
            assert await child.wait(0.1) is None
            assert await child.stop(0.05, PATIENCE) == ExitStatus(signal=signal.SIGKILL)
            child.kill()
            child.terminate()
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_a_stopped_process_is_killed_all_the_same(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, "/bin/cat")
            os.kill(child.pid, signal.SIGSTOP)
            await until(lambda: state(child.pid) == "T")
            assert await child.stop(0.05, PATIENCE) == ExitStatus(signal=signal.SIGKILL)

    run(main())


def test_a_stop_that_is_cancelled_kills(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, "trap '' TERM; echo up; while :; do sleep 1; done")
            stopping = asyncio.create_task(child.stop(PATIENCE, PATIENCE))
            await asyncio.sleep(0)
            stopping.cancel()
            assert await child.wait(PATIENCE) is not None

    run(main())  # Stderr.


FLOOD = "head -c %d /dev/zero | tr '\\0' x >&2; echo up; read line"


def test_a_mebibyte_of_stderr_before_the_first_answer_does_not_block(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawn(spawner, *SHELL, FLOOD % (1 << 20))
            stdout, stdin = child.take_pipes()
            assert await read_until(stdout) == b"up\n"
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_without_draining_it_would_block() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*SHELL, FLOOD % (1 << 20)], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 0.5)[0] == []
        process.kill()
        process.communicate()


def _note_tail(child: Child, tails: list[list[str]], status: ExitStatus) -> None:
    tails.append(child.stderr.tail())


def test_the_last_lines_are_in_the_tail_when_the_exit_is_reported(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            for _ in range(20):
                child = await spawn(spawner, *SHELL, "echo one >&2; printf 'last words' >&2; exit 1")
                tails: list[list[str]] = []
                child.on_exit(partial(_note_tail, child, tails))
                await until(partial(bool, tails))
                assert tails == [["one", "last words"]]
                child.close()

    run(main())


STDERR_FLOOD = 20 << 20
"""Bytes; many times what the log takes at once."""


def test_a_flood_of_stderr_keeps_memory_and_log_bounded(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner(tmp_path / "logs") as spawner:
            child = await spawn(spawner, *SHELL, f"echo warm >&2; read go; yes 0123456789 | head -c {STDERR_FLOOD} >&2")
            stdout, stdin = child.take_pipes()
            await until(lambda: child.stderr.tail() == ["warm"])
            memory, began = rss_kib(), time.monotonic()
            os.write(stdin, b"go\n")
            assert await child.wait(PATIENCE) == ExitStatus(code=0)
            seconds = time.monotonic() - began
            assert rss_kib() - memory < 8 * 1024
            log = tmp_path / "logs" / "test.log"
            # At the end of a child its newest lines are written whatever the rate.
            assert log.stat().st_size <= LOG_BURST + seconds * LOG_RATE + LOG_RESUME + 1024
            assert "lines dropped" in log.read_text()
            assert child.stderr.tail(1) == ["0123456789"[: STDERR_FLOOD % 11]]
            os.close(stdout)
            os.close(stdin)

    run(main())


def test_a_flood_of_empty_lines_does_not_stall_the_loop(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner(tmp_path) as spawner:
            child = await spawn(spawner, *SHELL, "exec tr '\\0' '\\n' < /dev/zero >&2")
            await until(lambda: len(child.stderr.tail(500)) == 200)
            for _ in range(50):  # it never ends, so a loop that read to its end would never turn
                await asyncio.sleep(0)
            child.kill()
            await child.wait(PATIENCE)

    run(main())


@pytest.mark.parametrize("log_dir", ["/dev/full", "/proc/no/such"])
def test_a_log_that_cannot_be_written_changes_nothing(run: Run, log_dir: str) -> None:
    async def main() -> None:
        async with open_spawner(Path(log_dir)) as spawner:
            child = await spawn(spawner, *SHELL, "echo hello >&2")
            assert await child.wait(PATIENCE) == ExitStatus(code=0)
            assert child.stderr.tail() == ["hello"]

    run(main())


def test_children_of_one_plugin_share_its_log(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner(tmp_path) as spawner:
            for word in ("first", "second"):
                await (await spawn(spawner, *SHELL, f"echo {word} >&2")).wait(PATIENCE)
            assert [line.split()[-1] for line in (tmp_path / "test.log").read_text().splitlines()] == [
                "first",
                "second",
            ]

    run(main())  # Starts that fail or are abandoned.


class Gate:
    """A Popen that waits at its door until it is let through; counts who is inside."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.waiting = 0

    def popen(self, *args: Any, **options: Any) -> subprocess.Popen[bytes]:
        self.waiting += 1
        self.entered.release()
        assert self.open.wait(PATIENCE)
        return subprocess.Popen(*args, **options)


async def _nothing_left(spawner: Spawner, before: int) -> None:
    await until(lambda: not spawner.children and not carrying(spawner.warden.mark))
    # What an earlier child had may have been counted `before` and is closed only now.
    await until(lambda: open_fds() <= before)


async def _warm(spawner: Spawner, gate: Gate) -> int:
    """Bring up the helper; how many descriptors are open then."""
    gate.open.set()
    child = await spawn(spawner, "/bin/true")
    await child.wait(PATIENCE)
    child.close()
    gate.open.clear()
    return open_fds()


def test_a_start_that_takes_too_long_fails_and_leaves_nothing(run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        async with open_spawner(popen=gate.popen) as spawner:
            before = await _warm(spawner, gate)
            with pytest.raises(LaunchFailed, match=r"/bin/cat did not start within 0\.05 s") as caught:
                await spawner.spawn(launch("/bin/cat"), 0.05)
            assert caught.value.detail["command"] == ["/bin/cat"]
            gate.open.set()
            await _nothing_left(spawner, before)

    run(main())


@pytest.mark.parametrize("moment", ["before it exists", "when it exists"])
def test_a_cancelled_start_leaves_nothing(run: Run, moment: str) -> None:
    async def main() -> None:
        gate = Gate()
        async with open_spawner(popen=gate.popen) as spawner:
            before = await _warm(spawner, gate)
            task = asyncio.create_task(spawner.spawn(launch("/bin/cat"), PATIENCE))
            await until(lambda: gate.waiting == 2)
            if moment == "before it exists":
                task.cancel()
                gate.open.set()
            else:
                gate.open.set()
                # Without giving the loop a turn: the child exists, and its arrival comes before the cancel.
                while not carrying(spawner.warden.mark):
                    pass
                asyncio.get_running_loop().call_later(0.01, task.cancel)
            result = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result[0], Child):
                result[0].kill()
                result[0].close()
            await _nothing_left(spawner, before)

    run(main())


def test_a_start_whose_loop_is_gone_leaves_nothing(run: Run) -> None:
    gate = Gate()
    spawners: list[Spawner] = []

    async def main() -> None:
        spawner = Spawner(popen=gate.popen)
        spawners.append(spawner)
        asyncio.get_running_loop().call_later(0.05, gate.entered.acquire)
        with pytest.raises(LaunchFailed):
            await spawner.spawn(launch("/bin/cat"), 0.1)
        await spawner.warden.stop()

    run(main())
    gate.open.set()
    spawners[0]._starts.shutdown(wait=True)
    assert carrying(spawners[0].warden.mark) == set()


def test_no_more_starts_at_a_time_than_threads_and_waiting_does_not_count(run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        async with open_spawner(threads=2, popen=gate.popen) as spawner:
            tasks = [asyncio.create_task(spawner.spawn(launch("/bin/cat"), 5)) for _ in range(6)]
            await until(lambda: gate.waiting == 2)
            assert not any(task.done() for task in tasks)
            gate.open.set()
            children = await asyncio.gather(*tasks)
            assert gate.waiting == 6
            assert len(spawner.children) == 6 == len({child.pid for child in children})

    run(main())


def test_the_loop_runs_while_a_start_is_stuck(run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        async with open_spawner(popen=gate.popen) as spawner:
            task = asyncio.create_task(spawner.spawn(launch("/bin/cat"), PATIENCE))
            await until(lambda: gate.waiting == 1)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert gate.waiting == 1 and not task.done()
            gate.open.set()
            close_pipes(await task)

    run(main())


@pytest.mark.parametrize("argv", ["/no/such/program", "/", "/etc/passwd"])
def test_a_command_that_cannot_start_leaves_nothing(run: Run, argv: str) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            with pytest.raises(LaunchFailed):
                await spawn(spawner, argv)
            before = open_fds()
            for _ in range(20):
                with pytest.raises(LaunchFailed) as caught:
                    await spawn(spawner, argv)
                assert argv in caught.value.message
            await _nothing_left(spawner, before)

    run(main())


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """Only `spare` descriptors above those that are open may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_child_that_cannot_be_watched_is_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, loop: object, fd: int, callback: object) -> None:
        os.close(fd)
        raise OSError(28, "too many watches")

    async def main() -> None:
        async with open_spawner() as spawner:
            await (await spawn(spawner, "/bin/true")).stop(PATIENCE, PATIENCE)
            before = open_fds()
            with monkeypatch.context() as patch:
                patch.setattr(pidfd._PidfdWatch, "__init__", refuse)
                with pytest.raises(LaunchFailed, match=r"cannot be watched: .*too many watches"):
                    await spawn(spawner, "/bin/cat")
            await _nothing_left(spawner, before)

    run(main())


def test_when_descriptors_run_out_starts_fail_cleanly_and_work_again_later(run: Run) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            close_pipes(await spawn(spawner, "/bin/cat"))
            await until(lambda: not spawner.children)
            before = open_fds()
            children: list[Child] = []
            with few_descriptors(40), pytest.raises(LaunchFailed, match="too many open files"):
                while True:
                    children.append(await spawn(spawner, "/bin/cat"))
            assert len(children) > 3
            assert set(spawner.children) == {child.pid for child in children}
            for child in children:
                await child.stop(0, PATIENCE)
            await _nothing_left(spawner, before)
            close_pipes(await spawn(spawner, "/bin/cat"))

    run(main())


def test_without_a_helper_nothing_is_started(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Warden, loop: object) -> None:
        raise OSError(24, "Too many open files")

    async def main() -> None:
        async with open_spawner() as spawner:
            monkeypatch.setattr(Warden, "start", refuse)
            with pytest.raises(
                LaunchFailed, match=r"helper process that guards plugins cannot be started: .*too many open files"
            ):
                await spawn(spawner, "/bin/cat")

    run(main())  # The end of the spawner.


def test_close_leaves_no_process_descriptor_or_thread(run: Run) -> None:
    async def main() -> None:
        fds, running = open_fds(), threads()
        spawner = Spawner()
        children = [await spawn(spawner, *SHELL, SCRIPTS["detached"]) for _ in range(10)]
        ended = await spawn(spawner, *SHELL, "exit 0")
        await ended.wait(PATIENCE)
        helper = spawner.warden.pid
        assert helper is not None
        assert threads() > running
        await spawner.close()
        assert carrying(spawner.warden.mark) == set()
        assert not exists(helper)
        assert all(child.exit is not None for child in children)
        assert (open_fds(), threads()) == (fds, running)
        await spawner.close()
        with pytest.raises(LaunchFailed, match="stopping"):
            await spawn(spawner, "/bin/cat")

    run(main())


def test_close_ends_starts_that_are_on_their_way(run: Run) -> None:
    async def main() -> None:
        gate = Gate()
        spawner = Spawner(popen=gate.popen)
        tasks = [asyncio.create_task(spawner.spawn(launch("/bin/cat"), PATIENCE)) for _ in range(8)]
        await until(lambda: gate.waiting == 4)
        closing = asyncio.create_task(spawner.close())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, LaunchFailed) for result in results)
        gate.open.set()
        await closing
        assert gate.waiting == 4
        assert carrying(spawner.warden.mark) == set()

    run(main())


def test_a_spawner_that_started_nothing_closes_at_once(run: Run) -> None:
    async def main() -> None:
        await Spawner().close()

    run(main())  # Without pidfds.


def test_everything_works_with_the_timer_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pidfd, "AVAILABLE", False)

    async def main() -> None:
        async with open_spawner() as spawner:
            assert await output_of(spawner, *SHELL, "echo hello") == "hello\n"
            before = open_fds()
            child = await spawn(spawner, *SHELL, SCRIPTS["detached"])
            assert open_fds() - before == 3
            child.kill()
            assert await child.wait(PATIENCE) == ExitStatus(signal=9)
            assert await spawner.swept(PATIENCE)
            assert carrying(child.token) == set()

    run(main())  # Many.


@pytest.mark.parametrize("count", first_alone([100, 1000]))
def test_many_starts_and_ends_leave_nothing(run: Run, count: int) -> None:
    residue = run(churn(count))
    assert (residue.orphans, residue.children, residue.fds) == (0, 0, 0)
    assert residue.threads < THREADS
    assert residue.rss_kib < 2048
    assert residue.survivors_killed > 0


@exhaustive
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_five_hundred_idle_children_are_cheap_and_all_there(loop: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.process.scale", "500", loop]
    with many_descriptors(4096):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    measured = {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}
    assert measured["alive"] == 500
    assert measured["children_left"] == 0
    assert measured["kib_per_child"] <= 16
    assert measured["fds_per_child"] == 4
    assert measured["threads"] < THREADS


def test_a_confined_child_whose_network_cannot_be_served_is_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: object, loop: object, told: object) -> None:
        raise RuntimeError("no room for it")

    async def main() -> None:
        tmp_path.chmod(0o755)
        async with open_spawner() as spawner:
            confined = Launch(("/bin/cat",), tmp_path, label="p", policy=Policy(tmp_path))
            child = await spawner.spawn(confined, PATIENCE)
            assert child.exit is None
            await child.stop(0, PATIENCE)
            await until(lambda: not spawner.children)
            before = open_fds()
            with monkeypatch.context() as patch:
                patch.setattr(Jail, "serve", refuse)
                with pytest.raises(LaunchFailed, match=r"cannot get its network: no room for it"):
                    await spawner.spawn(confined, PATIENCE)
            await _nothing_left(spawner, before)

    run(main())


FORGETFUL = """
import asyncio, os, sys
from pathlib import Path
from plugbay.process.child import Spawner
from plugbay.process.command import Launch
from plugbay.process.sandbox.policy import Policy

async def main():
    spawner = Spawner()
    launch = Launch(("/bin/cat",), Path(sys.argv[1]), {"PATH": "/usr/bin:/bin"}, policy=Policy(Path(sys.argv[1])))
    children = [await spawner.spawn(launch, 60) for _ in range(2)]
    print(*(child.pid for child in children), flush=True)
    return spawner

spawner = asyncio.run(main())
if not os.fork():
    sys.exit()  # a forked copy leaves the children alone
os.wait()
print([Path(f"/proc/{pid}").exists() for pid in spawner.children])
"""


def test_a_program_that_never_closes_its_spawner_leaves_nothing_and_no_word(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORGETFUL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    pids, alive = done.stdout.splitlines()
    assert (done.returncode, done.stderr, alive) == (0, "", "[True, True]")
    until_blocking(lambda: not any(exists(int(pid)) for pid in pids.split()))


GONE = ExitStatus(code=3)


def test_callbacks_added_before_and_after_the_exit_are_called_once(run: Run) -> None:
    async def main() -> None:
        heard: list[tuple[str, ExitStatus]] = []
        exit = Exit(asyncio.get_running_loop(), "x")
        exit.add_callback(lambda status: heard.append(("before", status)))
        assert exit.status is None
        exit.set_status(GONE)
        assert heard == [("before", GONE)]
        exit.add_callback(lambda status: heard.append(("after", status)))
        assert len(heard) == 1
        await asyncio.sleep(0)
        assert heard == [("before", GONE), ("after", GONE)]
        assert await exit.wait(None) == GONE

    run(main())


def test_waiting_ends_with_the_end_or_with_the_time(run: Run) -> None:
    async def main() -> None:
        exit = Exit(asyncio.get_running_loop(), "x")
        assert await exit.wait(0.001) is None
        waiting = asyncio.create_task(exit.wait(PATIENCE))
        cancelled = asyncio.create_task(exit.wait(PATIENCE))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        exit.set_status(GONE)
        assert await waiting == GONE
        assert cancelled.cancelled()

    run(main())


def test_a_callback_that_fails_is_reported_and_does_not_silence_the_others(run: Run) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        heard: list[ExitStatus] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        exit = Exit(loop, "weather")
        exit.add_callback(lambda _: 1 / 0)
        exit.add_callback(heard.append)
        exit.set_status(GONE)
        assert heard == [GONE]
        assert [context["message"] for context in reported] == ["exit callback of weather failed"]

    run(main())


def test_a_label_keeps_its_log_and_two_labels_have_two(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "deep" / "logs")
    first = logs.of("a")
    assert first is not None
    assert first is logs.of("a")
    assert first is not logs.of("b")
    first.write([b"line"], "[1]")
    assert "line" in (tmp_path / "deep" / "logs" / "a.log").read_text()


def test_a_folder_that_was_cleaned_up_is_made_again(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "logs")
    logs.of("a")
    shutil.rmtree(tmp_path / "logs")
    logs.of("b")
    assert (tmp_path / "logs").is_dir()


def test_without_a_folder_there_is_no_log_and_a_bad_folder_is_no_error() -> None:
    assert Logs(None).of("a") is None
    assert Logs(Path("/dev/null/logs")).of("a") is not None


MARKS = {"PLUGBAY_HOST": "1.2.test-starts", "PLUGBAY_CHILD": "test-starts"}


@pytest.fixture(autouse=True)
def open_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)


async def outcome_of(starts: Starts, wanted: Launch, refusal: Exception | None = None) -> Outcome:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[Outcome] = loop.create_future()
    starts.submit(loop, wanted, MARKS, lambda: refusal, arrived.set_result)
    return await arrived


def test_a_start_arrives_in_the_loop_with_its_outcome(run: Run) -> None:
    async def main() -> None:
        starts = Starts(1, subprocess.Popen, Sandbox(), False)
        born = await outcome_of(starts, launch("/bin/cat"))
        assert isinstance(born, StartedProcess)
        born.discard()
        refusal = RuntimeError("not any more")
        assert await outcome_of(starts, launch("/bin/cat"), refusal) is refusal
        assert "does not exist" in str(await outcome_of(starts, launch("/no/such/program")))
        starts.shutdown(wait=True)

    run(main())


def test_what_is_not_confined_shares_the_mounts_of_the_host(run: Run, tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        name = threading.current_thread().name
        seen[name.rpartition("_")[0]] = os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/mnt")
        return subprocess.Popen(*args, **options)

    async def main() -> None:
        with closing(Sandbox()) as sandbox:
            starts = Starts(1, popen, sandbox, False)
            confined = Launch(("/bin/cat",), tmp_path, policy=Policy(tmp_path), label="starts")
            for wanted in (confined, launch("/bin/cat")):
                born = await outcome_of(starts, wanted)
                assert isinstance(born, StartedProcess)
                born.discard()
            starts.shutdown(wait=True)

    run(main())
    host = os.readlink("/proc/self/ns/mnt")
    assert seen["plugbay-spawn"] == host
    assert (seen["plugbay-confine"] != host) is AS_ROOT, "without root, bubblewrap alone makes the view"


def test_without_confined_starts_there_are_no_threads_for_them(run: Run) -> None:
    async def main() -> None:
        starts = Starts(1, subprocess.Popen, Sandbox(), True)
        born = await outcome_of(starts, launch("/bin/true"))
        assert isinstance(born, StartedProcess)
        born.discard()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("plugbay-confine")]
        starts.shutdown(wait=True)

    run(main())


def test_shutdown_waits_for_running_work_and_later_work_runs_at_once() -> None:
    starts = Starts(1, subprocess.Popen, Sandbox(), False)
    gate = threading.Event()
    done: list[str] = []

    def slow() -> None:
        gate.wait(PATIENCE)
        done.append("first")

    starts.run(slow)
    assert done == []
    gate.set()
    starts.shutdown(wait=True)
    starts.run(lambda: done.append("second"))
    assert done == ["first", "second"]


def test_a_queued_start_whose_loop_is_gone_leaves_nothing() -> None:
    starts = Starts(1, subprocess.Popen, Sandbox(), False)
    loop = asyncio.new_event_loop()
    loop.close()
    starts.submit(loop, launch("/bin/cat"), MARKS, lambda: None, lambda _: None)
    starts.shutdown(wait=True)
    assert not carrying(MARKS["PLUGBAY_HOST"])

"""One confined start through the spawner: what it may use up, its door, its end, and what is left when it fails."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from plugbay.process import pidfd
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch, LaunchFailed
from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.launch import start
from plugbay.process.sandbox import jail as module
from plugbay.process.sandbox.egress.decision import Decision
from plugbay.process.sandbox.jail import Reports, first_child, parent_of, status_of
from plugbay.process.sandbox.launcher import Sandbox
from plugbay.process.sandbox.network import Networks
from plugbay.process.sandbox.policy import Endpoint, Limits, Network, Policy, Reach
from plugbay.process.status import ExitStatus
from tests.process.helpers import Run, carrying, open_fds, open_spawner, read_until
from tests.process.sandbox.drivers import arguments, running
from tests.support.machine import needs_cgroups, needs_root
from tests.support.patience import PATIENCE, until, until_blocking
from tests.support.tiers import first_alone

MARK = f"PLUGBAY_HOST=1.2.test-cell-{os.getpid()}"


@pytest.fixture(autouse=True)
def open_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)


def confined(package: Path, *argv: str, network: Network | None = None, limits: Limits | None = None) -> Launch:
    policy = Policy(package, network=network or Network(), limits=limits or Limits())
    return Launch(argv, package, {"PATH": "/usr/bin:/bin"}, label="cell", policy=policy)


async def said(spawner: Spawner, launch: Launch) -> tuple[str, Child]:
    child = await spawner.spawn(launch, PATIENCE)
    stdout, stdin = child.take_pipes()
    os.close(stdin)
    text = (await read_until(stdout, b"\0never\0")).decode()
    os.close(stdout)
    await child.wait(PATIENCE)
    return text, child


def test_a_child_knows_that_it_is_confined_and_how_well_its_limits_hold(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawner.spawn(confined(tmp_path, "/bin/cat"), PATIENCE)
            assert child.confined
            assert child.limits_state == spawner.sandbox.limits_state != ""
            assert child.jail is not None
            assert child.jail.leader == first_child(first_child(child.pid)) != 0
            child.kill()
            assert await child.wait(PATIENCE) == ExitStatus(signal=9)
            assert child.jail.leader == 0
            child.close()
            plain = await spawner.spawn(Launch(("/bin/cat",), tmp_path), PATIENCE)
            assert (plain.confined, plain.limits_state, plain.jail) == (False, "", None)
            plain.kill()
            plain.close()

    run(main())


def test_bubblewrap_runs_as_the_plugins_user_and_the_starting_thread_is_root_again(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner(threads=1) as spawner:
            child = await spawner.spawn(confined(tmp_path, "/bin/cat"), PATIENCE)
            monitor = status_of(child.pid)
            tasks = [int(path.name) for path in Path("/proc/self/task").iterdir()]
            threads = [status_of(task) for task in tasks]
            assert {each["Uid"] for each in threads} == {status_of(os.getpid())["Uid"]}
            assert {each["CapEff"] for each in threads} == {status_of(os.getpid())["CapEff"]}
            assert monitor["CapEff"] == b"0" * 16
            if os.geteuid() == 0:
                (user,) = {*monitor["Uid"].split(), *monitor["Gid"].split()}
                assert int(user) >= spawner.sandbox.settings.uids[0]
                assert (monitor["Groups"], monitor["NoNewPrivs"], monitor["CapBnd"]) == (b"", b"1", b"0" * 16)
                assert {each["NoNewPrivs"] for each in threads} == {b"0", b"1"}, "one of them starts what is confined"
            child.kill()
            child.close()

    run(main())


def groups_of(pid: int) -> set[str]:
    """The lines of its control groups that were made for a cell."""
    return {line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.endswith("-cell")}


@needs_cgroups
def test_bubblewrap_and_the_program_are_in_every_control_group_and_no_thread_of_the_host_is(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawner.spawn(confined(tmp_path, "/bin/cat"), PATIENCE)
            first = first_child(child.pid)
            (name,) = {line.rpartition("/")[2] for line in groups_of(child.pid)}
            folders = [where for where, below, _ in os.walk("/sys/fs/cgroup") if name in below]
            assert len(groups_of(child.pid)) == len(folders) > 0
            assert groups_of(child.pid) == groups_of(first) == groups_of(first_child(first))
            assert not any(groups_of(int(task)) for task in os.listdir("/proc/self/task"))
            child.kill()
            child.close()

    run(main())


def limited_by(pid: int) -> set[str]:
    """The groups that limit a process. Version 2 beside version 1 limits nothing: it only helps to end a group."""
    lines = groups_of(pid)
    return {line for line in lines if not line.startswith("0::")} or lines


@needs_cgroups
def test_bubblewrap_is_in_its_groups_before_there_is_a_program(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the program starts is a descendant of the first process, so it is born in the same groups."""
    seen: list[tuple[int, set[str], set[str]]] = []
    release = Reports.release
    jails: list[module.Jail] = []
    admit = module.Jail._admit

    def admitting(jail: module.Jail, *arguments: Any) -> int:
        jails.append(jail)
        return admit(jail, *arguments)

    def releasing(reports: Reports) -> None:
        first = jails[-1].first
        seen.append((first_child(first), limited_by(parent_of(first)), limited_by(first)))
        release(reports)

    monkeypatch.setattr(module.Jail, "_admit", admitting)
    monkeypatch.setattr(Reports, "release", releasing)

    async def main() -> None:
        async with open_spawner() as spawner:
            child = await spawner.spawn(confined(tmp_path, "/bin/cat"), PATIENCE)
            ((program, monitor, first),) = seen
            assert program == 0, "the program was there before the permission to run it"
            assert monitor == first == limited_by(jails[-1].leader) != set()
            child.kill()
            child.close()

    run(main())


BOMB = "for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sh -c 'sleep 1000; :' \"$0\" &); done; sleep 1000; :"
"""Forks twice at once, into a session of its own, as often as its limit allows; all of them stay."""


@needs_cgroups
@pytest.mark.parametrize("rounds", first_alone([2, 100]))
def test_a_program_that_forks_at_once_has_no_process_outside_its_groups(run: Run, tmp_path: Path, rounds: int) -> None:
    async def main() -> None:
        async with open_spawner() as spawner:
            for _ in range(rounds):
                mark = f"bomb-{random.randrange(10**12)}"
                launch = confined(tmp_path, "/bin/sh", "-c", BOMB, mark, limits=Limits(processes=48))
                child = await spawner.spawn(launch, PATIENCE)
                expected = limited_by(child.pid)
                assert expected
                most = 0

                def crowded(mark: str = mark, expected: set[str] = expected) -> bool:
                    nonlocal most
                    pids = running(mark)
                    found = [groups for pid in pids if (groups := still_limited_by(pid)) is not None]
                    assert all(groups == expected for groups in found), found
                    most = max(most, len(found))
                    return most >= 10

                await until(crowded)
                child.kill()
                await child.wait(PATIENCE)
                child.close()
                await until(lambda mark=mark: not running(mark))  # type: ignore[misc]

    run(main())


def still_limited_by(pid: int) -> set[str] | None:
    """None: the process ends, or has ended. The kernel takes it out of its groups when its memory is gone, and with
    that its command line, but before it is a zombie.
    """
    try:
        groups = limited_by(pid)
    except OSError:
        return None
    return groups if arguments(pid) else None


def test_an_unconfined_program_that_forks_at_once_is_in_no_group(run: Run, tmp_path: Path) -> None:
    """The positive control of the search: it sees processes outside of groups."""

    async def main() -> None:
        async with open_spawner() as spawner:
            mark = f"bomb-{random.randrange(10**12)}"
            argv = ("/bin/sh", "-c", BOMB, mark)
            child = await spawner.spawn(Launch(argv, tmp_path, {"PATH": "/usr/bin:/bin"}), PATIENCE)
            await until(lambda: len(running(mark)) >= 10)
            found = [groups for pid in running(mark) if (groups := still_limited_by(pid)) is not None]
            child.kill()
            child.close()
            for pid in running(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert found and not any(found)

    run(main())


def test_the_limits_of_one_process_hold_before_its_first_instruction(run: Run, tmp_path: Path) -> None:
    script = "ulimit -n; ulimit -f; ulimit -c; ulimit -p; ulimit -Hn"
    limits = Limits(open_files=77, file_size=512 * 1000, processes=9)

    async def main() -> None:
        async with open_spawner() as spawner:
            text, _ = await said(spawner, confined(tmp_path, "/bin/sh", "-c", script, limits=limits))
            assert text.split() == ["77", "1000", "0", "10", "77"]

    run(main())


def network_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def test_each_program_has_a_network_of_its_own_and_no_thread_of_the_host_is_in_one(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_spawner(threads=1) as spawner:
            children = [await spawner.spawn(confined(tmp_path, "/bin/cat"), PATIENCE) for _ in range(3)]
            found = {network_of(first_child(child.pid)) for child in children}
            host = {os.readlink(f"/proc/self/task/{task}/ns/net") for task in os.listdir("/proc/self/task")}
            assert len(found | {network_of(os.getpid())}) == 4
            assert not found & host
            assert len(spawner.sandbox.networks._waiting) == (os.geteuid() == 0)
            for child in children:
                child.kill()
                child.close()
        assert spawner.sandbox.networks._waiting == []

    run(main())


@needs_root
def test_a_program_that_would_be_in_the_network_of_the_host_is_not_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[Reports] = []
    release = Reports.release

    def note(reports: Reports) -> None:
        released.append(reports)
        release(reports)

    monkeypatch.setattr(Reports, "release", note)

    async def main() -> None:
        async with open_spawner() as spawner:
            await said(spawner, confined(tmp_path, "/bin/true"))
            assert len(released) == 1
            monkeypatch.setattr(Networks, "enter_new", lambda _: nullcontext())
            with pytest.raises(SandboxUnavailable, match="the network of the host"):
                await spawner.spawn(confined(tmp_path, "/bin/true"), PATIENCE)
            assert len(released) == 1

    run(main())


def test_tmp_is_as_large_as_the_policy_says(run: Run, tmp_path: Path) -> None:
    script = (
        "head -c 300000 /dev/zero > /tmp/x; head -c 300000 /dev/zero > /dev/shm/x; wc -c < /tmp/x; wc -c < /dev/shm/x"
    )

    async def main() -> None:
        async with open_spawner() as spawner:
            for size, held in ((65536, "65536"), (2**20, "300000")):
                launch = confined(tmp_path, "/bin/sh", "-c", script, limits=Limits(tmp=size))
                assert (await said(spawner, launch))[0].split() == [held, held]

    run(main())


CALLS = """
import socket
def ask(text):
    with socket.create_connection(("127.0.0.1", 3128), 5) as door:
        door.sendall(text.encode())
        return door.recv(100).split(b"\\r\\n")[0].decode()
try:
    print(ask("CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n"))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("network", "answers", "told"),
    [
        (Network(), ("PermissionError", "ConnectionRefusedError"), 0),
        (Network(Reach.LISTED, (Endpoint("api.example", 443),)), ("HTTP/1.1 403 ",), 1),
    ],
)
def test_a_plugin_with_a_granted_network_has_a_proxy(
    run: Run, tmp_path: Path, network: Network, answers: tuple[str, ...], told: int
) -> None:
    async def main() -> None:
        heard: list[Decision] = []
        async with open_spawner(on_egress=heard.append) as spawner:
            launch = confined(tmp_path, "/usr/bin/python3", "-I", "-c", CALLS, network=network)
            text, child = await said(spawner, launch)
            assert text.strip(), child.stderr.tail()
            assert text.startswith(answers)
            assert [(verdict.host, verdict.allowed) for verdict in heard] == [("other.example", False)] * told
            assert child.jail is not None
            assert child.jail.proxy is None

    run(main())


def test_starts_and_ends_leave_no_process_descriptor_or_group(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        network = Network(Reach.LISTED, (Endpoint("api.example", 443),))
        async with open_spawner() as spawner:
            await said(spawner, confined(tmp_path, "/bin/true", network=network))
            assert await spawner.swept(PATIENCE)
            before = open_fds()
            for _ in range(5):
                child = await spawner.spawn(confined(tmp_path, "/bin/cat", network=network), PATIENCE)
                child.kill()
                child.close()
                await child.wait(PATIENCE)
            await until(lambda: open_fds() <= before)  # fewer: an earlier test left one to the collector
            assert await spawner.swept(PATIENCE)
            assert not carrying(spawner.warden.mark)
        # Not with a glob, which stumbles over the groups that others remove meanwhile.
        groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
        assert not [name for name in groups if f"-{os.getpid()}-" in name and name.endswith("-cell")]

    run(main())


def attempt(package: Path) -> LaunchFailed:
    """A start on a thread of its own, as it must be; its failure."""
    marks = dict([MARK.split("=")])

    def work() -> None:
        with closing(Sandbox()) as sandbox:
            start(confined(package, "/bin/cat"), marks, subprocess.Popen, sandbox)

    with ThreadPoolExecutor(1) as pool:
        before = open_fds()
        with pytest.raises(LaunchFailed) as caught:
            pool.submit(work).result()
        assert open_fds() == before
    return caught.value


def refuse(*_: object) -> None:
    raise OSError(1, "refused")


def refuse_late(pid: int, *_: object) -> None:
    """Only when the first process has set everything up and waits for the word to go on."""
    until_blocking(lambda: "pipe_read" in Path(f"/proc/{pid}/wchan").read_text())
    refuse()


def without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group would end what is left in any case; not every machine has one."""
    for way in ("enter", "hold", "join"):
        monkeypatch.setattr(f"plugbay.process.sandbox.cgroup.Cgroup.{way}", lambda self, *pids: None)


@pytest.mark.parametrize(
    ("step", "failing"), [("limits.apply", refuse), ("limits.apply", refuse_late), ("_check_confined", refuse)]
)
def test_a_step_that_fails_before_the_program_is_let_go_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failing: Callable[..., None]
) -> None:
    without_groups(monkeypatch)
    monkeypatch.setattr(f"{module.__name__}.{step}", failing)
    error = attempt(tmp_path)
    assert isinstance(error, SandboxUnavailable)
    assert "refused" in error.message
    until_blocking(lambda: not carrying(MARK))


def test_of_a_monitor_that_is_killed_without_its_group_the_first_process_would_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugbay.process.launch.pidfd.signal_group", os.kill)
    monkeypatch.setattr(f"{module.__name__}.limits.apply", refuse_late)
    without_groups(monkeypatch)
    attempt(tmp_path)
    left = carrying(MARK)
    assert [Path(f"/proc/{pid}/wchan").read_text() for pid in left] == ["anon_pipe_read"]
    for pid in left:
        os.kill(pid, 9)


def test_a_policy_without_a_sandbox_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="must be confined"):
        start(confined(tmp_path, "/bin/cat"), {}, subprocess.Popen)


@pytest.mark.parametrize(
    ("status", "meant"),
    [
        (ExitStatus(code=0), ExitStatus(code=0)),
        (ExitStatus(code=128), ExitStatus(code=128)),
        (ExitStatus(code=143), ExitStatus(signal=15)),
        (ExitStatus(code=192), ExitStatus(signal=64)),
        (ExitStatus(code=255), ExitStatus(code=255)),
        (ExitStatus(signal=9), ExitStatus(signal=9)),
        (ExitStatus(), ExitStatus()),
    ],
)
def test_the_monitors_code_is_read_as_the_programs_signal(
    tmp_path: Path, status: ExitStatus, meant: ExitStatus
) -> None:
    sandbox = Sandbox()
    launch = confined(tmp_path, sys.executable)
    assert launch.policy is not None
    jail = module.Jail(launch.argv, "x", launch.policy, launch.limits, sandbox.cgroups)
    assert jail.translate(status) == meant
    jail.close()


STAND_IN = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
status, block = map(int, sys.argv[1:3])
first = os.fork()
if first:
    os.write(status, b'{ "child-pid": %d' % first)
    os.write(status, b', "net-namespace": 4 }\\n')
    code = os.waitstatus_to_exitcode(os.wait()[1])
    try:
        code == 9 or os.write(status, b'{ "exit-code": %d }\\n' % code)
    except ConnectionRefusedError:
        pass
    os._exit(code)
os.close(status)
if os.read(block, 1) != b"!":
    os._exit(8)
if sys.argv[3] == "fail":
    os._exit(9)
program = os.fork()
if not program:
    os.execv("/bin/sleep", ["sleep", sys.argv[3]])
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@contextmanager
def monitor(reports: Reports, script: str, *words: str) -> Iterator[int]:
    fds = (reports.status, reports.block)
    command = [sys.executable, "-I", "-S", "-c", script, *map(str, fds), *words]
    with subprocess.Popen(command, pass_fds=fds, start_new_session=True) as process:
        reports.close_their_ends()
        try:
            yield process.pid
        finally:
            pidfd.signal_group(process.pid, 9)


@pytest.fixture
def reports() -> Iterator[Reports]:
    before = open_fds()
    reports = Reports()
    yield reports
    reports.close()
    reports.close()
    assert open_fds() == before


def test_the_first_process_waits_until_it_is_released_and_then_the_program_runs(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "600") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        assert parent_of(first) == pid
        assert first_child(pid) == first
        assert first_child(first) == 0
        reports.release()
        program = reports.program(pid, first, None)
        assert program == first_child(first) != 0
        assert status_of(program)["Name"] == b"sleep"


def test_a_program_that_is_gone_already_was_run_all_the_same(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        until_blocking(lambda: pidfd.has_ended(pid))
        assert reports.program(pid, first, None) == 0


def test_a_program_that_was_never_run_is_distinguished_from_one_that_ended(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "fail") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        assert reports.program(pid, first, None) is None


def test_a_monitor_that_ends_without_a_word_has_no_first_process(reports: Reports) -> None:
    with monitor(reports, "pass") as pid:
        assert reports.first_process(pid, None) is None


def test_a_monitor_that_says_nothing_is_not_waited_for_forever(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READY_SECONDS", 0.05)
    with monitor(reports, "import time; time.sleep(600)") as pid:
        watch = os.pidfd_open(pid)
        assert reports.first_process(pid, watch) is None
        os.close(watch)


def test_our_death_is_not_the_word_to_go_on(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.close()  # all that is ours of the pipe is closed, as if we were dead
        # It has reached the read, and waits there.
        until_blocking(lambda: "pipe_read" in Path(f"/proc/{first}/wchan").read_text())
        assert first_child(first) == 0


def test_with_an_ordinary_pipe_our_death_would_be_the_word_to_go_on() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", "import os, sys; os._exit(len(os.read(int(sys.argv[1]), 1)))"]
    with subprocess.Popen([*command, str(reading)], pass_fds=(reading,)) as process:
        os.close(reading)
        os.close(writing)
        assert process.wait(PATIENCE) == 0


def test_a_report_without_a_reader_does_not_kill_the_monitor(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0.05") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        reports.close()
        until_blocking(lambda: pidfd.has_ended(pid))
        status = pidfd.reap(pid)
        assert status is not None
        assert status.code == 0


def test_with_an_ordinary_pipe_such_a_report_would_kill_it() -> None:
    reading, writing = os.pipe()
    script = (
        "import os, signal, sys; signal.signal(13, signal.SIG_DFL); sys.stdin.read(); os.write(int(sys.argv[1]), b'x')"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(writing)]
    with subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.PIPE) as process:
        os.close(writing)
        os.close(reading)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGPIPE


def test_who_does_not_exist_has_no_parent_no_child_and_no_status() -> None:
    assert (parent_of(2**22 + 1), first_child(2**22 + 1), status_of(2**22 + 1)) == (0, 0, {})

"""Real sandboxes, as root and as somebody else, seen from inside and from outside; each guard beside its absence."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import plugbay
from plugbay.process import pidfd
from plugbay.process.diagnose import LaunchFailed, SandboxUnavailable
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox import seccomp
from plugbay.process.sandbox.cgroup import Cgroups
from plugbay.process.sandbox.launcher import Program, Sandbox, SandboxSettings
from plugbay.process.sandbox.policy import MIB, Policy
from plugbay.process.status import ExitStatus
from tests.process.helpers import open_fds
from tests.process.sandbox.drivers import ENVIRONMENT, IDENTITIES, SOURCES, command, report, running
from tests.support.machine import AS_ROOT, needs_root
from tests.support.patience import until_blocking

BOTH = pytest.mark.parametrize("identity", IDENTITIES)


def seen(identity: str, where: str = "inside") -> dict[str, Any]:
    found: dict[str, Any] = report(identity, "observe")[where]
    return found


# What a program is and sees inside.


@BOTH
def test_it_runs_as_its_own_user_without_rights(identity: str) -> None:
    inside, outside = seen(identity), seen(identity, "outside")
    assert (inside["uid"], inside["gid"]) == (1000, 1000)
    # Only root can leave its groups; inside, those of another user but the first are nobody's.
    assert set(inside["groups"]) <= (set() if AS_ROOT else {1000, 65534})
    held = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    assert inside["status"] == held
    assert outside["uid"] != 1000 or os.getuid() == 1000
    assert all(outside["status"][name] != value for name, value in held.items() if name != "CapEff")


@BOTH
def test_it_has_three_descriptors_and_sees_only_its_own_processes(identity: str) -> None:
    assert seen(identity)["fds"] == [0, 1, 2]
    assert seen(identity)["pids"] == [1, 2]
    assert len(seen(identity, "outside")["pids"]) > 5


@BOTH
def test_its_environment_has_the_given_variables_and_its_folder(identity: str) -> None:
    given = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "ODD": "--bind / /", "EMPTY": ""}
    inside = seen(identity)
    assert inside["environment"] == {**given, "PWD": inside["cwd"]}
    assert inside["cwd"].endswith("/package")
    # Without a sandbox the warden's marks are there: that is how it finds what escaped.
    assert set(seen(identity, "outside")["environment"]) - set(given) == {"PLUGBAY_HOST", "PLUGBAY_CHILD"}


@BOTH
def test_it_writes_only_where_it_may(identity: str) -> None:
    inside, outside = seen(identity), seen(identity, "outside")
    for place in ("package", "root", "dev"):
        assert inside[f"write {place}"] == "EROFS"
    assert inside["write tmp"] == inside["write granted"] == "ok"
    assert outside["write package"] == "ok"
    assert outside["write root"] == ("ok" if identity == "root" else "EACCES")


@BOTH
def test_the_kernels_switches_are_out_of_reach(identity: str) -> None:
    assert seen(identity)["open core_pattern"] in {"EACCES", "EROFS"}
    assert seen(identity)["mounts"]["/proc/sys"].startswith("ro,")
    assert seen(identity, "outside")["open core_pattern"] == ("ok" if identity == "root" else "EACCES")


@BOTH
def test_it_sees_no_path_that_it_was_not_shown(identity: str) -> None:
    inside = seen(identity)
    assert inside["read secret"] == inside["read shadow"] == "ENOENT"
    assert seen(identity, "outside")["read secret"] == "ok"
    assert inside["passwd"] == "plugin:x:1000:1000::/tmp:/bin/sh\n"
    assert inside["hostname"] == "plugin" != seen(identity, "outside")["hostname"]
    others = set(inside["mounts"]) - {str(SOURCES / "plugbay")}  # shown with the host's Python, wherever it is
    assert not any(path.startswith(("/sys", "/run", "/home", "/root")) for path in others)


@BOTH
def test_nothing_that_is_shown_can_lend_rights(identity: str) -> None:
    for path, options in seen(identity)["mounts"].items():
        assert "nosuid" in options.split(",")
        assert "nodev" in options.split(",") or path.startswith("/dev/")


# How it ends.


@BOTH
def test_the_exit_of_the_program_is_distinguished_from_that_of_its_sandbox(identity: str) -> None:
    ends = report(identity, "endings")
    assert ends["clean"] == {"code": 0, "signal": None, "oom": False}
    assert ends["code"] == {"code": 3, "signal": None, "oom": False}
    assert ends["signal"] == {"code": None, "signal": signal.SIGSEGV, "oom": False}
    assert (ends["forbidden call"]["code"], ends["allowed call"]["code"]) == (1, 0)


@BOTH
def test_a_program_that_cannot_be_run_is_not_the_sandboxs_failure(identity: str) -> None:
    failure = report(identity, "endings")["no interpreter"]
    assert (failure["kind"], failure["code"]) == ("LaunchFailed", "launch_failed")
    assert "cannot be run inside its sandbox: No such file" in failure["message"]
    assert "interpreter" in failure["hint"]


@BOTH
@pytest.mark.parametrize(("case", "words"), [("not shown", "working directory"), ("too many variables", "variables")])
def test_a_sandbox_that_cannot_be_set_up_says_why(identity: str, case: str, words: str) -> None:
    failure = report(identity, "endings")[case]
    assert (failure["kind"], failure["code"]) == ("SandboxUnavailable", "sandbox_unavailable")
    assert words in failure["message"]
    assert failure["hint"]
    assert report(identity, "endings")["shown"] == {"kind": "started"}


@needs_root
def test_a_program_that_ran_out_of_memory_is_known_afterwards() -> None:
    ends = report("root", "endings")
    assert ends["hog"] == {"code": None, "signal": signal.SIGKILL, "oom": True}
    assert ends["modest"] == {"code": 0, "signal": None, "oom": False}


def test_without_control_groups_a_program_cannot_map_much_more_than_its_memory() -> None:
    ends = report("rootless", "endings")
    assert ends["hog"] == {"code": 1, "signal": None, "oom": False}
    assert ends["modest"] == {"code": 0, "signal": None, "oom": False}


@pytest.mark.skipif(not os.path.exists("/usr/bin/node"), reason="needs node")
def test_without_control_groups_node_works_with_the_usual_memory_and_with_less() -> None:
    assert report("rootless", "node") == {"limits": "degraded", "usual": "fine\n", "quarter": "fine\n"}


@BOTH
def test_the_host_sees_the_memory_of_a_program_in_all_its_forms(identity: str) -> None:
    seen = report(identity, "used")
    before, after = seen["before"], seen["after"]
    assert 54 * MIB <= after["memory"] - before["memory"] < 80 * MIB
    assert before["sockets"] == 0
    assert 60 * 40_000 <= after["sockets"] < 5 * MIB


# What cannot be shown.


@BOTH
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("link", "is a symbolic link"),
        ("link to forbidden", "must not be visible to a plugin"),
        ("forbidden", "must not be visible to a plugin"),
        ("contains forbidden", "contains or is inside /etc/"),
        ("missing", "No such file"),
        ("not writable", "has no right to"),
        ("code of the host", "must not be written"),
        ("chosen", "is a link in"),
    ],
)
def test_a_grant_that_cannot_be_given_is_a_refusal(identity: str, case: str, words: str) -> None:
    failure = report(identity, "refusals")[case]
    assert failure["kind"] == "SandboxUnavailable"
    assert words in failure["message"]
    assert failure["hint"]


@BOTH
@pytest.mark.parametrize(
    "case", ["plain", "link on the way", "code of the host, read", "chosen by nobody", "not chosen"]
)
def test_a_grant_that_can_be_given_is_no_reason_to_refuse(identity: str, case: str) -> None:
    assert report(identity, "refusals")[case] == {"kind": "started"}


@BOTH
def test_hidden_paths_are_covered_except_for_sources_within_them(identity: str) -> None:
    seen = report(identity, "refusals")["covered"]
    assert seen["covered"][:2] == ["plugins", "kept"] and "Read-only" in seen["covered"]
    assert seen["open"][:3] == ["plugins", "secret", "canary"]


@needs_root
def test_the_user_that_lacks_a_right_is_named_with_the_way_to_give_it() -> None:
    failure = report("root", "refusals")["not writable"]
    number = failure["message"].partition("its user ")[2].split()[0]
    assert SandboxSettings().uids[0] <= int(number) <= SandboxSettings().uids[1]
    assert f"setfacl -R -m u:{number}:rwX" in failure["hint"]


# Signals, and what is left.


@BOTH
def test_sigterm_reaches_the_program_and_not_its_monitor(identity: str) -> None:
    told = report(identity, "signals")
    assert told["handler"] == ["told", 7]
    assert told["own session"] == ["told", 7]


@BOTH
def test_an_idle_child_costs_the_host_no_more_descriptors_than_an_unconfined_one(identity: str) -> None:
    assert report(identity, "signals")["fds"] == 4


@BOTH
@pytest.mark.parametrize(("task", "processes"), [("doomed", 24), ("held", 3)])
def test_a_host_that_is_killed_leaves_nothing(identity: str, task: str, processes: int) -> None:
    """Also not of a sandbox that still waits for the word to go on, which does not die with its monitor."""
    mark = f"7{os.getpid()}{time.monotonic_ns() % 10**6}"
    arguments = command(identity, task, mark)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=ENVIRONMENT, cwd="/", text=True) as host:
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == "ready\n"
            until_blocking(lambda: len(running(mark)) >= processes)
        finally:
            host.kill()
    until_blocking(lambda: not running(mark))
    Cgroups().sweep()  # as the next host does
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    assert not [name for name in groups if f"-{host.pid}-" in name]
    for folder in Path(tempfile.gettempdir()).glob(f"plugbay-sandbox-{host.pid}-*"):
        shutil.rmtree(folder)


# What is missing.


class Yard:
    """Starts in a thread of their own, as a spawner would."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.pool = ThreadPoolExecutor(1)

    def attempt(self, sandbox: Sandbox) -> str:
        """Prepare and start `true`; the words of the failure, or nothing."""
        return self.pool.submit(self._attempt, sandbox).result()

    def _attempt(self, sandbox: Sandbox) -> str:
        before = open_fds()
        try:
            with closing(sandbox):
                self._run(sandbox)
        except LaunchFailed as error:
            assert isinstance(error, SandboxUnavailable), error
            assert error.hint
            assert open_fds() == before
            return error.message
        return ""

    def _run(self, sandbox: Sandbox) -> None:
        program = Program(("/bin/true",), self.package, {}, "yard")
        jail = sandbox.prepare(program, Policy(self.package), Rlimits(), {})
        try:
            with subprocess.Popen(
                jail.argv,
                stderr=subprocess.PIPE,
                env=jail.env,
                pass_fds=jail.pass_fds,
                cwd="/",
                start_new_session=True,
            ) as process:
                assert process.stderr is not None
                try:
                    jail.admit(process.pid, None, process.stderr.fileno())
                finally:
                    pidfd.signal_group(process.pid, signal.SIGKILL)
        finally:
            jail.close()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.pool.shutdown()


@pytest.fixture(autouse=True)
def open_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that comes first in PATH. Not in /tmp, which is covered when bubblewrap is started."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield Path(folder)


def test_with_everything_in_place_it_starts(yard: Yard) -> None:
    assert yard.attempt(Sandbox()) == ""


def test_without_bubblewrap_nothing_is_started(yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "bwrap is not installed" in yard.attempt(Sandbox())


def test_a_bubblewrap_of_a_relative_path_is_not_found(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bwrap").symlink_to("/usr/bin/bwrap")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    assert "bwrap is not installed" in yard.attempt(Sandbox())


def test_a_set_uid_bubblewrap_is_refused(yard: Yard, fake: Path) -> None:
    (fake / "bwrap").write_bytes(Path("/usr/bin/bwrap").read_bytes())
    (fake / "bwrap").chmod(0o4755)
    assert "set-uid" in yard.attempt(Sandbox())
    (fake / "bwrap").chmod(0o755)
    assert yard.attempt(Sandbox()) == ""


@pytest.mark.parametrize("cut", [0, 12])
def test_a_filter_that_is_cut_short_means_no_start(yard: Yard, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    whole = seccomp.program(network=False)
    monkeypatch.setattr(seccomp, "program", lambda network: whole[:cut])
    assert "system call filter cannot be loaded" in yard.attempt(Sandbox())


@needs_root
def test_a_user_that_this_machine_does_not_have_means_no_start(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    unmapped = Sandbox(SandboxSettings(uids=(2**32 - 1, 2**32 - 1)))
    assert "cannot be used here" in yard.attempt(unmapped)
    assert "cannot be used here" in yard.attempt(Sandbox(SandboxSettings(uids=(0, 0))))


def test_limits_that_are_required_and_cannot_be_set_mean_no_start(yard: Yard, tmp_path: Path) -> None:
    none = Cgroups(tmp_path / "none")
    assert none.state == "degraded"
    assert "limits" in yard.attempt(Sandbox(SandboxSettings(require_limits=True), none))
    assert yard.attempt(Sandbox(SandboxSettings(), none)) == ""


def test_a_bubblewrap_that_confines_nothing_is_noticed(yard: Yard, fake: Path) -> None:
    script = fake / "bwrap"
    script.write_text(FAKE)
    script.chmod(0o755)
    # Root makes the network before bubblewrap runs; for another user its lack is what is noticed first.
    assert ("confinement is incomplete" if AS_ROOT else "the network of the host") in yard.attempt(Sandbox())


FAKE = """#!/usr/bin/python3 -IS
import os, sys, time
words = os.read(int(sys.argv[2]), 1 << 20).split(b"\\0")
status, block = (int(words[words.index(name) + 1]) for name in (b"--json-status-fd", b"--block-fd"))
first = os.fork()
if first:
    os.write(status, b'{ "child-pid": %d }\\n' % first)
    os.wait()
elif os.read(block, 1):
    os.fork() and os.wait() or os.execv("/bin/sleep", ["sleep", "5"])
"""


FROM_A_COPY = """
import asyncio
from pathlib import Path
from plugbay.process import child
from plugbay.process.command import Launch
from plugbay.process.sandbox.policy import Policy

async def main():
    spawner = child.Spawner()
    started = await spawner.spawn(Launch(("/bin/true",), Path("/"), policy=Policy(Path("/usr"))), 60)
    started.close()
    print(Path(child.__file__).parents[2], await started.wait(60))
    await spawner.close()

asyncio.run(main())
"""


def test_a_host_whose_own_code_is_in_tmp_can_confine() -> None:
    """Where the starting thread lays out what the plugin sees, and so covers everything else."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        ours = Path(plugbay.__file__).parent
        shutil.copytree(ours, Path(folder, "plugbay"), ignore=shutil.ignore_patterns("__pycache__"))
        host = [sys.executable, "-c", FROM_A_COPY]
        done = subprocess.run(host, env={"PYTHONPATH": folder}, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"{folder} {ExitStatus(code=0)}\n", "")

"""Control groups of this machine, with real processes; and what is said where there are none to be had."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from plugbay.process import warden_main
from plugbay.process.sandbox import cgroup, cgroup_v1
from plugbay.process.sandbox.cgroup import Cgroup, Cgroups
from plugbay.process.sandbox.cgroup_files import Files
from plugbay.process.sandbox.policy import MIB, Limits
from tests.process.helpers import exists
from tests.process.sandbox.test_cgroup_files import folder
from tests.process.sandbox.test_cgroup_kill import escaped, go, line_of, start
from tests.process.sandbox.test_cgroup_v2 import OWN, Kernel, Machine
from tests.support.patience import PATIENCE, until_blocking

GREEDY = "import sys; sys.stdin.readline(); data = b'x' * (200 << 20); print('had it', flush=True)"
SHARED = """
import os, sys
sys.stdin.readline()
fd = os.memfd_create("big")
for _ in range(200):
    os.write(fd, b"x" * (1 << 20))
print("had it", flush=True)
"""
"""Pages of a file in memory, as in a tmpfs."""

FORKING = """
import os, signal, sys
sys.stdin.readline()
count = 0
try:
    for count in range(40):
        if os.fork() == 0:
            signal.pause()
except BlockingIOError:
    pass
print(count, flush=True)
signal.pause()
"""
SPINNING = """
import sys, time
sys.stdin.readline()
while time.process_time() < 0.15: pass
"""
WITHOUT_RIGHTS = """
import os
from plugbay.process.sandbox.cgroup import Cgroups
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
machine = Cgroups()
print(machine.state, machine.sweep(), machine.why, flush=True)
"""
HOST = """
import subprocess, sys
from plugbay.process.sandbox.cgroup import Cgroups
group = Cgroups().create("doomed")
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
group.join(child.pid)
print(group.name, child.pid, flush=True)
sys.stdin.readline()
group.close()
"""


def folders_of(name: str) -> list[Path]:
    """Every folder of that name in any hierarchy; found without the code under test."""
    return [Path(where) / name for where, below, _ in os.walk("/sys/fs/cgroup") if name in below]


def value_of(group: Cgroup, file: str) -> str:
    (path,) = [path for each in folders_of(group.name) if (path := each / file).exists()]
    return path.read_text()


@contextmanager
def opened(limits: Limits) -> Iterator[Cgroup]:
    group = Cgroups().create("test")
    assert folders_of(group.name)
    try:
        group.limit(limits)
        yield group
    finally:
        group.close()
        assert folders_of(group.name) == []


def run_in(script: str, *groups: Cgroup) -> subprocess.Popen[str]:
    """A program that does nothing before it is in the groups."""
    process = start(script)
    for group in groups:
        group.join(process.pid)
    go(process)
    return process


@pytest.fixture
def hosts() -> Iterator[list[subprocess.Popen[str]]]:
    """Two hosts with a group each; whatever happens to them, nothing of theirs stays."""
    with start(HOST, flags=()) as doomed, start(HOST, flags=()) as living:
        yield [doomed, living]
        doomed.kill()
        living.kill()
    Cgroups().sweep()


def test_this_machine_has_limits() -> None:
    machine = Cgroups()
    assert machine.state in ("full", "full (v1)"), machine.why
    assert machine.why == ""


@pytest.mark.parametrize("script", [GREEDY, SHARED], ids=["memory", "files in memory"])
def test_a_process_that_uses_too_much_memory_is_killed_and_counted_in_its_own_group(script: str) -> None:
    with opened(Limits(memory=64 * MIB)) as group, opened(Limits(memory=64 * MIB)) as other:
        with run_in(script, group) as greedy:
            assert greedy.wait(PATIENCE) == -signal.SIGKILL
        assert group.oom_kills() >= 1
        assert other.oom_kills() == 0
    assert group.oom_kills() >= 1, "still known when the group is gone"


@pytest.mark.parametrize("script", [GREEDY, SHARED], ids=["memory", "files in memory"])
def test_the_same_process_lives_where_it_may_use_that_much(script: str) -> None:
    with opened(Limits(memory=512 * MIB)) as group:
        with run_in(script, group) as greedy:
            assert line_of(greedy) == "had it"
            assert greedy.wait(PATIENCE) == 0
        assert group.oom_kills() == 0


def test_there_is_no_swap_to_escape_to() -> None:
    with opened(Limits(memory=64 * MIB)) as group:
        names = {file.name for each in folders_of(group.name) for file in each.iterdir()}
        if "memory.memsw.limit_in_bytes" in names:
            assert int(value_of(group, "memory.memsw.limit_in_bytes")) == 64 * MIB
        else:
            assert "memory.swap.max" not in names or value_of(group, "memory.swap.max").strip() == "0"


def test_a_fork_bomb_stops_at_the_limit() -> None:
    with opened(Limits(processes=10)) as group, run_in(FORKING, group) as bomb:
        assert int(line_of(bomb)) == 9
        group.close()
        assert bomb.wait(PATIENCE) == -signal.SIGKILL


def test_without_that_limit_it_goes_on() -> None:
    with opened(Limits(processes=1000)) as group, run_in(FORKING, group) as bomb:
        assert int(line_of(bomb)) == 39
        group.close()
        assert bomb.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.parametrize(("cores", "held_back"), [(0.2, True), (64, False)])
def test_a_busy_process_is_held_back_to_its_share(cores: float, held_back: bool) -> None:
    with opened(Limits(cpu=cores)) as group:
        with run_in(SPINNING, group) as busy:
            assert busy.wait(PATIENCE) == 0
        words = next(
            path.read_text().split()
            for each in folders_of(group.name)
            if (path := each / "cpu.stat").exists() and "nr_throttled" in path.read_text()
        )
        assert (int(words[words.index("nr_throttled") + 1]) > 0) is held_back


def test_a_group_is_below_our_own_position_in_every_hierarchy() -> None:
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    with opened(Limits()) as group, start("import sys; sys.stdin.readline()") as child:
        group.join(child.pid)
        joined = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{child.pid}/cgroup").read_text().splitlines())
        moved = {names: path for names, path in joined.items() if path != own[names]}
        assert moved == {names: f"{own[names].rstrip('/')}/{group.name}" for names in moved}
        assert len(moved) == len(folders_of(group.name))
        go(child)


def positions(pid: int | str) -> dict[str, str]:
    """Where a process or a thread is, by hierarchy."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def test_what_a_thread_starts_from_within_is_in_from_its_first_moment_and_the_thread_comes_back() -> None:
    with opened(Limits()) as group:

        def work() -> subprocess.Popen[str]:
            before = positions("thread-self")
            group.enter()
            try:
                return start("import sys; sys.stdin.readline()")
            finally:
                group.leave()
                assert positions("thread-self") == before

        with ThreadPoolExecutor(1) as pool, pool.submit(work).result() as child:
            at_once = positions(child.pid)
            group.hold(child.pid)
            held = positions(child.pid)
            assert [path for path in held.values() if path.endswith(group.name)]
            assert at_once == held or "memory" not in held, "on version 1 there was nothing left to do"
            assert all(group.name not in path for path in positions("self").values())
            go(child)


def test_a_process_without_a_number_is_not_taken_for_the_host() -> None:
    """The kernel takes 0 for whoever writes it."""
    with opened(Limits()) as group:
        for way in (group.hold, group.join):
            with pytest.raises(ProcessLookupError):
                way(0)
        assert all(group.name not in path for path in positions("self").values())


def test_kill_ends_a_stopped_double_forked_tree_in_another_session() -> None:
    with opened(Limits()) as group:
        process, away = escaped(*folders_of(group.name))
        with process:
            group.kill()
            until_blocking(lambda: not exists(away))
            assert process.wait(PATIENCE) == -signal.SIGKILL
        group.kill()


def test_a_process_that_is_gone_cannot_join() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(PATIENCE)
    with opened(Limits()) as group, pytest.raises(ProcessLookupError):
        group.join(process.pid)


def test_a_closed_group_can_be_closed_again() -> None:
    with opened(Limits()) as group:
        group.close()
        group.kill()
        assert group.gone()


def test_a_group_has_one_folder_in_each_of_the_bases(tmp_path: Path) -> None:
    machine = Cgroups()
    with closing(machine.create("test")) as group:
        assert {folder.parent for folder in folders_of(group.name)} == set(machine.bases)
    assert Cgroups(tmp_path / "none").bases == ()


def test_twenty_groups_of_one_name_are_made_at_once_and_each_has_its_own_limit() -> None:
    machine = Cgroups()
    with ThreadPoolExecutor(20) as pool, ExitStack() as stack:
        groups = list(pool.map(lambda _: machine.create("same"), range(20)))
        for group in groups:
            stack.callback(group.close)
        list(pool.map(lambda group, number: group.limit(Limits(processes=number)), groups, range(10, 30)))
        assert [int(value_of(group, "pids.max")) for group in groups] == list(range(10, 30))
    assert [found for group in groups for found in folders_of(group.name)] == []


@pytest.mark.parametrize(
    "label", ["../../etc", "/", "", "..", "a\nb", "a\0b", "x" * 5000, "cgroup.procs", "é\udcff", "a b;$(reboot)"]
)
def test_a_hostile_label_makes_an_ordinary_folder(label: str) -> None:
    group = Cgroups().create(label)
    try:
        found = folders_of(group.name)
        assert found
        assert group.name.startswith("plugbay-")
        assert "/" not in group.name
    finally:
        group.close()
    assert folders_of(group.name) == []


@pytest.mark.alone
def test_what_a_killed_host_left_behind_is_swept_and_a_living_host_is_left_alone(
    hosts: list[subprocess.Popen[str]],
) -> None:
    doomed, living = hosts
    name, pid = line_of(doomed).split(" ")
    other, spared = line_of(living).split(" ")
    doomed.kill()
    doomed.wait(PATIENCE)
    assert exists(int(pid))
    assert folders_of(name)
    assert Cgroups().sweep() >= 1
    until_blocking(lambda: not exists(int(pid)))
    assert folders_of(name) == []
    assert exists(int(spared))
    assert folders_of(other)
    go(living)
    assert living.wait(PATIENCE) == 0
    assert folders_of(other) == []


# The rest is about a machine with version 2, as `Kernel` plays it.


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def cgroups(machine: Machine) -> Cgroups:
    top = machine.kernel.top
    return Cgroups(top, top.parent / "proc", machine.kernel)


def test_on_version_2_a_group_is_made_limited_joined_killed_and_removed_in_this_order(machine: Machine) -> None:
    used = cgroups(machine)
    assert used.state == "full"
    machine.kernel.log.clear()
    group = used.create("p")
    group.limit(Limits(memory=64 * MIB, cpu=0.5, processes=9))
    with subprocess.Popen(["sleep", "600"]) as child:
        group.enter()
        group.leave()
        group.join(child.pid)
        group.join(child.pid)
        group.close()
        assert child.wait(PATIENCE) == -signal.SIGKILL
    where = f"{OWN}/{group.name}"
    assert machine.kernel.log == [
        f"mkdir {where}",
        f"67108864 {where}/memory.max",
        f"0 {where}/memory.swap.max",
        f"1 {where}/memory.oom.group",
        f"9 {where}/pids.max",
        f"50000 100000 {where}/cpu.max",
        f"{child.pid} {where}/cgroup.procs",
        f"1 {where}/cgroup.kill",
        f"rmdir {where}",
    ]


def test_on_version_2_a_kill_for_want_of_memory_is_counted(machine: Machine) -> None:
    group = cgroups(machine).create("p")
    assert group.oom_kills() == 0
    (machine.own / group.name / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    assert group.oom_kills() == 3
    group.close()
    assert group.oom_kills() == 3


def test_looking_at_the_machine_leaves_nothing_but_the_leaf_and_happens_once(machine: Machine) -> None:
    used = cgroups(machine)
    assert (used.state, used.why) == ("full", "")
    assert [each.name.startswith("plugbay-host-") for each in machine.kernel.folders(machine.own)] == [True]
    machine.kernel.log.clear()
    assert used.state == "full"
    assert machine.kernel.log == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EBUSY, errno.ENOENT])
@pytest.mark.parametrize("file", ["mkdir", "memory.max", "pids.max"])
def test_what_cannot_be_written_makes_the_machine_degraded_with_the_reason(
    machine: Machine, file: str, number: int
) -> None:
    machine.kernel.refused[file] = number
    used = cgroups(machine)
    assert used.state == "degraded"
    assert os.strerror(number) in used.why
    assert "Delegate=yes" in used.why


@pytest.mark.parametrize("file", ["memory.swap.max", "cpu.max", "memory.oom.group"])
def test_a_file_that_not_every_kernel_has_is_not_needed(machine: Machine, file: str) -> None:
    machine.kernel.refused[file] = errno.ENOENT
    assert cgroups(machine).state == "full"


def test_on_a_degraded_machine_a_group_does_nothing(tmp_path: Path) -> None:
    used = Cgroups(tmp_path, tmp_path / "no proc")
    assert used.state == "degraded"
    assert used.why
    group = used.create("p")
    group.limit(Limits())
    group.enter()
    group.leave()
    group.join(os.getpid())
    group.kill()
    assert group.oom_kills() == 0
    group.close()
    assert group.gone()
    assert used.sweep() == 0


def test_a_proc_that_is_not_ours_makes_the_machine_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names would be made from, and judged by, the pids of somebody else."""
    monkeypatch.setattr(warden_main, "proc_is_ours", lambda: False)
    assert Cgroups().state == "degraded"


class Old(Files):
    """Version 1: what is in each new folder, and which hierarchies refuse to have any."""

    def __init__(self, top: Path, **files: str) -> None:
        self.files = files
        self.refusing: set[str] = set()
        self.strict: dict[str, int] = {}
        proc = folder(top / "proc/self")
        (proc / "cgroup").write_text("".join(f"1:{name}:/\n" for name in files if name != "unified") + "0::/\n")
        lines = []
        for name in files:
            kind = "cgroup2 cgroup2 rw" if name == "unified" else f"cgroup cgroup rw,{name}"
            lines.append(f"1 1 0:1 / {folder(top / name)} rw - {kind}\n")
            (top / name / "cgroup.procs").write_text("")
            (top / name / "tasks").write_text("")
        (proc / "mountinfo").write_text("".join(lines))

    def make(self, folder: Path) -> None:
        if folder.parent.name in self.refusing:
            raise PermissionError(errno.EACCES, "Permission denied")
        super().make(folder)
        for name in self.files[folder.parent.name].split():
            (folder / name).write_text("")

    def write(self, path: Path, text: str) -> None:
        if path.name in self.strict:
            raise OSError(self.strict[path.name], "refused")
        super().write(path, text)

    def remove(self, folder: Path) -> None:
        for file in folder.iterdir():
            file.unlink()
        super().remove(folder)


@pytest.fixture
def old(tmp_path: Path) -> Old:
    made = Old(
        tmp_path,
        unified="cgroup.procs cgroup.kill",
        memory="cgroup.procs tasks memory.limit_in_bytes",
        pids="cgroup.procs tasks pids.max",
        cpu="cgroup.procs tasks cpu.cfs_quota_us",
    )
    (tmp_path / "memory" / cgroup_v1.SOCKETS).touch()
    return made


def hierarchies(tmp_path: Path, name: str) -> list[str]:
    return sorted(found.parent.name for found in tmp_path.glob(f"*/{name}"))


@pytest.mark.parametrize("refusing", [set(), {"unified"}], ids=["with version 2 beside it", "without"])
def test_version_1_is_used_with_and_without_version_2_beside_it(tmp_path: Path, old: Old, refusing: set[str]) -> None:
    old.refusing = refusing
    used = Cgroups(tmp_path, tmp_path / "proc", old)
    assert (used.state, used.why) == ("full (v1)", "")
    group = used.create("p")
    assert hierarchies(tmp_path, group.name) == sorted({"cpu", "memory", "pids", "unified"} - refusing)
    group.close()
    assert hierarchies(tmp_path, "plugbay-*") == []


def test_on_version_1_a_thread_goes_into_every_hierarchy_that_limits_and_back(tmp_path: Path, old: Old) -> None:
    used = Cgroups(tmp_path, tmp_path / "proc", old)
    group = used.create("p")
    group.enter()
    went = [path.parent.parent.name for path in tmp_path.glob(f"*/{group.name}/tasks") if path.read_text() == "0"]
    assert sorted(went) == ["cpu", "memory", "pids"]
    assert not [path for path in tmp_path.glob("*/tasks") if path.read_text()]
    group.leave()
    assert sorted(path.parent.name for path in tmp_path.glob("*/tasks") if path.read_text() == "0") == sorted(went)
    group.close()


def test_a_smaller_share_of_the_processors_above_us_is_no_obstacle(tmp_path: Path, old: Old) -> None:
    """The kernel refuses a larger one below it: the smaller one holds."""
    old.strict["cpu.cfs_quota_us"] = errno.EINVAL
    assert Cgroups(tmp_path, tmp_path / "proc", old).state == "full (v1)"
    old.strict["memory.limit_in_bytes"] = errno.EINVAL
    assert Cgroups(tmp_path, tmp_path / "proc", old).state == "degraded"


@pytest.mark.parametrize("name", ["memory", "pids", "cpu"])
def test_a_hierarchy_that_is_not_ours_to_use_makes_the_machine_degraded(tmp_path: Path, old: Old, name: str) -> None:
    old.refusing = {name}
    used = Cgroups(tmp_path, tmp_path / "proc", old)
    assert used.state == "degraded"
    assert "Permission denied" in used.why
    assert "as root" in used.why
    assert hierarchies(tmp_path, "plugbay-*") == []


def test_a_user_to_whom_nothing_is_delegated_has_a_degraded_machine_and_no_error() -> None:
    with start(WITHOUT_RIGHTS, flags=()) as process:
        state, swept, why = line_of(process).split(" ", 2)
        assert process.wait(PATIENCE) == 0
    assert (state, swept) == ("degraded", "0")
    assert "as root" in why or "Delegate=yes" in why


def test_a_group_that_cannot_be_limited_is_not_left_behind(machine: Machine) -> None:
    used = cgroups(machine)
    assert used.state == "full"
    before = machine.kernel.folders(machine.own)
    machine.kernel.refused["pids.max"] = errno.EACCES
    group = used.create("p")
    with pytest.raises(PermissionError):
        group.limit(Limits())
    group.close()
    assert machine.kernel.folders(machine.own) == before


def abandoned(kernel: Kernel, base: Path, host: str) -> Path:
    left = base / host
    kernel.make(left)
    return left


def test_a_sweep_knows_dead_hosts_by_pid_start_time_and_namespace(machine: Machine) -> None:
    used = cgroups(machine)
    assert used.state == "full"
    pid, space = os.getpid(), warden_main.pid_namespace()
    started = int(warden_main.start_of(pid))
    make = machine.kernel, machine.own
    with subprocess.Popen(["true"]) as dead:
        dead.wait(PATIENCE)
    ours = abandoned(*make, f"plugbay-{space:x}-{pid}-{started}-{'a' * 16}-p")
    reused = abandoned(*make, f"plugbay-{space:x}-{pid}-{started - 1}-{'a' * 16}-p")
    ended = abandoned(*make, f"plugbay-{space:x}-{dead.pid}-{started}-{'a' * 16}-p")
    elsewhere = abandoned(*make, f"plugbay-{space + 1:x}-{dead.pid}-{started}-{'a' * 16}-p")
    strange = abandoned(*make, f"plugbay-{dead.pid}")
    assert used.sweep() == 2
    assert [each.exists() for each in (ours, reused, ended, elsewhere, strange)] == [True, False, False, True, True]


def test_a_sweep_does_not_end_the_host_that_a_dead_host_started(machine: Machine) -> None:
    used = cgroups(machine)
    assert used.state == "full"
    name = f"plugbay-{warden_main.pid_namespace():x}-{os.getpid()}-1-{'a' * 16}-p"
    around = abandoned(machine.kernel, machine.own, name)
    machine.kernel.put(os.getpid(), around)
    assert used.sweep() == 0
    assert around.exists()


def test_the_leaf_of_a_dead_host_is_removed_when_empty_and_nobody_in_it_is_killed(machine: Machine) -> None:
    used = cgroups(machine)
    assert used.state == "full"
    leaf = abandoned(machine.kernel, machine.own, f"plugbay-host-{warden_main.pid_namespace():x}-{os.getpid()}-1")
    with subprocess.Popen(["sleep", "600"]) as stayed:
        machine.kernel.put(stayed.pid, leaf)
        assert used.sweep() == 0
        assert exists(stayed.pid)
        stayed.kill()
    (leaf / "cgroup.procs").write_text("")
    assert used.sweep() == 1
    assert not leaf.exists()


def test_a_group_that_could_not_be_removed_in_time_is_removed_by_the_next_sweep(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "CLOSE_SECONDS", 0.0)
    used = cgroups(machine)
    group = used.create("p")
    machine.kernel.refused["cgroup.kill"] = errno.EACCES
    machine.kernel.put(os.getpid(), machine.own / group.name)
    group.close()
    assert not group.gone()
    assert used.sweep() == 0
    (machine.own / group.name / "cgroup.procs").write_text("")
    assert used.sweep() == 1
    assert group.gone()

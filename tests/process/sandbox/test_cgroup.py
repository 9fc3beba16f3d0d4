"""Control groups of this machine, with real processes; and what is said where there are none to be had."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from plugbay.process import warden_main
from plugbay.process.sandbox import cgroup
from plugbay.process.sandbox.cgroup import UNIFIED, Cgroup, Cgroups, Files, Layout, Places, Setting, cpu_quota
from plugbay.process.sandbox.policy import MIB, Limits
from tests.process.helpers import exists, state
from tests.support.machine import needs_cgroups, needs_root
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


@needs_cgroups
def test_this_machine_has_limits() -> None:
    machine = Cgroups()
    assert machine.state in ("full", "full (v1)"), machine.why
    assert machine.why == ""


@needs_cgroups
@pytest.mark.parametrize("script", [GREEDY, SHARED], ids=["memory", "files in memory"])
def test_a_process_that_uses_too_much_memory_is_killed_and_counted_in_its_own_group(script: str) -> None:
    with opened(Limits(memory=64 * MIB)) as group, opened(Limits(memory=64 * MIB)) as other:
        with run_in(script, group) as greedy:
            assert greedy.wait(PATIENCE) == -signal.SIGKILL
        assert group.oom_kills() >= 1 and group.reached_limit()
        assert other.oom_kills() == 0 and not other.reached_limit()
    assert group.oom_kills() >= 1 and group.reached_limit(), "still known when the group is gone"


@needs_cgroups
@pytest.mark.parametrize("script", [GREEDY, SHARED], ids=["memory", "files in memory"])
def test_the_same_process_lives_where_it_may_use_that_much(script: str) -> None:
    with opened(Limits(memory=512 * MIB)) as group:
        with run_in(script, group) as greedy:
            assert line_of(greedy) == "had it"
            assert greedy.wait(PATIENCE) == 0
        assert group.oom_kills() == 0


@needs_cgroups
def test_there_is_no_swap_to_escape_to() -> None:
    with opened(Limits(memory=64 * MIB)) as group:
        names = {file.name for each in folders_of(group.name) for file in each.iterdir()}
        if "memory.memsw.limit_in_bytes" in names:
            assert int(value_of(group, "memory.memsw.limit_in_bytes")) == 64 * MIB
        else:
            assert "memory.swap.max" not in names or value_of(group, "memory.swap.max").strip() == "0"


@needs_cgroups
def test_a_fork_bomb_stops_at_the_limit() -> None:
    with opened(Limits(processes=10)) as group, run_in(FORKING, group) as bomb:
        assert int(line_of(bomb)) == 9
        group.close()
        assert bomb.wait(PATIENCE) == -signal.SIGKILL


@needs_cgroups
def test_without_that_limit_it_goes_on() -> None:
    with opened(Limits(processes=1000)) as group, run_in(FORKING, group) as bomb:
        assert int(line_of(bomb)) == 39
        group.close()
        assert bomb.wait(PATIENCE) == -signal.SIGKILL


@needs_cgroups
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


@needs_cgroups
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


@needs_cgroups
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


@needs_cgroups
def test_a_process_without_a_number_is_not_taken_for_the_host() -> None:
    """The kernel takes 0 for whoever writes it."""
    with opened(Limits()) as group:
        for way in (group.hold, group.join):
            with pytest.raises(ProcessLookupError):
                way(0)
        assert all(group.name not in path for path in positions("self").values())


@needs_cgroups
def test_kill_ends_a_stopped_double_forked_tree_in_another_session() -> None:
    with opened(Limits()) as group:
        process, away = escaped(*folders_of(group.name))
        with process:
            group.kill()
            until_blocking(lambda: not exists(away))
            assert process.wait(PATIENCE) == -signal.SIGKILL
        group.kill()


@needs_cgroups
def test_a_process_that_is_gone_cannot_join() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(PATIENCE)
    with opened(Limits()) as group, pytest.raises(ProcessLookupError):
        group.join(process.pid)


@needs_cgroups
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


@needs_cgroups
def test_twenty_groups_of_one_name_are_made_at_once_and_each_has_its_own_limit() -> None:
    machine = Cgroups()
    with ThreadPoolExecutor(20) as pool, ExitStack() as stack:
        groups = list(pool.map(lambda _: machine.create("same"), range(20)))
        for group in groups:
            stack.callback(group.close)
        list(pool.map(lambda group, number: group.limit(Limits(processes=number)), groups, range(10, 30)))
        assert [int(value_of(group, "pids.max")) for group in groups] == list(range(10, 30))
    assert [found for group in groups for found in folders_of(group.name)] == []


@needs_cgroups
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


@needs_cgroups
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
    assert folders_of(other) == []  # The rest is about a machine with version 2, as `Kernel` plays it.


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
    events = machine.own / group.name / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 9\noom 0\noom_kill 1\n")
    assert group.oom_kills() == 1 and not group.reached_limit(), "a group around it ran out of memory"
    events.write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    assert group.oom_kills() == 3 and group.reached_limit()
    group.close()
    assert group.oom_kills() == 3 and group.reached_limit()


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
    (tmp_path / "memory" / cgroup.SOCKETS).touch()
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


@needs_root
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


def test_the_leaf_of_a_dead_host_is_removed_when_empty_and_its_processes_are_not_killed(machine: Machine) -> None:
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


POSITIONS = "9:pids:/s\n4:memory:/api/7\n2:cpu,cpuacct:/\n0::/u\n"
MEMORY = "/ cg/memory cgroup rw,memory"
PIDS = "/ cg/pids cgroup rw,pids"
CPU = "/ cg/cpu,cpuacct cgroup rw,cpu,cpuacct"


def written(layout: Layout | str, limits: Limits) -> dict[Path, list[Setting]]:
    assert isinstance(layout, Layout)
    return {branch.base: [one for make in branch.settings for one in make(limits)] for branch in layout.branches}


def test_each_limit_is_set_in_its_hierarchy_below_our_own_position(tmp_path: Path) -> None:
    memory = folder(tmp_path / "cg/memory/api/7")
    pids = folder(tmp_path / "cg/pids/s")
    cpu = folder(tmp_path / "cg/cpu,cpuacct")
    (memory / "memory.kmem.tcp.limit_in_bytes").touch()
    layout = cgroup.find_v1(places(tmp_path, POSITIONS, MEMORY, PIDS, CPU))
    assert written(layout, Limits(memory=64 * MIB, cpu=0.5, processes=10)) == {
        memory: [
            Setting("memory.limit_in_bytes", "67108864"),
            Setting("memory.memsw.limit_in_bytes", "67108864", needed=False),
            Setting("memory.kmem.tcp.limit_in_bytes", "16777216", needed=False),
        ],
        pids: [Setting("pids.max", "10")],
        cpu: [Setting("cpu.cfs_quota_us", "50000", needed=False)],
    }
    assert isinstance(layout, Layout)
    assert (layout.state, layout.why) == ("full (v1)", "")


def test_two_controllers_in_one_hierarchy_share_one_folder(tmp_path: Path) -> None:
    both = folder(tmp_path / "cg/both/x")
    found = places(tmp_path, "1:memory,pids:/x\n", "/ cg/both cgroup rw,memory,pids")
    files = [setting.file for setting in written(cgroup.find_v1(found), Limits())[both]]
    memory = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"]
    assert files == [*memory, "pids.max"]


def test_without_cpu_the_other_limits_are_used_and_the_lack_is_reported(tmp_path: Path) -> None:
    folder(tmp_path / "cg/memory/api/7")
    folder(tmp_path / "cg/pids/s")
    layout = cgroup.find_v1(places(tmp_path, POSITIONS, MEMORY, PIDS))
    assert isinstance(layout, Layout)
    assert "cpu" in layout.why


def test_a_kernel_that_does_not_limit_sockets_is_used_and_the_lack_is_reported(tmp_path: Path) -> None:
    for name in ("memory/api/7", "pids/s", "cpu,cpuacct"):
        folder(tmp_path / "cg" / name)
    layout = cgroup.find_v1(places(tmp_path, POSITIONS, MEMORY, PIDS, CPU))
    assert isinstance(layout, Layout)
    assert layout.why.startswith("this kernel has no memory.kmem.tcp.limit_in_bytes")


def test_without_pids_there_is_no_place_and_the_reason_has_a_hint(tmp_path: Path) -> None:
    folder(tmp_path / "cg/memory/api/7")
    why = cgroup.find_v1(places(tmp_path, POSITIONS, MEMORY))
    assert isinstance(why, str)
    assert "pids" in why
    assert "memory and" not in why
    assert "root" in why


def test_the_version_2_hierarchy_beside_them_is_found(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/unified/u")
    killer = cgroup.find_killer(places(tmp_path, POSITIONS, MEMORY, "/ cg/unified cgroup2 rw"))
    assert killer is not None
    assert killer.base == own


def test_there_may_be_none_beside_them(tmp_path: Path) -> None:
    assert cgroup.find_killer(places(tmp_path, POSITIONS, MEMORY)) is None


ALL = "cpu memory pids"
OWN = "user.slice/plugbay.scope"
STRANGER = os.getppid()
CONTROL_FILES = {
    "memory": {"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.events": "oom_kill 0\n"},
    "pids": {"pids.max": "max"},
    "cpu": {"cpu.max": "max 100000"},
}


class Kernel(Files):
    """Groups below `top`. `log` has every command; `refused` names files and the error for a write to them."""

    def __init__(self, top: Path, controllers: str) -> None:
        self.top = top
        self.log: list[str] = []
        self.refused: dict[str, int] = {}
        top.mkdir()
        self._fill(top, controllers.split())

    def make(self, folder: Path) -> None:
        self._refuse("mkdir")
        super().make(folder)
        self._fill(folder, sorted(self.words(folder.parent / "cgroup.subtree_control")))
        self._note("mkdir", folder)

    def remove(self, folder: Path) -> None:
        if self.members(folder) or self.folders(folder):
            raise OSError(errno.EBUSY, "Device or resource busy")
        for file in folder.iterdir():
            file.unlink()
        super().remove(folder)
        self._note("rmdir", folder)

    def write(self, path: Path, text: str) -> None:
        self._refuse(path.name)
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        folder = path.parent
        if path.name == "cgroup.procs":
            self._move(int(text), folder)
        elif path.name == "cgroup.subtree_control":
            self._enable(folder, text.replace("+", "").split())
        elif path.name == "cgroup.kill":
            self._kill(folder)
        else:
            path.write_text(text)
        self._note(text, path)

    def put(self, pid: int, folder: Path) -> None:
        with (folder / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")

    def _fill(self, folder: Path, controllers: list[str]) -> None:
        self._add(folder, {"cgroup.controllers": " ".join(controllers), "cgroup.subtree_control": ""})
        self._add(folder, {"cgroup.procs": "", "cgroup.kill": ""})
        for controller in controllers:
            self._add(folder, CONTROL_FILES[controller])

    def _add(self, folder: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)

    def _move(self, pid: int, folder: Path) -> None:
        if self.words(folder / "cgroup.subtree_control"):
            raise OSError(errno.EBUSY, "Device or resource busy")
        if not os.path.exists(f"/proc/{pid}"):
            raise ProcessLookupError(errno.ESRCH, "No such process")
        for procs in self.top.rglob("cgroup.procs"):
            left = [each for each in self.members(procs.parent) if each != pid]
            procs.write_text("".join(f"{each}\n" for each in left))
        self.put(pid, folder)

    def _enable(self, folder: Path, names: list[str]) -> None:
        if not self.words(folder / "cgroup.controllers").issuperset(names):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if self.members(folder):
            raise OSError(errno.EBUSY, "Device or resource busy")
        control = folder / "cgroup.subtree_control"
        control.write_text(" ".join(sorted(self.words(control) | set(names))))
        for below in self.folders(folder):
            given = below / "cgroup.controllers"
            new = set(names) - self.words(given)
            given.write_text(" ".join(sorted(self.words(given) | new)))
            self._add(below, {file: text for name in new for file, text in CONTROL_FILES[name].items()})

    def _kill(self, folder: Path) -> None:
        for procs in folder.rglob("cgroup.procs"):
            for pid in self.members(procs.parent):
                os.kill(pid, signal.SIGKILL)
            procs.write_text("")

    def _refuse(self, name: str) -> None:
        if name in self.refused:
            number = self.refused[name]
            raise OSError(number, os.strerror(number))

    def _note(self, what: str, path: Path) -> None:
        self.log.append(f"{what} {path.relative_to(self.top)}")


class Machine:
    """A version 2 machine on which we are in one group below another."""

    def __init__(self, tmp_path: Path, controllers: str = ALL) -> None:
        self.kernel = Kernel(tmp_path / "cg", ALL)
        self.own = self.kernel.top / OWN
        for folder in (self.own.parent, self.own):
            given = folder.parent / "cgroup.subtree_control"
            given.write_text(controllers)
            self.kernel.make(folder)
        self.kernel.put(os.getpid(), self.own)
        self.kernel.log.clear()
        self._places = places(tmp_path, f"0::/{OWN}\n", "/ cg cgroup2 rw")

    def find(self) -> Layout | str:
        return cgroup.find_v2(self.kernel, self._places, "1-2-3")

    def base(self) -> Path:
        found = self.find()
        assert isinstance(found, Layout), found
        assert found.state == "full"
        return found.branches[0].base

    def reason(self) -> str:
        found = self.find()
        assert isinstance(found, str)
        assert "Delegate=yes" in found
        return found


@pytest.fixture
def helper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def test_alone_in_our_group_we_move_into_a_leaf_and_divide_it(machine: Machine) -> None:
    assert machine.base() == machine.own
    assert machine.kernel.log == [
        f"mkdir {OWN}/plugbay-host-1-2-3",
        f"{os.getpid()} {OWN}/plugbay-host-1-2-3/cgroup.procs",
        f"+memory +pids {OWN}/cgroup.subtree_control",
        f"+cpu {OWN}/cgroup.subtree_control",
    ]


def test_our_children_move_with_us(machine: Machine, helper: int) -> None:
    machine.kernel.put(helper, machine.own)
    assert machine.base() == machine.own
    assert machine.kernel.members(machine.own / "plugbay-host-1-2-3") == [os.getpid(), helper]


def test_a_group_without_processes_is_divided_at_once(machine: Machine) -> None:
    """As at the real root of the hierarchy, where processes are in nobody's way."""
    (machine.own / "cgroup.procs").write_text("")
    assert machine.base() == machine.own
    assert machine.kernel.folders(machine.own) == []


@pytest.mark.parametrize("stranger", [STRANGER, 0], ids=["another process", "one that we cannot see"])
def test_beside_a_foreign_process_no_process_is_moved_and_groups_are_made_next_to_ours(
    machine: Machine, stranger: int
) -> None:
    machine.kernel.put(stranger, machine.own)
    assert machine.base() == machine.own.parent
    assert machine.kernel.log == []


def test_in_a_leaf_groups_are_made_beside_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.base() == machine.own
    (tmp_path / "proc/self/cgroup").write_text(f"0::/{OWN}/plugbay-host-1-2-3\n")
    again = cgroup.find_v2(machine.kernel, Places(tmp_path / "cg", tmp_path / "proc"), "1-2-4")
    assert isinstance(again, Layout)
    assert again.branches[0].base == machine.own


def test_groups_beside_ours_would_escape_its_memory_limit_and_are_not_made(machine: Machine) -> None:
    machine.kernel.put(STRANGER, machine.own)
    (machine.own / "memory.max").write_text("1073741824\n")
    assert "bypass its memory limit" in machine.reason()


def test_the_group_above_is_not_changed_for_us(machine: Machine) -> None:
    machine.kernel.put(STRANGER, machine.own)
    (machine.own.parent / "cgroup.subtree_control").write_text("pids")
    assert "does not delegate" in machine.reason()
    assert machine.kernel.log == []


def test_at_the_top_of_the_visible_hierarchy_no_group_is_made_beside_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.kernel.put(STRANGER, machine.own)
    (tmp_path / "proc/self/mountinfo").write_text(f"1 1 0:1 /{OWN} {machine.own} rw - cgroup2 cgroup2 rw\n")
    found = cgroup.find_v2(machine.kernel, Places(tmp_path / "cg", tmp_path / "proc"), "h")
    assert isinstance(found, str)
    assert "no parent group" in found
    assert machine.kernel.log == []


def test_without_the_controllers_the_reason_names_them(tmp_path: Path) -> None:
    assert "has no memory" in Machine(tmp_path, "cpu pids").reason()


def test_without_cpu_the_rest_of_version_2_is_used(tmp_path: Path) -> None:
    found = Machine(tmp_path, "memory pids").find()
    assert isinstance(found, Layout)
    assert "cpu" in found.why


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("file", ["mkdir", "cgroup.subtree_control", "cgroup.procs"])
def test_whatever_is_refused_is_a_reason(machine: Machine, file: str, number: int) -> None:
    machine.kernel.refused[file] = number
    (machine.own / "memory.max").write_text("1\n")
    assert os.strerror(number) in machine.reason()


def test_if_our_group_stays_busy_we_move_back(machine: Machine) -> None:
    machine.kernel.refused["cgroup.subtree_control"] = errno.EBUSY
    assert machine.base() == machine.own.parent
    assert machine.kernel.members(machine.own) == [os.getpid()]
    assert machine.kernel.folders(machine.own) == []


def test_a_machine_on_which_our_group_is_not_in_sight_is_a_reason(tmp_path: Path) -> None:
    found = cgroup.find_v2(Files(), places(tmp_path, "0::/../x\n", "/ cg cgroup2 rw"), "h")
    assert isinstance(found, str)
    assert "not visible" in found


def test_the_limits_are_these_files() -> None:
    values = {one.file: (one.value, one.needed) for one in cgroup.settings(Limits(64 * MIB, cpu=0.5, processes=9))}
    assert values == {
        "memory.max": ("67108864", True),
        "memory.swap.max": ("0", False),
        "memory.oom.group": ("1", False),
        "pids.max": ("9", True),
        "cpu.max": ("50000 100000", False),
    }


def test_the_kernel_of_these_tests_has_the_rule_that_makes_the_move_necessary(machine: Machine) -> None:
    with pytest.raises(OSError, match="busy"):
        machine.kernel.write(machine.own / "cgroup.subtree_control", "+memory")


def test_a_helper_that_has_ended_does_not_prevent_the_move(machine: Machine) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(PATIENCE)
    machine.kernel.put(process.pid, machine.own)
    # The real kernel drops the dead from the list; ours does not, so the group stays busy and we move back.
    assert machine.base() == machine.own.parent
    assert machine.kernel.folders(machine.own) == []


ESCAPED = """
import os, signal, sys
print(os.getpid(), flush=True)
sys.stdin.readline()
def stop(): os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        stop()
    os._exit(0)
os.wait()
signal.pause()
"""
"""Says its pid, waits for a line, double-forks a process into a new session, which says its pid and stops."""
RESPAWNING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.stdin.readline()
for _ in range(4):
    os.fork()
print("up", flush=True)
while True:
    if os.fork():
        os._exit(0)
"""
"""Sixteen processes, each of which is replaced by its child all the time: a list of them is old when it is read."""


class WithoutKill(Files):
    """A kernel before 5.14."""

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        super().write(path, text)


class Listing(Files):
    """Groups whose members are what a test says, one list for each look; the last stays."""

    def __init__(self, *looks: list[int]) -> None:
        self.looks = list(looks)

    def members(self, folder: Path) -> list[int]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def soon() -> float:
    return time.monotonic() + PATIENCE


def make_in(controller: str) -> Iterator[Path]:
    base = Places(Path("/sys/fs/cgroup"), Path("/proc")).own(controller)
    assert base is not None
    folder = base / f"pbtest-{secrets.token_hex(8)}"
    folder.mkdir()
    yield folder
    cgroup.destroy_group(Files(), [folder], soon())
    assert not folder.exists()


@pytest.fixture
def unified() -> Iterator[Path]:
    yield from make_in(UNIFIED)


@pytest.fixture
def pids() -> Iterator[Path]:
    """Where the number of processes is limited: a hierarchy of its own, or the one for everything."""
    own = Places(Path("/sys/fs/cgroup"), Path("/proc"))
    yield from make_in("pids" if own.mounted("pids") else UNIFIED)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        yield process
        process.kill()


def answers(cat: subprocess.Popen[bytes]) -> bool:
    """A process that was sent SIGKILL may still be listed, but does nothing any more."""
    assert cat.stdin is not None
    assert cat.stdout is not None
    cat.stdin.write(b"!")
    return cat.stdout.read(1) == b"!"


def start(script: str, *folders: Path, flags: tuple[str, ...] = ("-I", "-S")) -> subprocess.Popen[str]:
    """A program that is in these groups before it does anything."""
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for folder in folders:
        Files().write(folder / "cgroup.procs", str(process.pid))
    return process


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def escaped(*folders: Path) -> tuple[subprocess.Popen[str], int]:
    """A leader and what left its session and stopped."""
    process = start(ESCAPED, *folders)
    line_of(process)
    go(process)
    away = int(line_of(process))
    until_blocking(lambda: state(away) == "T")
    return process, away


@needs_root
def test_a_stopped_double_forked_tree_in_another_session_dies(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        cgroup.kill_group(Files(), [unified])
        until_blocking(lambda: not exists(away))
        assert process.wait(PATIENCE) == -signal.SIGKILL
    until_blocking(lambda: "populated 0" in (unified / "cgroup.events").read_text())
    assert not cgroup.kill_group(Files(), [unified])


@needs_root
def test_a_signal_to_the_process_group_does_not_reach_that_tree(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        assert exists(away)


@needs_root
def test_a_frozen_group_dies_too(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        (unified / "cgroup.freeze").write_text("1")
        until_blocking(lambda: "frozen 1" in (unified / "cgroup.events").read_text())
        assert cgroup.destroy_group(Files(), [unified], soon())
        assert not exists(away)
        process.wait(PATIENCE)


@needs_root
def test_where_the_kernel_cannot_kill_a_group_each_process_is_killed(pids: Path) -> None:
    process, away = escaped(pids)
    with process:
        assert cgroup.destroy_group(WithoutKill(), [pids], soon())
        assert not exists(away)
        process.wait(PATIENCE)


@needs_root
def test_processes_that_fork_faster_than_they_are_listed_may_fork_no_more_and_die(pids: Path) -> None:
    (pids / "pids.max").write_text("64")
    with start(RESPAWNING, pids) as process:
        go(process)
        assert line_of(process) == "up"
        assert cgroup.kill_group(WithoutKill(), [pids])
        assert (pids / "pids.max").read_text() == "0\n"
        assert cgroup.destroy_group(WithoutKill(), [pids], soon())
    assert not pids.exists()


@needs_root
def test_a_process_that_joined_only_some_hierarchies_dies(unified: Path, pids: Path) -> None:
    process, away = escaped(pids)
    with process:
        assert cgroup.destroy_group(Files(), [unified, pids], soon())
        assert not exists(away)
        process.wait(PATIENCE)
    assert not unified.exists()


@needs_root
def test_groups_below_the_group_go_with_it(unified: Path) -> None:
    below = unified / "a" / "b"
    below.mkdir(parents=True)
    process, away = escaped(below)
    with process:
        assert cgroup.destroy_group(Files(), [unified], soon())
        assert not exists(away)
        process.wait(PATIENCE)
    assert not unified.exists()


def test_a_group_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert not cgroup.kill_group(Files(), [tmp_path / "gone"])
    assert cgroup.destroy_group(Files(), [tmp_path / "gone"], soon())


def test_a_process_that_is_not_in_the_group_any_more_is_not_hit(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Its number was listed, then used again by a stranger: the second look does not list it."""
    cgroup.kill_group(Listing([stranger.pid], []), [tmp_path])
    assert answers(stranger)
    cgroup.kill_group(Listing([stranger.pid]), [tmp_path])
    assert stranger.wait(PATIENCE) == -signal.SIGKILL


def test_we_ourselves_and_processes_without_a_number_are_never_hit(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    assert cgroup.kill_group(Listing([0, os.getpid(), stranger.pid]), [tmp_path])
    assert stranger.wait(PATIENCE) == -signal.SIGKILL
    assert not cgroup.kill_group(Listing([0]), [tmp_path])


def test_a_group_that_cannot_be_emptied_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    assert not cgroup.destroy_group(Listing([os.getpid()]), [group], time.monotonic())
    assert group.exists()


def test_a_folder_that_is_busy_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()

    class Busy(Listing):
        tries = 0

        def remove(self, folder: Path) -> None:
            self.tries += 1
            if self.tries < 4:
                raise OSError(16, "busy")
            super().remove(folder)

    assert not cgroup.destroy_group(Busy([]), [group], time.monotonic())
    assert cgroup.destroy_group(Busy([]), [group], soon())
    assert not group.exists()


def places(tmp_path: Path, cgroup: str, *mounts: str, root: str = "cg") -> Places:
    """`mounts`: group at the mount point, mount point below the temporary folder, type, options."""
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(cgroup)
    lines = ["20 1 0:1 / / rw,relatime shared:1 - ext4 /dev/vda rw"]
    for mount in mounts:
        group, point, kind, options = mount.split(" ")
        lines.append(f"31 23 0:28 {group} {tmp_path}/{point} rw,relatime shared:9 - {kind} {kind} {options}")
    (proc / "mountinfo").write_text("\n".join(lines) + "\n")
    return Places(tmp_path / root, tmp_path / "proc")


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_our_own_position_in_a_hierarchy_is_found_however_deep_it_is(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/memory/a/b")
    found = places(tmp_path, "4:memory:/a/b\n0::/\n", "/ cg/memory cgroup rw,memory")
    assert found.own("memory") == own


def test_a_container_that_sees_a_part_of_the_hierarchy_is_at_the_top_of_it(tmp_path: Path) -> None:
    top = folder(tmp_path / "cg")
    assert places(tmp_path, "0::/docker/x\n", "/docker/x cg cgroup2 rw").own(UNIFIED) == top


def test_a_name_that_only_begins_alike_is_another_group(tmp_path: Path) -> None:
    folder(tmp_path / "cg")
    assert places(tmp_path, "0::/docker/xy\n", "/docker/x cg cgroup2 rw").own(UNIFIED) is None


@pytest.mark.parametrize(("position", "group"), [("/../other", "/"), ("/a", "/../.."), ("/other", "/docker/x")])
def test_a_position_outside_of_the_mount_is_none(tmp_path: Path, position: str, group: str) -> None:
    folder(tmp_path / "cg/other")
    folder(tmp_path / "other")
    assert places(tmp_path, f"0::{position}\n", f"{group} cg cgroup2 rw").own(UNIFIED) is None


def test_a_position_that_is_not_there_is_none(tmp_path: Path) -> None:
    folder(tmp_path / "cg")
    assert places(tmp_path, "0::/gone\n", "/ cg cgroup2 rw").own(UNIFIED) is None


def test_the_first_mount_that_shows_our_position_is_taken(tmp_path: Path) -> None:
    folder(tmp_path / "cg/part")
    own = folder(tmp_path / "cg/whole/a")
    found = places(tmp_path, "0::/a\n", "/b cg/part cgroup2 rw", "/ cg/whole cgroup2 rw")
    assert found.own(UNIFIED) == own


def test_controllers_that_share_a_hierarchy_share_a_folder(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/cpu,cpuacct/u")
    found = places(tmp_path, "2:cpu,cpuacct:/u\n", "/ cg/cpu,cpuacct cgroup rw,cpu,cpuacct")
    assert found.own("cpu") == found.own("cpuacct") == own
    assert found.mounted("cpu")
    assert not found.mounted("memory")


def test_what_is_mounted_elsewhere_is_not_used(tmp_path: Path) -> None:
    folder(tmp_path / "elsewhere")
    found = places(tmp_path, "0::/\n", "/ elsewhere cgroup2 rw")
    assert found.own(UNIFIED) is None
    assert not found.mounted(UNIFIED)


def test_a_space_in_a_path_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/a b/x")
    assert places(tmp_path, "0::/x\n", "/ cg/a\\040b cgroup2 rw").own(UNIFIED) == own


def test_a_group_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/a:b")
    assert places(tmp_path, "0::/a:b\n", "/ cg cgroup2 rw").own(UNIFIED) == own


def test_a_control_file_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Files().write(tmp_path / "memory.max", "1")
    assert list(tmp_path.iterdir()) == []


def test_members_folders_and_words_are_read(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("0\n12\n13\n")
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    below = folder(tmp_path / "below")
    (tmp_path / "link").symlink_to(below)
    assert Files().members(tmp_path) == [0, 12, 13]
    assert Files().words(tmp_path / "cgroup.controllers") == {"cpu", "memory"}
    assert Files().folders(tmp_path) == [below]


def test_a_share_of_the_processors_is_never_less_than_the_kernel_takes() -> None:
    assert cpu_quota(Limits(cpu=1.5)) == 150_000
    assert cpu_quota(Limits(cpu=0.0001)) == 1_000

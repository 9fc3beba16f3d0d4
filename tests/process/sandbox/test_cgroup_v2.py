"""Version 2 as the kernel plays it: `Kernel` has real files in a temporary folder and the kernel's rules about them.

A machine whose memory and pids are version 2 and delegated cannot be had where these belong to version 1: a controller
is in one hierarchy for all mounts and namespaces. Killing, freezing and events are tested for real in
`test_cgroup_kill`.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.process.sandbox import cgroup_v2
from plugbay.process.sandbox.cgroup_files import Files, Layout, Places
from plugbay.process.sandbox.policy import MIB, Limits
from tests.process.sandbox.test_cgroup_files import places
from tests.support.patience import PATIENCE

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
        return cgroup_v2.find(self.kernel, self._places, "1-2-3")

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
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
def test_beside_a_stranger_nobody_is_moved_and_groups_are_made_next_to_ours(machine: Machine, stranger: int) -> None:
    machine.kernel.put(stranger, machine.own)
    assert machine.base() == machine.own.parent
    assert machine.kernel.log == []


def test_in_a_leaf_groups_are_made_beside_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.base() == machine.own
    (tmp_path / "proc/self/cgroup").write_text(f"0::/{OWN}/plugbay-host-1-2-3\n")
    again = cgroup_v2.find(machine.kernel, Places(tmp_path / "cg", tmp_path / "proc"), "1-2-4")
    assert isinstance(again, Layout)
    assert again.branches[0].base == machine.own


def test_groups_beside_ours_would_escape_its_memory_limit_and_are_not_made(machine: Machine) -> None:
    machine.kernel.put(STRANGER, machine.own)
    (machine.own / "memory.max").write_text("1073741824\n")
    assert "escape its memory limit" in machine.reason()


def test_the_group_above_is_not_changed_for_us(machine: Machine) -> None:
    machine.kernel.put(STRANGER, machine.own)
    (machine.own.parent / "cgroup.subtree_control").write_text("pids")
    assert "does not give" in machine.reason()
    assert machine.kernel.log == []


def test_at_the_top_of_what_we_see_there_is_nothing_beside_us(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.kernel.put(STRANGER, machine.own)
    (tmp_path / "proc/self/mountinfo").write_text(f"1 1 0:1 /{OWN} {machine.own} rw - cgroup2 cgroup2 rw\n")
    found = cgroup_v2.find(machine.kernel, Places(tmp_path / "cg", tmp_path / "proc"), "h")
    assert isinstance(found, str)
    assert "no group above" in found
    assert machine.kernel.log == []


def test_without_the_controllers_the_reason_names_them(tmp_path: Path) -> None:
    assert "has no memory" in Machine(tmp_path, "cpu pids").reason()


def test_without_cpu_the_rest_is_used_and_the_lack_is_told(tmp_path: Path) -> None:
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
    found = cgroup_v2.find(Files(), places(tmp_path, "0::/../x\n", "/ cg cgroup2 rw"), "h")
    assert isinstance(found, str)
    assert "not in sight" in found


def test_the_limits_are_these_files() -> None:
    values = {one.file: (one.value, one.needed) for one in cgroup_v2.settings(Limits(64 * MIB, cpu=0.5, processes=9))}
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


def test_a_helper_that_is_gone_is_in_nobodys_way(machine: Machine) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(PATIENCE)
    machine.kernel.put(process.pid, machine.own)
    # The real kernel drops the dead from the list; ours does not, so the group stays busy and we move back.
    assert machine.base() == machine.own.parent
    assert machine.kernel.folders(machine.own) == []

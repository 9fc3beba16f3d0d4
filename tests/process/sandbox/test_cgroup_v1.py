"""Version 1: which hierarchies are enough, and what is written into their files."""

from __future__ import annotations

from pathlib import Path

from plugbay.process.sandbox import cgroup_v1
from plugbay.process.sandbox.cgroup_files import Layout, Setting
from plugbay.process.sandbox.policy import MIB, Limits
from tests.process.sandbox.test_cgroup_files import folder, places

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
    layout = cgroup_v1.find(places(tmp_path, POSITIONS, MEMORY, PIDS, CPU))
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
    files = [setting.file for setting in written(cgroup_v1.find(found), Limits())[both]]
    memory = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"]
    assert files == [*memory, "pids.max"]


def test_without_cpu_the_rest_is_used_and_the_lack_is_told(tmp_path: Path) -> None:
    folder(tmp_path / "cg/memory/api/7")
    folder(tmp_path / "cg/pids/s")
    layout = cgroup_v1.find(places(tmp_path, POSITIONS, MEMORY, PIDS))
    assert isinstance(layout, Layout)
    assert "cpu" in layout.why


def test_a_kernel_that_does_not_limit_sockets_is_used_and_the_lack_is_told(tmp_path: Path) -> None:
    for name in ("memory/api/7", "pids/s", "cpu,cpuacct"):
        folder(tmp_path / "cg" / name)
    layout = cgroup_v1.find(places(tmp_path, POSITIONS, MEMORY, PIDS, CPU))
    assert isinstance(layout, Layout)
    assert layout.why.startswith("this kernel has no memory.kmem.tcp.limit_in_bytes")


def test_without_pids_there_is_no_place_and_the_reason_says_what_to_do(tmp_path: Path) -> None:
    folder(tmp_path / "cg/memory/api/7")
    why = cgroup_v1.find(places(tmp_path, POSITIONS, MEMORY))
    assert isinstance(why, str)
    assert "pids" in why
    assert "memory and" not in why
    assert "root" in why


def test_the_version_2_hierarchy_beside_them_is_found(tmp_path: Path) -> None:
    own = folder(tmp_path / "cg/unified/u")
    killer = cgroup_v1.killer(places(tmp_path, POSITIONS, MEMORY, "/ cg/unified cgroup2 rw"))
    assert killer is not None
    assert killer.base == own


def test_there_may_be_none_beside_them(tmp_path: Path) -> None:
    assert cgroup_v1.killer(places(tmp_path, POSITIONS, MEMORY)) is None

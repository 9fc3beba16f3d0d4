"""Where we are in the hierarchies, as the kernel tells it; and that a control file is written, never made."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.process.sandbox.cgroup_files import UNIFIED, Files, Places, cpu_quota
from plugbay.process.sandbox.policy import Limits


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
def test_a_position_outside_of_what_is_mounted_is_none(tmp_path: Path, position: str, group: str) -> None:
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

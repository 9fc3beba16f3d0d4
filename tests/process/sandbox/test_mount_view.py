"""A thread's own view of the mounts: sources appear in it, nobody else sees them, and it can be taken down."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from plugbay.process.sandbox import mount_view
from plugbay.process.sandbox.sources import open_source

T = TypeVar("T")


def on_a_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def namespace() -> str:
    return os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/mnt")


def test_sources_are_laid_out_by_descriptor_for_this_thread_alone(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "inner").mkdir(parents=True)
    (hidden / "inner" / "file").write_text("found")
    host = namespace()

    def work() -> None:
        mount_view.enter()
        mount_view.enter()
        assert namespace() != host
        sources = [open_source(str(hidden / name), ()) for name in ("inner", "inner/file")]
        hidden.rename(tmp_path / "renamed")  # the descriptor is what counts, not the name
        paths = mount_view.lay_out(sources)
        for source in sources:
            os.close(source.fd)
        assert paths == ["/tmp/0", "/tmp/1"]
        assert Path("/tmp/0/file").read_text() == Path("/tmp/1").read_text() == "found"
        assert os.stat("/tmp").st_mode & 0o777 == 0o711
        assert sorted(os.listdir("/tmp")) == ["0", "1"]
        mount_view.clear()
        assert (tmp_path / "renamed").is_dir()

    on_a_thread(work)
    assert namespace() == host
    assert not os.path.ismount("/tmp/0")


def test_what_the_host_mounts_later_is_seen_and_nothing_comes_back(tmp_path: Path) -> None:
    def work() -> str:
        mount_view.enter()
        mount_view._mount("tmpfs", str(tmp_path), "tmpfs", 0, None)
        (tmp_path / "here").touch()
        return Path(f"/proc/self/task/{threading.get_native_id()}/mountinfo").read_text()

    mounts = on_a_thread(work)
    assert str(tmp_path) in mounts
    assert " shared:" not in mounts
    assert list(tmp_path.iterdir()) == []


def test_mounts_where_no_plugin_may_look_are_not_in_the_view_unless_they_are_kept() -> None:
    """A thread begins with the view of the one that starts it."""
    covered = Path("/sys/fs/cgroup")
    host = Path("/proc/self/mountinfo").read_text()

    def seen_in_a_view_with(kept: Sequence[Path]) -> list[str]:
        def work() -> list[str]:
            mount_view.enter(kept)
            return os.listdir(covered)

        return on_a_thread(work)

    def work() -> None:
        mount_view.enter()
        mount_view._mount("tmpfs", str(covered), "tmpfs", 0, None)
        (covered / "here").touch()
        assert seen_in_a_view_with([covered / "deep" / "within"]) == ["here"]
        assert "here" not in seen_in_a_view_with([])
        assert os.listdir(covered) == ["here"]

    on_a_thread(work)
    assert Path("/proc/self/mountinfo").read_text() == host


def test_a_view_has_what_bubblewrap_and_plugins_need() -> None:
    points = "/ /proc /proc/acpi /sys /dev /dev/null /dev/pts /dev/pts /sys/kernel/debug /home /run /run/user/7 /runner"
    assert list(mount_view.needless(points.split(), ())) == ["/run/user/7", "/sys/kernel/debug", "/dev/pts", "/dev/pts"]


def test_a_view_has_every_mount_on_the_way_to_what_is_kept() -> None:
    points = [f"/sys/fs/cgroup{below}" for below in ("", "/cpu", "/cpuset", "/memory", "/memory/a")]
    kept = [Path("/sys/fs/cgroup/cpu/docker/x"), Path("/sys/fs/cgroup/memory")]
    assert list(mount_view.needless(points, kept)) == ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/cpuset"]


def test_a_layout_that_fails_leaves_no_stage(tmp_path: Path) -> None:
    def work() -> None:
        mount_view.enter()
        source = open_source(str(tmp_path), ())
        os.close(source.fd)
        with pytest.raises(OSError, match="mount"):
            mount_view.lay_out([source])
        assert tmp_path.is_dir()

    on_a_thread(work)

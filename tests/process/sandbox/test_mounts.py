"""Covers over protected paths, and the places of sources in the view of a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from plugbay.process.sandbox import mounts
from plugbay.process.sandbox.sources import open_source
from tests.process.sandbox.drivers import IDENTITIES, report
from tests.support.machine import needs_root

BOTH = pytest.mark.parametrize("identity", list(IDENTITIES))
HOW = pytest.mark.parametrize("how", ["read", "write", "package"])

SEEN = ["plugins/mine/program", "plain/note", "data: other:"]
"""What is left of the folder when the rest is hidden."""

REFUSED = ["file", "in a folder", "folder", "program", "turned link"]


@BOTH
@HOW
def test_what_is_hidden_is_empty_or_unreadable_within_whatever_is_shown(identity: str, how: str) -> None:
    assert report(identity, "covers")[f"hidden {how}"].splitlines() == SEEN


@BOTH
@HOW
def test_the_same_folder_without_covers_shows_all_of_it(identity: str, how: str) -> None:
    seen = report(identity, "covers")[f"open {how}"].splitlines()
    assert seen[:4] == ["plugbay.toml", "data/token", "deep/inner/data/token", "#!/bin/sh"]
    assert seen[-1] == "data: token other: bin"


@BOTH
def test_a_plugin_that_writes_around_it_neither_changes_nor_moves_it(identity: str) -> None:
    left = report(identity, "covers")["hidden left"]
    assert left == {
        "data/token": "data/token",
        "deep/inner/data/token": "deep/inner/data/token",
        "plain/new": "written",
        "plain/note": "plain/note",
        "plugbay.toml": "plugbay.toml",
        "plugins/mine/program": "plugins/mine/program",
        "plugins/other/bin/program": "#!/bin/sh",
    }


@BOTH
def test_the_same_attacks_without_covers_succeed(identity: str) -> None:
    left = report(identity, "covers")["open left"]
    assert left["plugbay.toml"] == "evil"
    assert left["moved/inner/data/token"] == "deep/inner/data/token"
    assert "plugins/other/bin/program" not in left


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_hidden_is_never_shown_itself(identity: str, case: str) -> None:
    failure = report(identity, "covers")[f"hidden {case}"]
    assert failure["kind"] == "SandboxUnavailable"
    words = "a link that the host follows" if case == "turned link" else "the host or to another plugin"
    assert words in failure["message"] and failure["hint"]


@BOTH
@pytest.mark.parametrize("case", [f"open {case}" for case in REFUSED] + ["hidden turned link, read"])
def test_what_is_not_hidden_is_shown(identity: str, case: str) -> None:
    assert report(identity, "covers")[case] == {"kind": "started"}


@BOTH
def test_everything_that_is_visible_is_announced_and_nothing_else(identity: str) -> None:
    said = report(identity, "covers")
    announced = {path: how for how, path in said["announced"]}
    mounts = {path for path in said["mounts"] if path != "/" and not path.startswith(("/proc", "/dev"))}
    bound = {path for path, how in announced.items() if how in ("read-only", "writable", "empty", "unreadable")}
    assert mounts - {"/tmp"} == {path for path in bound if not path.startswith("/proc")}
    assert {"/tmp", "/proc", "/dev"} <= set(announced)
    assert [how for path, how in announced.items() if path.endswith("/data")] == ["empty", "empty"]
    assert [how for path, how in announced.items() if path.endswith("plugbay.toml")] == ["unreadable"]


T = TypeVar("T")


def on_a_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def namespace() -> str:
    return os.readlink(f"/proc/self/task/{threading.get_native_id()}/ns/mnt")


@needs_root
def test_sources_are_laid_out_by_descriptor_for_this_thread_alone(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "inner").mkdir(parents=True)
    (hidden / "inner" / "file").write_text("found")
    host = namespace()

    def work() -> None:
        mounts.enter()
        mounts.enter()
        assert namespace() != host
        sources = [open_source(str(hidden / name), ()) for name in ("inner", "inner/file")]
        hidden.rename(tmp_path / "renamed")  # the descriptor is what counts, not the name
        paths = mounts.lay_out(sources)
        for source in sources:
            os.close(source.fd)
        assert paths == ["/tmp/0", "/tmp/1"]
        assert Path("/tmp/0/file").read_text() == Path("/tmp/1").read_text() == "found"
        assert os.stat("/tmp").st_mode & 0o777 == 0o711
        assert sorted(os.listdir("/tmp")) == ["0", "1"]
        mounts.clear()
        assert (tmp_path / "renamed").is_dir()

    on_a_thread(work)
    assert namespace() == host
    assert not os.path.ismount("/tmp/0")


@needs_root
def test_what_the_host_mounts_later_is_seen_and_nothing_comes_back(tmp_path: Path) -> None:
    def work() -> str:
        mounts.enter()
        mounts._mount("tmpfs", str(tmp_path), "tmpfs", 0, None)
        (tmp_path / "here").touch()
        return Path(f"/proc/self/task/{threading.get_native_id()}/mountinfo").read_text()

    table = on_a_thread(work)
    assert str(tmp_path) in table
    assert " shared:" not in table
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_mounts_where_no_plugin_may_look_are_not_in_the_view_unless_they_are_kept() -> None:
    """A thread begins with the view of the one that starts it."""
    covered = Path("/sys/fs/cgroup")
    host = Path("/proc/self/mountinfo").read_text()

    def seen_in_a_view_with(kept: Sequence[Path]) -> list[str]:
        def work() -> list[str]:
            mounts.enter(kept)
            return os.listdir(covered)

        return on_a_thread(work)

    def work() -> None:
        mounts.enter()
        mounts._mount("tmpfs", str(covered), "tmpfs", 0, None)
        (covered / "here").touch()
        assert seen_in_a_view_with([covered / "deep" / "within"]) == ["here"]
        assert "here" not in seen_in_a_view_with([])
        assert os.listdir(covered) == ["here"]

    on_a_thread(work)
    assert Path("/proc/self/mountinfo").read_text() == host


def test_a_view_has_all_mounts_that_bubblewrap_and_plugins_need() -> None:
    points = "/ /proc /proc/acpi /sys /dev /dev/null /dev/pts /dev/pts /sys/kernel/debug /home /run /run/user/7 /runner"
    assert list(mounts.needless(points.split(), ())) == ["/run/user/7", "/sys/kernel/debug", "/dev/pts", "/dev/pts"]


def test_a_view_has_every_mount_on_the_way_to_a_kept_path() -> None:
    points = [f"/sys/fs/cgroup{below}" for below in ("", "/cpu", "/cpuset", "/memory", "/memory/a")]
    kept = [Path("/sys/fs/cgroup/cpu/docker/x"), Path("/sys/fs/cgroup/memory")]
    assert list(mounts.needless(points, kept)) == ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/cpuset"]


@needs_root
def test_a_layout_that_fails_leaves_no_stage(tmp_path: Path) -> None:
    def work() -> None:
        mounts.enter()
        source = open_source(str(tmp_path), ())
        os.close(source.fd)
        with pytest.raises(OSError, match="mount"):
            mounts.lay_out([source])
        assert tmp_path.is_dir()

    on_a_thread(work)

"""Opening below a folder: by the kernel's own call and by the walk, with the same answers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugbay.host.disk import open_beneath as module
from plugbay.host.disk.open_beneath import by_openat2, by_walking, open_beneath

Opener = Callable[[int, str, int], int]
WAYS = pytest.mark.parametrize("opener", [by_openat2, by_walking])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    """`in/a/b.txt` inside and `out/secret.txt` outside, with links from one to the other."""
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "a" / "b.txt").write_bytes(b"inside")
    (tmp_path / "out" / "secret.txt").write_bytes(b"outside")
    (tmp_path / "in" / "file_link").symlink_to(tmp_path / "out" / "secret.txt")
    (tmp_path / "in" / "folder_link").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "inner_link").symlink_to("a")
    fd = os.open(tmp_path / "in", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def contents(opener: Opener, root: int, path: str) -> bytes:
    fd = opener(root, path, os.O_RDONLY)
    try:
        assert not os.get_inheritable(fd)
        return os.read(fd, 100)
    finally:
        os.close(fd)


@WAYS
def test_a_file_below_the_folder_is_opened(root: int, opener: Opener) -> None:
    assert contents(opener, root, "a/b.txt") == b"inside"


@WAYS
@pytest.mark.parametrize("path", ["file_link", "folder_link/secret.txt", "inner_link/b.txt"])
def test_no_link_is_followed_wherever_it_leads(root: int, opener: Opener, path: str) -> None:
    with pytest.raises(OSError) as caught:
        contents(opener, root, path)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    naive = os.open(path, os.O_RDONLY, dir_fd=root)
    os.close(naive)


@WAYS
@pytest.mark.parametrize("path", ["../out/secret.txt", "a/../../out/secret.txt", ".."])
def test_nothing_above_the_folder_is_opened(root: int, opener: Opener, path: str) -> None:
    with pytest.raises(OSError) as caught:
        contents(opener, root, path)
    assert caught.value.errno == errno.EXDEV


@WAYS
def test_a_missing_path_fails_and_leaves_no_descriptor_open(root: int, opener: Opener) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        contents(opener, root, "a/none.txt")
    with pytest.raises(FileNotFoundError):
        contents(opener, root, "none/b.txt")
    assert os.listdir("/proc/self/fd") == before


@WAYS
def test_the_folder_itself_can_be_opened(root: int, opener: Opener) -> None:
    fd = opener(root, ".", os.O_RDONLY | os.O_DIRECTORY)
    assert "a" in os.listdir(fd)
    os.close(fd)


def test_without_the_call_the_path_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")

    def missing(parent: int, path: str, flags: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(module, "by_openat2", missing)
    os.close(open_beneath(str(tmp_path), "a", os.O_RDONLY))
    with pytest.raises(OSError) as caught:
        open_beneath(str(tmp_path), "link", os.O_RDONLY)
    assert caught.value.errno == errno.ELOOP


def test_other_systems_lack_the_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(OSError) as caught:
        by_openat2(0, "a", os.O_RDONLY)
    assert caught.value.errno == errno.ENOSYS

"""What is opened to be shown: the thing that was meant, through no link that was not looked at."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.failures import SandboxUnavailable
from plugbay.process.sandbox import sources
from plugbay.process.sandbox.sources import open_source
from tests.process.helpers import open_fds


def refusal(path: str | Path, homes: tuple[str, ...] = ()) -> str:
    before = open_fds()
    with pytest.raises(SandboxUnavailable) as caught:
        open_source(str(path), homes)
    assert open_fds() == before
    return caught.value.message


def test_a_folder_and_a_file_are_held_by_a_descriptor_that_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for path, folder in ((tmp_path, True), (tmp_path / "file", False)):
        source = open_source(f"{path}/" if folder else str(path), ())
        try:
            assert (source.path, source.resolved, source.folder) == (str(path), str(path), folder)
            assert os.path.samestat(os.fstat(source.fd), path.stat())
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.read(source.fd, 1)
        finally:
            os.close(source.fd)


def test_links_on_the_way_are_followed_once_and_the_last_part_must_be_none(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    source = open_source(f"{tmp_path}/link/inner", ())
    os.close(source.fd)
    assert (source.path, source.resolved) == (f"{tmp_path}/link/inner", f"{tmp_path}/real/inner")
    assert "is a symbolic link" in refusal(tmp_path / "link")
    assert "is a symbolic link" in refusal(f"{tmp_path}/link/")
    allowed = open_source(f"{tmp_path}/link", (), links=True)
    os.close(allowed.fd)
    assert allowed.resolved == f"{tmp_path}/real"


def test_both_spellings_are_held_against_the_list(tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "keys").mkdir(parents=True)
    (tmp_path / "innocent").symlink_to(".ssh")
    homes = (str(tmp_path),)
    assert "lies within" in refusal(tmp_path / ".ssh", homes)
    assert "lies within" in refusal(tmp_path / "innocent" / "keys", homes)
    assert "lies within" in refusal(tmp_path, homes)
    os.close(open_source(f"{tmp_path}/innocent/keys", ()).fd)


def test_a_folder_that_is_swapped_for_a_link_at_the_last_moment_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "granted" / "inner").mkdir(parents=True)
    (tmp_path / "secret" / "inner").mkdir(parents=True)
    resolve = sources._resolved

    def swap(path: str, links: bool) -> str:
        resolved = resolve(path, links)
        (tmp_path / "granted").rename(tmp_path / "gone")
        (tmp_path / "granted").symlink_to("secret")
        return resolved

    os.close(open_source(f"{tmp_path}/granted/inner", ()).fd)
    monkeypatch.setattr(sources, "_resolved", swap)
    assert "cannot be opened" in refusal(tmp_path / "granted" / "inner")


def test_a_last_part_that_is_swapped_for_a_link_is_noticed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("/etc")
    monkeypatch.setattr(sources, "_resolved", lambda path, links: path)
    assert "swapped for a symbolic link" in refusal(tmp_path / "link")


def test_a_last_part_that_becomes_a_link_right_after_the_look_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "granted").mkdir()
    (tmp_path / "secret").mkdir()
    look = os.lstat
    seen: list[str] = []

    def swap(path: str, **more: Any) -> os.stat_result:
        found = look(path, **more)
        if path == str(tmp_path / "granted") and not seen:
            seen.append(path)
            (tmp_path / "granted").rmdir()
            (tmp_path / "granted").symlink_to("secret")
        return found

    monkeypatch.setattr(os, "lstat", swap)
    assert "swapped for a symbolic link" in refusal(tmp_path / "granted")
    assert seen


@pytest.mark.parametrize("path", ["/.", "/../{0}", "/./../{0}/."])
def test_dots_at_the_end_mean_the_folder_that_they_lead_to(tmp_path: Path, path: str) -> None:
    source = open_source(f"{tmp_path}{path.format(tmp_path.name)}", ())
    os.close(source.fd)
    assert (source.path, source.resolved) == (str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("path", ["relative", "", "/a\0b"])
def test_what_is_no_absolute_path_is_refused(path: str) -> None:
    assert "no absolute path" in refusal(path)


def test_what_is_missing_or_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    assert "neither a folder nor a file" in refusal(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert "neither a folder nor a file" in refusal(tmp_path / "socket")

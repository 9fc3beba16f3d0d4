"""Forbidden paths, and sources that are opened without following a link."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.sandbox import sources
from plugbay.process.sandbox.sources import (
    AT_HOME,
    PLACES,
    RUN_AT_HOME,
    forbidden,
    home_folders,
    host_code,
    normalised,
    open_source,
)
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
    assert "is inside" in refusal(tmp_path / ".ssh", homes)
    assert "is inside" in refusal(tmp_path / "innocent" / "keys", homes)
    assert "is inside" in refusal(tmp_path, homes)
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
    assert "not an absolute path" in refusal(path)


def test_what_is_missing_or_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    assert "neither a folder nor a file" in refusal(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert "neither a folder nor a file" in refusal(tmp_path / "socket")


HOMES = ("/root", "/data/me")


@pytest.mark.parametrize("entry", PLACES)
def test_a_place_is_forbidden_with_all_that_is_in_it_and_around_it(entry: str) -> None:
    for path in (entry, f"{entry}/deep/er", os.path.dirname(entry), f"/x/..{entry}/./", f"/{entry}"):
        assert forbidden(path, HOMES), path
    assert forbidden("/", HOMES)


@pytest.mark.parametrize("entry", PLACES)
def test_a_name_that_only_begins_the_same_is_not_meant(entry: str) -> None:
    assert forbidden(f"{entry}x", ()) in (None, f"{entry}-")


@pytest.mark.parametrize("home", ["/root", "/data/me", "/home/anybody"])
@pytest.mark.parametrize("name", AT_HOME)
def test_credentials_are_forbidden_in_every_home(home: str, name: str) -> None:
    assert forbidden(f"{home}/{name}", HOMES) == f"{home}/{name}"
    assert forbidden(f"{home}/{name}/id", HOMES)
    assert forbidden(f"{home}/notes/../{name}", HOMES)


@pytest.mark.parametrize("home", ["/root", "/data/me", "/home/anybody"])
@pytest.mark.parametrize("name", RUN_AT_HOME)
def test_what_runs_as_the_user_may_be_read_and_not_written(home: str, name: str) -> None:
    assert forbidden(f"{home}/{name}", HOMES, writing=True) == f"{home}/{name}"
    assert forbidden(f"{home}/{name}", HOMES) is None


def test_the_hosts_own_code_may_be_read_and_not_written() -> None:
    assert os.path.dirname(os.path.realpath(pytest.__file__)).startswith(host_code())
    for path in (*host_code(), f"{host_code()[0]}/deep"):
        assert forbidden(path, (), writing=True)
    assert forbidden("/srv/code", (), writing=True) is None
    assert forbidden(str(Path(os.path.realpath(os.__file__)).parent), ()) is None


@pytest.mark.parametrize("path", ["/root", "/home", "/home/anybody", "/data/me", "/data", "/home/anybody/.config"])
def test_a_home_is_forbidden_as_a_whole(path: str) -> None:
    assert forbidden(path, HOMES)


@pytest.mark.parametrize(
    "path",
    ["/home/a/notes", "/root/.pyenv/versions/3.11", "/srv/data", "/var/lib/mine", "/home/a/.sshx", "/opt", "/tmp/x"],
)
def test_ordinary_folders_are_not_forbidden(path: str) -> None:
    assert forbidden(path, HOMES) is None


def test_a_home_that_is_a_link_counts_under_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    homes = home_folders({"HOME": f"{tmp_path}/link/"})
    assert {f"{tmp_path}/link", f"{tmp_path}/real", "/root"} <= set(homes)
    assert forbidden(f"{tmp_path}/real/.ssh", homes)
    assert not forbidden(f"{tmp_path}/real/.ssh", home_folders({"HOME": "relative"}))


@pytest.mark.parametrize(
    ("path", "clean"), [("//a//b/", "/a/b"), ("/a/./b/..", "/a"), ("/../..", "/"), ("/", "/"), ("///", "/")]
)
def test_a_path_has_one_spelling(path: str, clean: str) -> None:
    assert normalised(path) == clean

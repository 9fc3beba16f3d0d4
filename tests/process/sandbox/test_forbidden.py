"""What nobody is shown, however it is spelled and from whichever side it is approached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.process.sandbox.forbidden import (
    AT_HOME,
    PLACES,
    RUN_AT_HOME,
    forbidden,
    home_folders,
    host_code,
    normalised,
)

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

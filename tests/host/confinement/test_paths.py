"""What becomes of a granted path: shown, left out, made, or a refusal. Real files and links, no sandbox needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.host.confinement.paths import HITS_DENYLIST, RESOLUTION_FAILED, Paths, Unshowable
from plugbay.model.protected import DATABASE, Entry, Protected


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ada"
    (folder / "notes").mkdir(parents=True)
    (folder / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def land(tmp_path: Path) -> Path:
    """A folder without a home in it."""
    folder = tmp_path / "land"
    folder.mkdir()
    return folder


def test_what_is_there_may_be_read_by_the_name_it_was_granted_by(home: Path, tmp_path: Path) -> None:
    paths = Paths(home)
    paths.may_read(["~/notes", str(tmp_path / "." / "ada" / "notes"), "/usr/share"])
    assert (list(paths.read), paths.notes) == ([home / "notes", Path("/usr/share")], [])


def test_what_is_not_there_cannot_be_read_and_that_is_said(home: Path) -> None:
    paths = Paths(home)
    paths.may_read(["~/gone", "~/notes"])
    assert list(paths.read) == [home / "notes"]
    assert paths.notes == [f"it may read {home}/gone, and there is no such path"]


@pytest.mark.parametrize(
    ("mode", "owner", "is_shown"),
    [
        (0o755, 0, True),
        (0o700, 0, False),
        (0o754, 0, False),
        (0o700, 2_000_000_007, True),
        (0o077, 2_000_000_007, False),
    ],
)
def test_what_the_plugins_own_user_cannot_read_is_left_out_and_that_is_said(
    home: Path, mode: int, owner: int, is_shown: bool
) -> None:
    folder = home / "notes"
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    paths = Paths(home, user=2_000_000_007)
    paths.may_read(["~/notes"])
    assert list(paths.read) == ([folder] if is_shown else [])
    said = f"it may read {folder}, and its user 2000000007 cannot: chmod o+rX it, or setfacl"
    assert paths.notes == ([] if is_shown else [said])
    plain = Paths(home)
    plain.may_read(["~/notes"])
    assert (list(plain.read), plain.notes) == ([folder], [])


@pytest.mark.parametrize(
    "named",
    [
        "~",
        "~/.ssh",
        "~/.ssh/id_rsa",
        "/",
        "/etc",
        "/etc/shadow",
        "/etc/",
        "/proc/1",
        "/home/bob/.aws",
        "/home",
        "/dev/sda",
    ],
)
def test_nothing_that_gives_the_machine_or_its_user_away_may_be_written(home: Path, named: str) -> None:
    with pytest.raises(Unshowable, match="must not be shown to a plugin") as caught:
        Paths(home).may_write([named])
    assert caught.value.rule == HITS_DENYLIST


@pytest.mark.parametrize("named", ["~", "~/.ssh", "/", "/etc", "/proc", "/sys/kernel"])
def test_nor_read(home: Path, named: str) -> None:
    with pytest.raises(Unshowable, match="must not be shown to a plugin"):
        Paths(home).may_read([named])


def test_a_link_does_not_make_it_another_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to(home / ".ssh")
    (tmp_path / "harmless").symlink_to(home / "notes")
    (home / ".ssh" / "keys").mkdir()
    for named in ("innocent", "innocent/keys"):
        with pytest.raises(Unshowable, match=f"{named}, which is {home}/.ssh") as caught:
            Paths(home).may_read([str(tmp_path / named)])
        assert caught.value.rule == HITS_DENYLIST
    control = Paths(home)
    control.may_read([str(tmp_path / "harmless")])
    assert list(control.read) == [tmp_path / "harmless"]


def test_a_contract_may_show_less_than_anybody_else(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "bank" / "vault"
    (secret / "a").mkdir(parents=True)
    (tmp_path / "way").symlink_to(secret / "a")
    Paths(home).may_read([str(secret / "a")])
    for named in (secret, secret / "a", tmp_path / "way", tmp_path / "bank"):
        with pytest.raises(Unshowable, match=f"lies within {secret}"):
            Paths(home, (str(secret),)).may_read([str(named)])


def test_nothing_protected_is_shown_or_written_but_for_the_plugins_own(home: Path, land: Path) -> None:
    data = land / "data"
    (data / "packages" / "mine").mkdir(parents=True)
    (data / "key").touch()
    (land / "link").symlink_to(data / "key")
    entry = Entry(str(data), "the server's data folder")
    known = Protected((entry,), own=(str(data / "packages" / "mine"),))
    for named in (data, data / "key", land / "link", data / "packages"):
        for asks in (Paths.may_read, Paths.may_write):
            with pytest.raises(Unshowable, match="the server's data folder"):
                asks(Paths(home, protected=known), [str(named)])
        Paths(home).may_read([str(named)])
    paths = Paths(home, protected=known)
    paths.may_read([str(data / "packages" / "mine"), str(land)])
    assert list(paths.read) == [data / "packages" / "mine", land]


def test_a_folder_of_plugins_is_read_and_never_written(home: Path, land: Path) -> None:
    shelf = land / "plugins"
    (shelf / "notes").mkdir(parents=True)
    paths = Paths(home, protected=Protected(shelves=(str(shelf),)))
    paths.may_read([str(shelf)])
    for named in (shelf, shelf / "notes"):
        with pytest.raises(Unshowable, match="the host looks for plugins in"):
            paths.may_write([str(named)])
    around = Paths(home, protected=Protected(shelves=(str(shelf),)))
    around.may_write([str(land)])
    assert (list(around.write), list(around.read)) == ([land], [shelf])


def test_a_folder_with_a_database_in_it_is_read_and_not_written(home: Path, land: Path) -> None:
    (land / "a").mkdir()
    memory = Entry(str(land / "a" / "memory.db"), "the memory of all agents", DATABASE)
    paths = Paths(home, protected=Protected((memory,)))
    paths.may_read([str(land)])
    with pytest.raises(Unshowable, match="whoever writes beside a database can change it"):
        paths.may_write([str(land)])
    covered = Paths(home, protected=Protected((memory, Entry(str(land / "a"), "data"))))
    covered.may_write([str(land)])
    assert list(covered.write) == [land]


def test_where_there_is_nothing_nothing_can_be_written(home: Path) -> None:
    with pytest.raises(Unshowable, match=r"may write .*/gone, and there is no such path") as caught:
        Paths(home).may_write(["~/notes", "~/gone"])
    assert (caught.value.rule, "make it" in caught.value.hint) == (RESOLUTION_FAILED, True)
    control = Paths(home)
    control.may_write(["~/notes"])
    assert list(control.write) == [home / "notes"]


def test_programs_are_shown_unless_everybody_sees_them(home: Path, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    paths = Paths(home)
    paths.may_run(["tool", "/usr/bin/env", "", "no-such-tool", "/opt/no/such"], f"{tool.parent}:/usr/bin")
    assert list(paths.run) == [tool]
    assert paths.notes == [
        "it may run no-such-tool, and there is no such program",
        "it may run /opt/no/such, and there is no such path",
    ]


def test_what_the_host_only_tells_of_is_left_out_where_it_may_not_be_shown(home: Path) -> None:
    paths = Paths(home)
    paths.may_see(home)
    paths.may_see(home / "notes")
    assert list(paths.read) == [home / "notes"]
    assert "must not be shown" in paths.notes[0]


def test_a_folder_of_its_own_is_written_and_made(home: Path) -> None:
    paths = Paths(home)
    paths.has(home / "new")
    assert (list(paths.write), list(paths.own)) == ([home / "new"], [home / "new"])
    assert not (home / "new").exists()

"""`plugbay paths` shows where files go, and follows XDG."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli.paths import CONFIG_NAME, config_in_use, directories
from plugbay.host.config import config
from tests.cli.conftest import Run

KEYS = ["config", "data", "state", "cache", "log", "runtime", "config_file"]


def test_the_json_names_every_directory(run: Run, tmp_path: Path) -> None:
    done = run("paths", "--json")
    assert done.code == 0
    assert done.err == ""
    assert list(done.json) == KEYS
    assert done.json["config"] == str(tmp_path / ".config" / "plugbay")
    assert done.json["state"] == str(tmp_path / ".local" / "state" / "plugbay")
    assert done.json["config_file"] is None
    assert not (tmp_path / ".config").exists(), "showing a path must not create it"


def test_xdg_variables_are_followed(run: Run, tmp_path: Path) -> None:
    done = run("paths", "--json", XDG_STATE_HOME=str(tmp_path / "s"), XDG_CACHE_HOME=str(tmp_path / "c"))
    assert done.json["state"] == str(tmp_path / "s" / "plugbay")
    assert done.json["log"].startswith(done.json["state"])
    assert done.json["cache"] == str(tmp_path / "c" / "plugbay")


def test_a_person_sees_one_path_a_line(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").touch()
    lines = run("paths").out.splitlines()
    assert [line.split()[0] for line in lines] == [*KEYS[:-1], "plugbay.toml"]
    assert lines[-1].split() == ["plugbay.toml", str(cwd / "plugbay.toml")]


def test_the_config_is_the_named_one_or_the_one_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config_in_use() is None
    assert config_in_use(Path("other.toml")) == Path("other.toml")
    (tmp_path / CONFIG_NAME).touch()
    assert config_in_use() == Path(CONFIG_NAME)


def test_the_name_of_the_config_is_the_hosts() -> None:
    assert config.FILE_NAME == CONFIG_NAME


def test_every_directory_is_absolute_and_of_plugbay() -> None:
    for path in directories().values():
        assert path.is_absolute()
        assert "plugbay" in path.parts

"""Settings on disk: real files, real modes, real links."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config.settings_files import (
    MAX_BYTES,
    changing,
    file_name,
    load_config,
    load_secrets,
    save_config,
    save_secrets,
)
from plugbay.model.errors import ConfigInvalid
from tests.support.requirements import requirement

Save = Callable[[Path, str, Mapping[str, Any]], None]
Load = Callable[[Path, str], dict[str, Any]]

VALUE = {"b": [1, 0.5, None, True], "a": {"é": "ü\n"}}


@pytest.fixture(params=["config", "secrets"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def save(kind: str) -> Save:
    return save_config if kind == "config" else save_secrets


@pytest.fixture
def load(kind: str) -> Load:
    return load_config if kind == "config" else load_secrets


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(folder: Path, kind: str, data: bytes) -> Path:
    """A file that somebody else wrote, as private as it must be."""
    (folder / kind).mkdir(0o700)
    path = folder / kind / "p.json"
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def code_of(problem: pytest.ExceptionInfo[ConfigInvalid]) -> str:
    (found,) = problem.value.problems
    return found.code


def test_what_was_saved_is_loaded(tmp_path: Path, save: Save, load: Load) -> None:
    folder = tmp_path / "not" / "there"
    assert load(folder, "p") == {}
    save(folder, "p", VALUE)
    assert load(folder, "p") == VALUE
    assert load(folder, "q") == {}
    save(folder, "p", {})
    assert load(folder, "p") == {}


def test_config_and_secrets_do_not_mix(tmp_path: Path) -> None:
    save_config(tmp_path, "p", {"a": 1})
    save_secrets(tmp_path, "p", {"b": 2})
    assert (load_config(tmp_path, "p"), load_secrets(tmp_path, "p")) == ({"a": 1}, {"b": 2})
    assert (tmp_path / "config" / "p.json").read_text() == '{\n  "a": 1\n}\n'


@requirement("kaged:host-secrets-private")
@pytest.mark.usefixtures("usual_umask")
def test_secrets_are_for_nobody_elses_eyes(tmp_path: Path) -> None:
    save_secrets(tmp_path, "p", VALUE)
    save_config(tmp_path, "p", VALUE)
    assert (mode(tmp_path / "secrets"), mode(tmp_path / "secrets" / "p.json")) == (0o700, 0o600)
    assert (mode(tmp_path / "config"), mode(tmp_path / "config" / "p.json")) == (0o755, 0o644)


@requirement("kaged:host-secrets-private")
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601])
def test_secrets_that_others_can_get_at_are_refused(tmp_path: Path, bits: int) -> None:
    path = put(tmp_path, "secrets", b'{"a": 1}')
    assert load_secrets(tmp_path, "p") == {"a": 1}
    path.chmod(bits)
    with pytest.raises(ConfigInvalid, match=f"chmod 600 {path}") as problem:
        load_secrets(tmp_path, "p")
    assert code_of(problem) == "not_private"


@requirement("kaged:host-secrets-private")
def test_a_folder_of_secrets_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "secrets", b"{}")
    (tmp_path / "secrets").chmod(0o750)
    with pytest.raises(ConfigInvalid, match="chmod 700"):
        load_secrets(tmp_path, "p")
    with pytest.raises(ConfigInvalid, match="chmod 700"):
        save_secrets(tmp_path, "p", {})


@requirement("kaged:host-secrets-private")
def test_saving_secrets_closes_a_file_that_was_open(tmp_path: Path) -> None:
    path = put(tmp_path, "secrets", b"{}")
    path.chmod(0o666)
    save_secrets(tmp_path, "p", {"a": 1})
    assert mode(path) == 0o600


def test_a_config_that_others_can_read_is_loaded(tmp_path: Path) -> None:
    put(tmp_path, "config", b'{"a": 1}').chmod(0o644)
    assert load_config(tmp_path, "p") == {"a": 1}


def test_a_link_is_not_read_through(tmp_path: Path, kind: str, load: Load) -> None:
    path = put(tmp_path, kind, b'{"a": 1}')
    target = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(target)
    with pytest.raises(ConfigInvalid) as problem:
        load(tmp_path, "p")
    assert code_of(problem) == "unreadable"


def test_a_link_is_not_written_through(tmp_path: Path, kind: str, save: Save, load: Load) -> None:
    path = put(tmp_path, kind, b'{"a": 1}')
    target = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(target)
    save(tmp_path, "p", {"a": 2})
    assert target.read_text() == '{"a": 1}'
    assert not path.is_symlink()
    assert load(tmp_path, "p") == {"a": 2}


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, kind: str, save: Save, load: Load) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (tmp_path / kind).symlink_to(elsewhere)
    with pytest.raises(ConfigInvalid, match="cannot be written"):
        save(tmp_path, "p", {})
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load(tmp_path, "p")
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_the_place_of_a_file_blocks_nobody(tmp_path: Path, kind: str, load: Load) -> None:
    put(tmp_path, kind, b"").unlink()
    os.mkfifo(tmp_path / kind / "p.json", 0o600)
    with pytest.raises(ConfigInvalid, match="ordinary file"):
        load(tmp_path, "p")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "parse_error"),
        (b"{", "parse_error"),
        (b'{"a": NaN}', "parse_error"),
        (b'{"a": 1, "a": 2}', "parse_error"),
        (b"\xff", "parse_error"),
        (b"[]", "invalid_type"),
        (b"{}" + b" " * MAX_BYTES, "unreadable"),
    ],
)
def test_a_file_of_no_use_is_a_problem(tmp_path: Path, kind: str, load: Load, data: bytes, code: str) -> None:
    put(tmp_path, kind, data)
    with pytest.raises(ConfigInvalid) as problem:
        load(tmp_path, "p")
    assert code_of(problem) == code


@requirement("kaged:host-secrets-untold")
def test_a_broken_file_of_secrets_is_not_quoted(tmp_path: Path) -> None:
    put(tmp_path, "secrets", b'{"key": "sesame-\xff"}')
    with pytest.raises(ConfigInvalid) as problem:
        load_secrets(tmp_path, "p")
    assert "sesame" not in str(problem.value)
    assert problem.value.__cause__ is None


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": {1, 2}}, {"a": "\ud800"}, {"a": "x" * MAX_BYTES}])
def test_what_could_not_be_loaded_again_is_not_saved(tmp_path: Path, save: Save, load: Load, value: Any) -> None:
    save(tmp_path, "p", VALUE)
    with pytest.raises(ConfigInvalid):
        save(tmp_path, "p", value)
    assert load(tmp_path, "p") == VALUE


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path, kind: str, save: Save) -> None:
    put(tmp_path, kind, b"").unlink()
    (tmp_path / kind / "p.json").mkdir()
    with pytest.raises(ConfigInvalid, match="cannot be written"):
        save(tmp_path, "p", {})
    assert [path.name for path in (tmp_path / kind).iterdir()] == ["p.json"]


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, save: Save, load: Load) -> None:
    save(tmp_path, "p", {"a": "0" * 10_000})
    done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(load(tmp_path, "p")["a"])

    reader = threading.Thread(target=read)
    reader.start()
    for digit in "123456789" * 5:
        save(tmp_path, "p", {"a": digit * 10_000})
    done.set()
    reader.join()
    assert seen <= {digit * 10_000 for digit in "0123456789"}
    assert [path.name for path in next(tmp_path.iterdir()).iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    ("plugin", "name"),
    [("notes", "notes.json"), ("a/b", "a%2Fb.json"), ("..", "%2E..json"), ("x.log", "x.log.json"), ("", "%.json")],
)
def test_any_id_makes_a_safe_name(tmp_path: Path, plugin: str, name: str) -> None:
    assert file_name(plugin) == name
    save_config(tmp_path, plugin, {"a": 1})
    assert [path.name for path in (tmp_path / "config").iterdir()] == [name]


def test_changes_of_the_settings_take_turns_over_all_processes(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there yet"
    with changing(folder):
        other = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_a_folder_that_is_none_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match="cannot be written"), changing(tmp_path / "file"):
        pass

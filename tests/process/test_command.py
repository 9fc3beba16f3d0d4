"""Finding the program and building the environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from plugbay.process.command import Launch, LaunchFailed, build_env, host_search_path, resolve
from plugbay.process.limits import Rlimits


def script(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def refusal(*command: str, root: Path, search_path: str = "/usr/bin") -> LaunchFailed:
    with pytest.raises(LaunchFailed) as caught:
        resolve(command, root, search_path)
    return caught.value


def test_a_path_is_relative_to_the_plugins_folder(tmp_path: Path) -> None:
    program = script(tmp_path / "bin" / "run")
    assert resolve(["bin/run", "--fast"], tmp_path, "") == (str(program), "--fast")
    assert resolve(["./bin/run"], tmp_path, "") == (str(program),)


def test_a_way_up_behind_a_link_is_the_kernels(tmp_path: Path) -> None:
    program = script(tmp_path / "real" / "run")
    (tmp_path / "real" / "deep").mkdir()
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "link").symlink_to(tmp_path / "real" / "deep")
    found = resolve(["./link/../run"], tmp_path / "plugin", "")[0]
    assert os.path.samefile(found, program)


def test_an_absolute_path_stays(tmp_path: Path) -> None:
    assert resolve(["/bin/sh", "-c", "true"], tmp_path, "") == ("/bin/sh", "-c", "true")


def test_a_relative_root_gives_an_absolute_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "p" / "run")
    monkeypatch.chdir(tmp_path)
    assert resolve(["./run"], Path("p"), "") == (str(program),)


def test_a_bare_name_is_looked_up_in_order(tmp_path: Path) -> None:
    first, second = script(tmp_path / "one" / "tool"), script(tmp_path / "two" / "tool")
    assert resolve(["tool"], tmp_path, f"{second.parent}:{first.parent}") == (str(second),)


def test_a_file_that_cannot_be_run_does_not_hide_a_program_of_that_name(tmp_path: Path) -> None:
    script(tmp_path / "one" / "tool", 0o644)
    (tmp_path / "two" / "tool").mkdir(parents=True)
    program = script(tmp_path / "three" / "tool")
    search_path = ":".join(str(tmp_path / name) for name in ("one", "two", "three"))
    assert resolve(["tool"], tmp_path, search_path) == (str(program),)


def test_a_relative_entry_of_the_search_path_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    assert shutil.which("tool", path=".")
    assert "there is no program tool" in refusal("tool", root=Path("/"), search_path=".::").message


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("./absent", "does not exist", "relative to the plugin's folder"),
        ("./folder", "is a directory", "use the program file"),
        ("./plain", "is not executable", "chmod +x"),
        ("./pipe", "is not a regular file", "use a program"),
        ("no-such-program", "there is no program no-such-program", "install no-such-program"),
        ("plain", "there is no program plain", "write ./plain"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(tmp_path: Path, word: str, message: str, hint: str) -> None:
    (tmp_path / "folder").mkdir()
    script(tmp_path / "plain", 0o644)
    os.mkfifo(tmp_path / "pipe")
    error = refusal(word, root=tmp_path)
    assert message in error.message
    assert hint in error.hint
    assert error.detail["command"] == [word]
    assert str(error) == error.message


@pytest.mark.parametrize("command", [[], [""]])
def test_an_empty_command_is_refused(tmp_path: Path, command: list[str]) -> None:
    assert "empty" in refusal(*command, root=tmp_path).message


@pytest.mark.parametrize("word", ["a\0b", "lone \ud800 surrogate"])
def test_an_argument_the_system_cannot_take_is_refused(tmp_path: Path, word: str) -> None:
    assert "argument" in refusal("/bin/sh", word, root=tmp_path).message


def test_only_named_variables_are_inherited() -> None:
    environ = {"PATH": "/bin", "HOME": "/root", "SECRET": "x"}
    assert build_env(["PATH", "HOME", "LANG"], environ, {}, {}) == {"PATH": "/bin", "HOME": "/root"}


def test_the_operator_wins_over_the_manifest_and_the_manifest_over_the_host() -> None:
    environ = {"A": "host", "B": "host", "C": "host"}
    env = build_env("ABC", environ, (("B", "manifest"), ("C", "manifest")), {"C": "operator"})
    assert env == {"A": "host", "B": "manifest", "C": "operator"}


@pytest.mark.parametrize("name", ["", "A=B", "=", "A\0", "\udfff"])
def test_a_bad_variable_name_is_refused(name: str) -> None:
    with pytest.raises(LaunchFailed, match="environment variable"):
        build_env([], {}, {name: "x"}, {})


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_a_bad_value_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(LaunchFailed, match="the value of the environment variable TOKEN") as caught:
        build_env([], {}, {}, {"TOKEN": f"hunter2{value}"})
    assert "hunter2" not in str(caught.value)


def test_bytes_that_are_not_text_pass_as_the_host_got_them() -> None:
    raw = os.fsdecode(b"\xff")
    assert build_env(["RAW"], {"RAW": raw}, {}, {}) == {"RAW": raw}


def test_the_hosts_interpreter_comes_first() -> None:
    directories = host_search_path({"PATH": "/usr/bin:/bin"}).split(":")
    assert directories == [os.path.dirname(sys.executable), "/usr/bin", "/bin"]


def test_python3_of_a_manifest_is_the_hosts_interpreter(tmp_path: Path) -> None:
    program = resolve(["python3"], tmp_path, host_search_path(os.environ))[0]
    assert os.path.dirname(program) == os.path.dirname(sys.executable)


def test_an_embedded_interpreter_without_a_path_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    assert host_search_path({"PATH": "/bin"}) == "/bin"
    assert host_search_path({}) == os.defpath


def test_a_launch_is_confined_unless_told_otherwise() -> None:
    assert Launch(("/bin/true",), Path("/")).limits == Rlimits()

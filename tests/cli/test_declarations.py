"""A source is loaded in a separate process, with a timeout, and its errors are reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.cli import declarations
from plugbay.cli.declarations import Unusable, find_source, read
from plugbay.cli.exit_codes import Exit
from tests.cli.conftest import is_alive, wait_until

SOURCE = 'from plugbay.sdk import Plugin\nplugin = Plugin("weather", version="1.2.0")\nplugin.tool("look")(lambda: 1)\n'


def write(folder: Path, text: str = SOURCE, name: str = "plugin.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def refused(path: Path, timeout: float = declarations.LOAD_TIMEOUT_S) -> Unusable:
    with pytest.raises(Unusable) as caught:
        read(find_source(path), timeout)
    return caught.value


def test_a_source_says_what_it_declares(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert (found.id, found.version) == ("weather", "1.2.0")
    assert list(found.contracts) == ["rune", "nexo", "kaged", "ainb", "vai", "mcp"]
    assert not (tmp_path / "__pycache__").exists()


def test_the_code_does_not_run_in_this_process(tmp_path: Path) -> None:
    read(write(tmp_path, f"import os\nassert os.getpid() != {os.getpid()}\n" + SOURCE))


@pytest.mark.parametrize("names", [["plugin.py", "other.py"], ["main.py"]])
def test_the_source_of_a_folder_is_plugin_py_or_the_only_one_there_is(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write(tmp_path, SOURCE, name)
    write(tmp_path, "x = 1\n", "helpers.py")
    assert find_source(tmp_path).name == names[0]
    assert find_source(tmp_path / names[-1]).name == names[-1]


def test_several_sources_or_none_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "x = 1\n", "helpers.py")
    assert refused(tmp_path).status == Exit.NOT_FOUND
    write(tmp_path, SOURCE, "a.py")
    write(tmp_path, SOURCE, "b.py")
    error = refused(tmp_path)
    assert error.message.endswith("use plugbay.sdk: a.py, b.py")
    assert error.status == Exit.USAGE


@pytest.mark.parametrize(("name", "words"), [("nowhere", "does not exist"), ("notes.txt", "is no Python source")])
def test_a_path_that_is_no_source_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert refused(tmp_path / name).message.endswith(words)


def test_an_error_is_reported_with_the_end_of_its_traceback(tmp_path: Path) -> None:
    error = refused(write(tmp_path, SOURCE + "print('before')\nno_such_thing()\n"))
    assert error.message.endswith("plugin.py cannot be loaded: NameError: name 'no_such_thing' is not defined")
    assert error.status == Exit.INVALID
    assert "    no_such_thing()" in error.lines
    assert len(error.lines) < declarations.LAST_LINES


def test_of_an_error_in_the_sdk_the_line_that_caused_it_is_shown(tmp_path: Path) -> None:
    error = refused(write(tmp_path, SOURCE + "@plugin.tool\ndef odd(): ...\n"))
    assert error.message.endswith("TypeError: write @plugin.tool() with parentheses")
    assert "    @plugin.tool" in error.lines
    assert not any("plugbay/sdk" in line or "runpy" in line for line in error.lines)


def test_a_missing_module_comes_with_advice(tmp_path: Path) -> None:
    error = refused(write(tmp_path, "import no_such_module_here\n" + SOURCE))
    assert "ModuleNotFoundError" in error.message
    assert error.hint.endswith("run plugbay where its modules are installed")


def test_a_source_that_never_comes_to_its_end_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid)!r} + '.new', 'w').write(str(child.pid))\nos.rename({str(pid)!r} + '.new', {str(pid)!r})\n"
        "child.wait()\n"
    )
    source = write(tmp_path, text)
    error = refused(source, timeout=3.0)
    assert error.status == Exit.TIMEOUT
    assert "did not get to plugin.run() within 3 s" in error.message
    wait_until(lambda: not is_alive(int(pid.read_text())), "the child to end")


@pytest.mark.parametrize("end", ["plugin.run()\n", "1 / 0\n"])
def test_its_group_is_ended_while_its_id_is_still_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    ended: list[int] = []

    def kill(group: int, number: int) -> None:
        os.kill(group, 0)  # raises when it was reaped, and somebody else may have its id by now
        ended.append(group)
        os.kill(-group, number)

    monkeypatch.setattr(os, "killpg", kill)
    try:
        read(write(tmp_path, SOURCE + end))
    except Unusable as error:
        assert "ZeroDivisionError" in error.message
    assert len(ended) == 1


def test_a_child_that_goes_on_is_not_waited_for(tmp_path: Path) -> None:
    text = f"import subprocess\nsubprocess.Popen(['sleep', '3600'])\n{SOURCE}"
    assert read(write(tmp_path, text)).id == "weather"


def test_a_source_that_leaves_early_is_no_plugin(tmp_path: Path) -> None:
    error = refused(write(tmp_path, "import os\nos._exit(0)\n"))
    assert error.message.endswith("exited before its declarations could be read")


def test_a_source_that_reads_its_input_finds_none(tmp_path: Path) -> None:
    assert read(write(tmp_path, "import sys\nassert sys.stdin.read() == ''\n" + SOURCE)).id == "weather"

"""The mark and the digest of generated files."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from plugbay.cli import lookup
from plugbay.cli.exit_codes import Exit
from plugbay.cli.manifest import command, generated
from plugbay.cli.manifest.generated import (
    Change,
    Mark,
    Unusable,
    add_mark,
    digest_source,
    find_source,
    find_unserved,
    plan_files,
    read_declarations,
    read_mark,
    strip_mark,
    write_file,
)
from plugbay.conformance.reports.report import Status
from tests.cli.conftest import is_alive, wait_until

MARK = Mark("plugin.py", "0123456789abcdef")
SOURCE = b'@tool()\ndef look(city: str = "Lima"):\n    """Look out."""\n    return 1\n'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rterm-plugin.json", '{\n  "plugin_id": "p"\n}\n'),
        ("nexo-plugin.toml", '[plugin]\nid = "p"\n'),
        ("kaged-plugin.yaml", 'name: "p"\n'),
    ],
)
def test_a_mark_can_be_read_and_taken_away_again(path: str, text: str) -> None:
    said = add_mark(path, text, MARK)
    assert said != text
    assert read_mark(said) == MARK
    assert strip_mark(said) == text


@pytest.mark.parametrize(
    ("left_out", "read"),
    [("hooks before_message; screens usage", None), ('a"b\n# c', "a?b?? c"), ("x" * 1500, "x" * 1000), ("a. b", None)],
    ids=["words", "what ends a comment or a string", "too much", "a full stop"],
)
@pytest.mark.parametrize("path", ["rterm-plugin.json", "nexo-plugin.toml"])
def test_a_mark_lists_the_declarations_that_are_left_out(path: str, left_out: str, read: str | None) -> None:
    text = '{\n  "a": 1\n}\n' if path.endswith(".json") else "a = 1\n"
    said = add_mark(path, text, MARK._replace(left_out=left_out))
    assert read_mark(said) == MARK._replace(left_out=read or left_out)
    assert strip_mark(said) == text
    assert (json.loads(said) if path.endswith(".json") else tomllib.loads(said))["a"] == 1


def test_a_marked_file_has_the_same_content() -> None:
    assert json.loads(add_mark("rterm-plugin.json", '{\n  "a": 1\n}\n', MARK))["a"] == 1
    assert tomllib.loads(add_mark("manifest.toml", "a = 1\n", MARK)) == {"a": 1}


def test_a_program_is_marked_below_its_first_line_and_without_the_digest() -> None:
    said = add_mark("bin/plugin", "#!/bin/sh\nexit 0\n", MARK)
    assert said.startswith("#!/bin/sh\n# Written by plugbay from plugin.py. ")
    assert read_mark(said) == Mark("plugin.py", "")
    assert strip_mark(said) == "#!/bin/sh\nexit 0\n"


def test_a_schema_is_not_marked() -> None:
    assert add_mark("schemas/look_input.json", "{}\n", MARK) == "{}\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# written by hand\n",
        "x" * 5000 + add_mark("a.toml", "", MARK),
        add_mark("a.toml", "", Mark("../../etc/passwd", MARK.digest)),
    ],
    ids=["empty", "another comment", "far below", "a file elsewhere"],
)
def test_what_looks_like_a_mark_is_none(text: str) -> None:
    assert read_mark(text) is None
    assert strip_mark(text) == text


# The digest.


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"return 1", b"x = 2\n    return x"),
        SOURCE.replace(b"\n    return", b"\n\n    # a comment\n    return"),
        SOURCE.replace(b'"""Look out."""', b"'Look out.'"),
        b"# a comment\n" + SOURCE,
    ],
    ids=["a body", "a comment in it", "other quotes", "a comment above"],
)
def test_what_a_function_does_is_not_in_the_digest(other: bytes) -> None:
    assert other != SOURCE
    assert digest_source(other) == digest_source(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"look", b"see"),
        SOURCE.replace(b"str", b"int"),
        SOURCE.replace(b'"Lima"', b'"Oslo"'),
        SOURCE.replace(b"Look out", b"Look in"),
        SOURCE.replace(b"@tool()", b"@tool(name='x')"),
        SOURCE.replace(b"def", b"async def"),
        SOURCE + b"VERSION = 2\n",
        SOURCE + b"class A:\n    def f(self, x: int): ...\n",
    ],
    ids=["name", "type", "default", "docstring", "decorator", "async", "constant", "class"],
)
def test_what_a_source_declares_is_in_the_digest(other: bytes) -> None:
    assert digest_source(other) != digest_source(SOURCE)


@pytest.mark.parametrize(
    "source",
    [b"def", b"\xff", b"x = '\0'", b"-" * 100_000 + b"1", b"a." * 100_000 + b"b", b"(" * 1000],
    ids=["half", "bytes", "a NUL", "many signs", "many names", "many brackets"],
)
def test_what_is_no_python_has_no_digest(source: bytes) -> None:
    with pytest.raises(ValueError):
        digest_source(source)


# What writing would do.


TEXTS = {"manifest.toml": "a = 1\n", "lamp": "#!/bin/sh\n", "schemas/x.json": "{}\n"}


def changes(folder: Path, texts: dict[str, str] = TEXTS, mark: Mark = MARK) -> dict[str, str]:
    return {plan.path: plan.change for plan in plan_files(folder, texts, mark)}


def write_all(folder: Path, texts: dict[str, str] = TEXTS) -> None:
    for plan in plan_files(folder, texts, MARK):
        write_file(folder, plan)


def test_files_that_are_not_there_are_new_and_then_the_same(tmp_path: Path) -> None:
    assert set(changes(tmp_path).values()) == {Change.NEW}
    write_all(tmp_path)
    assert set(changes(tmp_path).values()) == {Change.SAME}
    assert os.access(tmp_path / "lamp", os.X_OK)
    assert not os.access(tmp_path / "manifest.toml", os.X_OK)


def test_files_of_ours_that_would_say_something_else_are_changed(tmp_path: Path) -> None:
    write_all(tmp_path)
    other = {"manifest.toml": "a = 2\n", "lamp": "#!/bin/dash\n", "schemas/x.json": '{"type": "object"}\n'}
    assert set(changes(tmp_path, other).values()) == {Change.CHANGED}


def test_another_digest_changes_the_mark_and_is_no_drift(tmp_path: Path) -> None:
    write_all(tmp_path)
    plans = plan_files(tmp_path, TEXTS, Mark("plugin.py", "f" * 16))
    assert [plan.change for plan in plans] == [Change.REMARKED, Change.SAME, Change.SAME]
    assert not any(plan.drifted for plan in plans)


def test_files_without_a_mark_are_written_by_hand(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "manifest.toml").write_text("a = 3\n")
    (tmp_path / "lamp").write_text("#!/bin/false\n")
    (tmp_path / "schemas" / "x.json").write_text("[]\n")
    assert set(changes(tmp_path).values()) == {Change.FOREIGN}


def test_a_file_without_a_mark_that_says_the_same_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "manifest.toml").write_text("a = 1\n")
    assert changes(tmp_path)["manifest.toml"] == Change.REMARKED


def test_a_difference_is_shown_without_the_marks(tmp_path: Path) -> None:
    write_all(tmp_path)
    plan = plan_files(tmp_path, {"manifest.toml": "a = 2\n"}, Mark("plugin.py", "f" * 16))[0]
    assert plan.difference()[2:] == ["@@ -1 +1 @@", "-a = 1", "+a = 2"]


WEATHER = (
    'from plugbay.sdk import Plugin\nplugin = Plugin("weather", version="1.2.0")\nplugin.tool("look")(lambda: 1)\n'
)


def write_source(folder: Path, text: str = WEATHER, name: str = "plugin.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def refused(path: Path, timeout: float = generated.LOAD_TIMEOUT_S) -> Unusable:
    with pytest.raises(Unusable) as caught:
        read_declarations(find_source(path), timeout)
    return caught.value


def test_the_declarations_of_a_source_are_read(tmp_path: Path) -> None:
    found = read_declarations(write_source(tmp_path))
    assert (found.id, found.version) == ("weather", "1.2.0")
    assert list(found.contracts) == ["rune", "nexo", "kaged", "ainb", "vai", "mcp"]
    assert not (tmp_path / "__pycache__").exists()


def test_the_code_does_not_run_in_this_process(tmp_path: Path) -> None:
    read_declarations(write_source(tmp_path, f"import os\nassert os.getpid() != {os.getpid()}\n" + WEATHER))


@pytest.mark.parametrize("names", [["plugin.py", "other.py"], ["main.py"]])
def test_the_source_of_a_folder_is_plugin_py_or_the_only_one_there_is(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write_source(tmp_path, WEATHER, name)
    write_source(tmp_path, "x = 1\n", "helpers.py")
    assert find_source(tmp_path).name == names[0]
    assert find_source(tmp_path / names[-1]).name == names[-1]


def test_several_sources_and_no_source_have_different_errors(tmp_path: Path) -> None:
    write_source(tmp_path, "x = 1\n", "helpers.py")
    assert refused(tmp_path).status == Exit.NOT_FOUND
    write_source(tmp_path, WEATHER, "a.py")
    write_source(tmp_path, WEATHER, "b.py")
    error = refused(tmp_path)
    assert error.message.endswith("use plugbay.sdk: a.py, b.py")
    assert error.status == Exit.USAGE


@pytest.mark.parametrize(("name", "words"), [("nowhere", "does not exist"), ("notes.txt", "is not a Python source")])
def test_a_path_that_is_no_source_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    assert refused(tmp_path / name).message.endswith(words)


def test_an_error_is_reported_with_the_end_of_its_traceback(tmp_path: Path) -> None:
    error = refused(write_source(tmp_path, WEATHER + "print('before')\nno_such_thing()\n"))
    assert error.message.endswith("plugin.py cannot be loaded: line 5: NameError: name 'no_such_thing' is not defined")
    assert error.status == Exit.INVALID
    assert "    no_such_thing()" in error.lines
    assert len(error.lines) < generated.LAST_LINES


def test_of_an_error_in_the_sdk_the_line_that_caused_it_is_shown(tmp_path: Path) -> None:
    error = refused(write_source(tmp_path, WEATHER + "@plugin.tool\ndef odd(): ...\n"))
    assert error.message.endswith("TypeError: write @plugin.tool() with parentheses")
    assert "    @plugin.tool" in error.lines
    assert not any("plugbay/sdk" in line or "runpy" in line for line in error.lines)


def test_a_missing_module_comes_with_advice(tmp_path: Path) -> None:
    error = refused(write_source(tmp_path, "import no_such_module_here\n" + WEATHER))
    assert "ModuleNotFoundError" in error.message
    assert error.hint.endswith("where the modules of the plugin are installed")


def test_a_source_that_never_comes_to_its_end_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pid)!r} + '.new', 'w').write(str(child.pid))\nos.rename({str(pid)!r} + '.new', {str(pid)!r})\n"
        "child.wait()\n"
    )
    source = write_source(tmp_path, text)
    error = refused(source, timeout=3.0)
    assert error.status == Exit.TIMEOUT
    assert "did not reach plugin.run() within 3 s" in error.message
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
        read_declarations(write_source(tmp_path, WEATHER + end))
    except Unusable as error:
        assert "ZeroDivisionError" in error.message
    assert len(ended) == 1


def test_a_child_that_goes_on_is_not_waited_for(tmp_path: Path) -> None:
    text = f"import subprocess\nsubprocess.Popen(['sleep', '3600'])\n{WEATHER}"
    assert read_declarations(write_source(tmp_path, text)).id == "weather"


def test_a_source_that_leaves_early_is_no_plugin(tmp_path: Path) -> None:
    error = refused(write_source(tmp_path, "import os\nos._exit(0)\n"))
    assert error.message.endswith("exited before its declarations could be read")


def test_a_source_that_reads_its_input_finds_none(tmp_path: Path) -> None:
    assert (
        read_declarations(write_source(tmp_path, "import sys\nassert sys.stdin.read() == ''\n" + WEATHER)).id
        == "weather"
    )


LOOKOUT = """\
from plugbay.sdk import Plugin

plugin = Plugin("weather", version="1.0.0")


@plugin.tool(effect="read_only")
def look(city: str = "Lima") -> dict:
    '''Look out.'''
    return {}


plugin.run()
"""

CHANGES = {
    "the version is 1.1.0, not 1.0.0": ("1.0.0", "1.1.0"),
    "the tool look is not in the source": ("def look", "def see"),
    "the schema of look differs": ("city: str", "town: str"),
    "the description of look differs": ("Look out", "Look in"),
    "the source requests files.read": ('version="1.0.0"', 'version="1.0.0", capabilities=["files.read"]'),
}


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    """A plugin with manifests of rune and kaged, written from its source."""
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "plugin.py").write_text(LOOKOUT)
    command.generate(generated.read_declarations(folder / "plugin.py"), folder, ["rune", "kaged"], write=True)
    return folder


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "plugin.py").read_text()
    assert old in text
    (folder / "plugin.py").write_text(text.replace(old, new))


def warnings(folder: Path, contract: str = "rune") -> list[str]:
    return [problem.message for problem in generated.add_drift_warnings(lookup.find(folder, contract)).problems]


def verdict(folder: Path, contract: str = "rune") -> tuple[Status, str]:
    axis = generated.check_drift(lookup.find(folder, contract))
    assert axis is not None
    assert axis.id == f"{contract}.manifest.drift"
    return axis.status, axis.detail


def test_a_manifest_that_was_just_written_has_not_drifted(weather: Path) -> None:
    assert warnings(weather) == warnings(weather, "kaged") == []
    assert verdict(weather) == verdict(weather, "kaged") == (Status.PASSED, "")


@pytest.mark.parametrize(("words", "edit"), CHANGES.items(), ids=list(CHANGES))
def test_what_has_changed_is_noticed_and_named(weather: Path, words: str, edit: tuple[str, str]) -> None:
    change(weather, *edit)
    assert warnings(weather) == [
        "the declarations of plugin.py have changed since this manifest was written; "
        f"plugbay manifest {weather} updates it, --check shows the differences"
    ]
    status, detail = verdict(weather)
    assert status is Status.FAILED
    assert words in detail.splitlines()[0]
    assert f"hint: plugbay manifest {weather} updates it" in detail
    assert "line: +" in detail


def test_a_change_of_a_function_body_is_no_drift(weather: Path) -> None:
    change(weather, "return {}", "return {'sky': 'blue'}")
    assert warnings(weather) == []
    assert verdict(weather)[0] is Status.PASSED


def test_to_look_runs_nothing(weather: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was-run"
    change(weather, "plugin.run()", f"open({str(trace)!r}, 'w')\nplugin.run()")
    assert len(warnings(weather)) == 1
    assert not trace.exists()
    verdict(weather)
    assert trace.exists()


def test_a_manifest_that_was_written_by_hand_cannot_drift(weather: Path) -> None:
    text = (weather / "rterm-plugin.json").read_text()
    (weather / "rterm-plugin.json").write_text("\n".join(line for line in text.split("\n") if "$comment" not in line))
    change(weather, "def look", "def see")
    found = lookup.find(weather, "rune")
    assert found.spec is not None
    assert generated.add_drift_warnings(found) is found
    assert generated.check_drift(found) is None


def test_a_source_that_serves_nothing_is_noticed(weather: Path) -> None:
    change(weather, "plugin.run()\n", "")
    command.generate(generated.read_declarations(weather / "plugin.py"), weather, ["rune"], write=True)
    assert warnings(weather) == [
        "its source plugin.py never calls plugin.run(), so it would exit at once; call it in the last line"
    ]


def test_a_missing_or_broken_source_is_reported(weather: Path) -> None:
    (weather / "plugin.py").write_text("def")
    assert warnings(weather)[0].endswith("plugin.py cannot be used: line 1: SyntaxError: invalid syntax")
    status, detail = verdict(weather)
    assert status is Status.FAILED
    assert "SyntaxError" in detail
    (weather / "plugin.py").unlink()
    assert warnings(weather)[0].startswith("its source plugin.py does not exist any more")


def test_a_source_with_nothing_left_to_say_is_reported(weather: Path) -> None:
    change(weather, '@plugin.tool(effect="read_only")\n', "")
    assert (
        "the source has no manifest for this contract any more: it declares nothing that rune supports"
        in verdict(weather)[1]
    )


def test_a_plugin_that_is_not_there_has_no_drift(tmp_path: Path) -> None:
    found = lookup.find(tmp_path / "nowhere")
    assert generated.add_drift_warnings(found) is found
    assert generated.check_drift(found) is None


HEAD = """
from plugbay.sdk import Plugin
plugin = Plugin("p")

@plugin.tool()
def greet(name): return plugin.config["word"] + name
"""


@pytest.mark.parametrize(
    "source",
    [
        HEAD,
        HEAD.replace('Plugin("p")', 'Plugin.from_manifest("…")'),
        HEAD.replace("from plugbay.sdk import Plugin", "import plugbay.sdk as s").replace(' Plugin("', ' s.Plugin("'),
    ],
)
def test_a_plugin_that_is_declared_and_nothing_else_is_not_served(source: str) -> None:
    assert find_unserved(source.encode()) == "plugin"


@pytest.mark.parametrize(
    "source",
    [
        f"{HEAD}\nplugin.run()",
        f"{HEAD}\nif __name__ == '__main__':\n    plugin.run()",
        f"{HEAD}\ndef main():\n    plugin.run()\nmain()",
        f"{HEAD}\nimport app\napp.serve(plugin)",
        f"{HEAD}\nserve = plugin.run\nserve()",
        f"{HEAD}\nother = Plugin('q')",
        "from app import plugin",
        "def make():\n    return Plugin('p')",
        "plugin: Plugin",
        "plugin = make()",
        "no python",
        "",
    ],
)
def test_in_doubt_it_is_served(source: str) -> None:
    assert find_unserved(source.encode()) is None


def test_a_source_that_is_nested_too_deeply_is_none() -> None:
    assert find_unserved(b"(" * 100_000) is None

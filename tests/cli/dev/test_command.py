"""`plugbay dev` as its users see it: real processes, real saves, a real terminal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import (
    GREETER,
    MakePlugin,
    Run,
    descendants_of,
    environment,
    wait_until,
    write_manifest,
)
from tests.cli.terminals import EventStream, Terminal
from tests.support.commands import Piped
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE

Dev = Callable[..., EventStream]
OnTerminal = Callable[..., Terminal]


@pytest.fixture
def dev(cwd: Path, tmp_path: Path) -> Iterator[Dev]:
    opened: list[EventStream] = []

    def dev(*arguments: str | Path, **env: str) -> EventStream:
        opened.append(EventStream(cwd, tmp_path, "dev", *arguments, **env))
        return opened[-1]

    yield dev
    for stream in opened:
        stream.close()


@pytest.fixture
def terminal(cwd: Path, tmp_path: Path) -> Iterator[OnTerminal]:
    opened: list[Terminal] = []

    def terminal(*arguments: str | Path) -> Terminal:
        opened.append(Terminal(["plugbay", "dev", *arguments], cwd, tmp_path))
        return opened[-1]

    yield terminal
    for window in opened:
        window.close()


# Once.


def test_the_calls_are_made_and_the_status_is_that_of_the_first_failure(run: Run, sdk_plugin: Path) -> None:
    done = run("dev", sdk_plugin, "--once", "--call", "greet", '{"name": "Ada"}')
    assert (done.code, json.loads(done.out)) == (0, {"text": "Hello, Ada."})
    assert "→ greet" in done.err and "│ called" in done.err and "✓ greet" in done.err
    done = run("dev", sdk_plugin, "--once", "--call", "greet", '{"name": 3}', "--call", "greet")
    assert done.code == 2
    assert done.err.index("✗ greet · invalid_input") < done.err.index("✓ greet")


def test_without_calls_it_is_started_to_see_whether_it_greets(run: Run, sdk_plugin: Path) -> None:
    assert "✓ started; the handshake is complete" in run("dev", sdk_plugin, "--once").err


def test_a_plugin_that_does_not_start_is_diagnosed(run: Run, cwd: Path, sdk_plugin: Path) -> None:
    (cwd / sdk_plugin / "main.py").write_text("import no_such_module\n")
    done = run("dev", sdk_plugin, "--once")
    assert done.code == 1
    assert "│ ModuleNotFoundError" in done.err and "no_such_module is not installed" in done.err


def test_what_is_requested_must_be_granted(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(capabilities=["tool.execute"])
    assert run("dev", plugin, "--once").code == 5
    assert run("dev", plugin, "--once", "--grant-all").code == 0
    assert run("dev", plugin, "--once", "--grant", "tool.execute", "--call", "echo").code == 0


def test_a_folder_without_a_plugin_and_a_broken_one_are_refused(run: Run, cwd: Path) -> None:
    (cwd / "empty").mkdir()
    assert run("dev", "empty").code == 4
    write_manifest(cwd / "broken", "{")
    assert run("dev", "broken", "--once").code == 3
    assert run("dev", "broken", "--once", "--call", "x", "{nonsense").code == 3


def test_an_input_that_is_no_json_is_a_mistake_of_usage(run: Run, sdk_plugin: Path) -> None:
    done = run("dev", sdk_plugin, "--once", "--call", "greet", "{name: 1}")
    assert done.code == 2 and "the input of greet is not JSON: " in done.err


# Saves.


def test_a_save_starts_it_afresh_and_makes_the_call_again(dev: Dev, cwd: Path, sdk_plugin: Path) -> None:
    stream = dev(sdk_plugin, "--call", "greet", '{"name": "Ada"}')
    assert stream.next("watching")["plugin"] == {"id": "example.greeter", "version": "1.0.0", "contract": "rune"}
    assert stream.next("call") == {"event": "call", "export": "greet", "input": {"name": "Ada"}, "again": False}
    first = stream.next("result")
    assert (first["output"], first["differences"], first["status"]) == ({"text": "Hello, Ada."}, None, "succeeded")
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("Hello", "Howdy"))
    assert stream.next("changed")["paths"] == ["main.py"]
    assert stream.next("call")["again"]
    assert stream.next("stderr")["text"] == "loading"
    second = stream.next("result")
    assert second["output"] == {"text": "Howdy, Ada."}
    assert second["differences"] == [{"path": "/text", "gone": '"Hello, Ada."', "new": '"Howdy, Ada."'}]


def test_a_broken_manifest_stops_nothing_and_its_cure_is_taken_over(dev: Dev, cwd: Path, sdk_plugin: Path) -> None:
    stream = dev(sdk_plugin, "--call", "greet")
    stream.next("result")
    manifest = cwd / sdk_plugin / "rterm-plugin.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"plugin_version": "1.0.0"', '"plugin_version": 1'))
    told = stream.next("manifest")
    assert not told["usable"]
    assert [(problem["path"], problem["line"]) for problem in told["problems"]] == [("plugin_version", 3)]
    manifest.write_text(text.replace('"plugin_version": "1.0.0"', '"plugin_version": "2.0.0"'))
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("1.0.0", "2.0.0"))
    assert stream.next("watching")["plugin"]["version"] == "2.0.0"
    assert stream.next("result")["status"] == "succeeded"


def test_a_manifest_that_is_broken_from_the_beginning_can_be_cured(dev: Dev, cwd: Path, sdk_plugin: Path) -> None:
    manifest = cwd / sdk_plugin / "rterm-plugin.json"
    text = manifest.read_text()
    manifest.write_text("{")
    stream = dev(sdk_plugin, "--call", "greet")
    assert not stream.next("manifest")["usable"]
    manifest.write_text(text)
    assert stream.next("result")["status"] == "succeeded"


def test_a_save_starts_a_quarantined_plugin(dev: Dev, cwd: Path) -> None:
    # A greeting that is refused means quarantine at once: only a reload lifts it.
    wrong = 'def initialize(m):\n    reply(m, {"manifest": {"plugin": {"id": "other", "version": "0.1.0"}}})\n'
    folder = write_nexo_plugin(cwd, "bot", wrong, tools=["echo"])
    stream = dev(folder, "--call", "bot_echo", '{"n": 1}', "--call", "bot_echo", '{"n": 2}')
    assert stream.next("result")["failure"]["code"] == "handshake_failed"
    assert stream.next("result")["failure"]["code"] == "quarantined"
    write_nexo_plugin(cwd, "bot", tools=["echo"])
    assert [stream.next("result")["output"] for _ in range(2)] == [{"n": 1}, {"n": 2}]


def test_what_is_printed_to_the_wire_is_reported_as_noise(dev: Dev, cwd: Path) -> None:
    body = "def tool_invoke(m):\n    print('hello from print', flush=True)\n    reply(m, {})\n"
    folder = write_nexo_plugin(cwd, "bot", body, tools=["echo"])
    stream = dev(folder, "--call", "bot_echo")
    note = stream.next("note")
    assert note["about"] == "noise" and "hello from print" in note["text"]


def test_a_resident_plugin_that_dies_alone_tells_so_once(dev: Dev, cwd: Path) -> None:
    folder = write_nexo_plugin(cwd, "bot", "open('.pid', 'w').write(str(os.getpid()))\n", tools=["echo"])
    stream = dev(folder)
    stream.next("ready")
    os.kill(int((folder / ".pid").read_text()), signal.SIGKILL)
    told = stream.next("failed")["failure"]
    assert told["code"] == "crashed" and "killed by a signal while no call was running" in told["message"]


def test_files_that_the_plugin_writes_itself_do_not_reload_it_for_ever(dev: Dev, cwd: Path, sdk_plugin: Path) -> None:
    counting = "    open('calls.txt', 'a').write('x')\n    return"
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("    return", counting))
    stream = dev(sdk_plugin, "--call", "greet")
    assert "each call of the plugin writes calls.txt" in stream.next("remark")["text"]
    calls = (cwd / sdk_plugin / "calls.txt").read_text()
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("Hello", "Howdy"))
    assert stream.next("changed")["paths"] == ["main.py"]
    assert stream.next("result")["output"] == {"text": "Howdy, world."}
    assert (cwd / sdk_plugin / "calls.txt").read_text() == calls


def test_a_call_that_hangs_is_given_up_when_its_cure_is_saved(dev: Dev, cwd: Path, sdk_plugin: Path) -> None:
    hanging = GREETER.replace('print("called")', "__import__('time').sleep(60)")
    (cwd / sdk_plugin / "main.py").write_text(hanging)
    stream = dev(sdk_plugin, "--call", "greet")
    assert stream.next("stderr")["text"] == "loading"
    (cwd / sdk_plugin / "main.py").write_text(GREETER)
    assert stream.next("remark")["text"] == "the running call is cancelled"
    assert stream.next("result")["status"] == "succeeded"


def test_a_signal_ends_it_and_its_plugin(dev: Dev, cwd: Path) -> None:
    stream = dev(write_nexo_plugin(cwd, "bot", tools=["echo"]))
    stream.next("ready")
    children = descendants_of(stream.process.pid)
    assert children
    stream.process.send_signal(signal.SIGTERM)
    assert stream.left() == 143
    wait_until(lambda: not descendants_of(stream.process.pid), "the end of the plugin")


# A terminal.


def test_a_person_types_calls_and_sees_their_results(terminal: OnTerminal, cwd: Path, sdk_plugin: Path) -> None:
    window = terminal(sdk_plugin)
    modes = window.modes
    window.shows("the handshake is complete")
    window.shows("dev> ")
    window.type('greet {"name": "Ada"}\n')
    window.shows('"text": "Hello, Ada."')
    window.shows("│ called")
    window.type("again\n")
    window.shows("unchanged")
    window.type("tools\n")
    window.shows("name?: string", 2)
    window.type("help\n")
    window.shows("cancel the running call")
    window.type("gret {}\n")
    window.shows("did you mean")
    window.type("greet {name}\n")
    window.shows("JSON is like")
    window.type("greet -\n")
    window.shows("the input of greet is empty")
    window.type("quit\n")
    assert window.left() == 0
    assert window.modes == modes


def test_typed_text_survives_printed_output(terminal: OnTerminal, cwd: Path, sdk_plugin: Path) -> None:
    window = terminal(sdk_plugin)
    window.shows("dev> ")
    window.type("greet")
    window.shows("dev> greet")
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("Hello", "Howdy"))
    window.shows("main.py saved")
    window.shows("the handshake is complete", 2)
    window.type(' {"name": "Bob"}\n')
    window.shows('"text": "Howdy, Bob."')


def test_a_tab_completes_the_name_of_an_export(terminal: OnTerminal, sdk_plugin: Path) -> None:
    window = terminal(sdk_plugin)
    window.shows("dev> ")
    window.type("gr\t{}\n")
    window.shows('"text": "Hello, world."')


def test_a_call_that_runs_can_be_given_up_and_the_plugin_reloaded(
    terminal: OnTerminal, cwd: Path, sdk_plugin: Path
) -> None:
    hanging = GREETER.replace('print("called")', "print('napping'); __import__('time').sleep(60)")
    (cwd / sdk_plugin / "main.py").write_text(hanging)
    window = terminal(sdk_plugin)
    window.shows("dev> ")
    window.type("again\n")
    window.shows("nothing has been called yet")
    window.type("greet\n")
    window.shows("│ napping")
    window.type("greet\n")
    window.shows("a call is running")
    window.type("cancel\n")
    window.shows("is cancelled")
    window.type("reload\n")
    window.shows("│ napping", 2)


@pytest.mark.parametrize(("key", "status"), [("\x04", 0), ("\x03", 130)])
def test_ctrl_d_and_ctrl_c_leave(cwd: Path, tmp_path: Path, sdk_plugin: Path, key: str, status: int) -> None:
    window = Terminal(["plugbay", "dev", sdk_plugin], cwd, tmp_path)
    try:
        modes = window.modes
        window.shows("dev> ")
        window.type(key)
        assert window.left() == status
        assert window.modes == modes
    finally:
        window.close()


def test_a_program_is_started_anew_for_each_conversation_until_dev_ends(
    cwd: Path, tmp_path: Path, make_plugin: MakePlugin
) -> None:
    plugin = make_plugin()
    dev = EventStream(cwd, tmp_path, "dev", plugin, "--attach", "--call", "echo", '{"text": "a"}', "--call", "echo")
    invited = dev.next("attach")
    assert not invited["interactive"] and invited["line"].endswith("attach -- ./run.sh")
    words = ("attach", "--json", invited["address"], "--", "./run.sh")
    wrapper = Piped(*words, cwd=cwd, env=environment(tmp_path))
    try:
        assert dev.next("attached")["pid"] == wrapper.pid
        results = [dev.next("result") for _ in range(2)]
        assert [result["output"] for result in results] == [{"text": "a"}, {}], [
            result["failure"] for result in results
        ]
        script = cwd / plugin / "run.sh"
        saved = cwd / "saved"  # a program that is still being written cannot be started
        saved.write_text(script.read_text().replace("reply '", "echo so it goes >&2; reply '"))
        saved.chmod(0o755)
        saved.rename(script)
        assert dev.next("changed")["paths"] == ["run.sh"]
        results = [dev.next("result") for _ in range(2)]
        assert [result["output"] for result in results] == [{"text": "a"}, {}], [
            result["failure"] for result in results
        ]
    finally:
        dev.close()
        out, err = wrapper.communicate(timeout=PATIENCE)
    assert wrapper.returncode == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"command": ["./run.sh"], "status": 0}] * 4
    assert err.decode().count("so it goes") == 2


def test_how_it_left_is_passed_on_to_the_host(cwd: Path, tmp_path: Path, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(answer="exit 9")
    dev = EventStream(cwd, tmp_path, "dev", plugin, "--attach", "--once", "--call", "echo")
    address = dev.next("attach")["address"]
    wrapper = Piped("attach", "--", "./run.sh", cwd=cwd, env=environment(tmp_path, PLUGBAY_ATTACH=address))
    try:
        failure = dev.next("result")["failure"]
        assert (failure["code"], failure["detail"]["exit_code"]) == ("crashed", 9)
        assert dev.left() == 1
        wrapper.communicate()
        assert wrapper.returncode == 0
    finally:
        wrapper.kill()
        dev.close()


def test_a_program_that_cannot_be_run_is_reported_on_both_sides(
    cwd: Path, tmp_path: Path, make_plugin: MakePlugin
) -> None:
    dev = EventStream(cwd, tmp_path, "dev", make_plugin(), "--attach", "--once", "--call", "echo")
    address = dev.next("attach")["address"]
    wrapper = Piped("attach", address, "--", "./no-such-program", cwd=cwd, env=environment(tmp_path))
    try:
        assert dev.next("result")["failure"]["code"] == "crashed"
        assert dev.left() == 1
    finally:
        _, err = wrapper.communicate(timeout=PATIENCE)
        dev.close()
    assert b"./no-such-program cannot be run: No such file or directory" in err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["unix:/nowhere/socket#x", "--", "true"], 4, "no plugbay dev waits at /nowhere/socket"),
        (["nonsense", "--", "true"], 5, "must look like unix:/path/to/socket#token"),
        (["unix:/nowhere/socket#x"], 2, "name the program to run"),
        ([], 2, ""),
    ],
)
def test_what_cannot_be_is_reported(run: Run, words: list[str], status: int, said: str) -> None:
    done = run("attach", *words)
    assert done.code == status
    assert said in done.err


WEATHER = """\
from plugbay.sdk import Plugin

plugin = Plugin("weather")

@plugin.tool()
def look() -> str:
    return "blue"

plugin.run()
"""


def test_a_saved_declaration_updates_the_generated_manifest_and_reloads_once(run: Run, cwd: Path, dev: Dev) -> None:
    source = cwd / "weather" / "plugin.py"
    source.parent.mkdir()
    source.write_text(WEATHER)
    assert run("manifest", "weather", "--contract", "rune").code == 0
    stream = dev("weather", "--call", "look")
    assert stream.next("result")["output"] == "blue"
    source.write_text(WEATHER.replace("def look()", "def look(days: int = 1)"))
    assert stream.next("changed")["paths"] == ["plugin.py"]
    assert stream.next("generated")["paths"] == ["rterm-plugin.json"]
    assert stream.next("result")["output"] == "blue"
    assert "days" in (source.parent / "rterm-plugin.json").read_text()
    source.write_text(WEATHER.replace("def look()", "def look(days: int = 1)").replace("blue", "grey"))
    assert stream.next("changed")["paths"] == ["plugin.py"], "the manifest that dev wrote is not a save of the author"
    assert stream.next("result")["output"] == "grey"


def test_once_changes_no_file(run: Run, cwd: Path) -> None:
    source = cwd / "weather" / "plugin.py"
    source.parent.mkdir()
    source.write_text(WEATHER)
    assert run("manifest", "weather", "--contract", "rune").code == 0
    before = (source.parent / "rterm-plugin.json").read_bytes()
    source.write_text(WEATHER.replace("def look()", "def look(days: int = 1)"))
    done = run("dev", "weather", "--once", "--call", "look")
    assert "manifest_drift" in done.err and (source.parent / "rterm-plugin.json").read_bytes() == before

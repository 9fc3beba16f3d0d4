"""One call from the command line: its output, its failures, its exit status, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.cli.call import call_on_server
from plugbay.cli.exit_codes import Exit
from plugbay.cli.remote import ServerClient
from plugbay.cli.render.call_view import CallRequest
from plugbay.model.errors import CODES, ORIGINS
from tests.cli.conftest import (
    ECHO,
    REFUSE,
    MakePlugin,
    Run,
    command,
    descendants_of,
    environment,
    is_alive,
    wait_until,
    write_manifest,
)
from tests.conformance.foreign_plugins import write_plugin
from tests.server.test_server import served
from tests.support.commands import Piped
from tests.support.kaged import write_kaged_plugin
from tests.support.machine import without_limits_notes
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import FAILS, LEFT, write_vai_plugin

SHAPE = {"status", "output", "failure", "plugin", "call_id", "duration_ms"}
FAILURE_SHAPE = {"code", "origin", "message", "detail", "retry_after_ms"}
TEXT = '{"text": "hi"}'

SLEEP = "echo $$ > pid; sleep 60"


# What a call gives back.


def test_the_output_goes_to_stdout_and_the_summary_to_stderr(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "echo", TEXT)
    assert done.code == 0
    assert done.out == '{\n  "text": "hi"\n}\n'
    assert re.fullmatch(r"✓ example\.echo/echo · [\d.]+ m?s · call_[0-9a-f]{20}\n", done.err)


def test_the_json_of_a_success_has_the_public_shape(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "echo", TEXT, "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.out.count("\n") == 1
    answer = done.json
    assert set(answer) == SHAPE
    assert answer["status"] == "succeeded"
    assert answer["output"] == {"text": "hi"}
    assert answer["failure"] is None
    assert answer["plugin"] == {"id": "example.echo", "version": "1.0.0", "contract": "rune"}
    assert re.fullmatch(r"call_[0-9a-f]{20}", answer["call_id"])
    assert 0 < answer["duration_ms"] < 5000


def test_an_absent_input_is_an_empty_object(run: Run, make_plugin: MakePlugin) -> None:
    assert run("call", make_plugin(), "echo", "--json").json["output"] == {}


def test_an_absent_output_is_null(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(answer="""reply '"status":"ok"'""")
    assert run("call", plugin, "echo").out == "null\n"
    assert run("call", plugin, "echo", "--json").json["output"] is None


def test_the_input_is_read_from_stdin(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "echo", "-", "--json", stdin='{"text":\n  "piped"}\n')
    assert done.json["output"] == {"text": "piped"}


def test_text_in_any_script_survives_the_way_there_and_back(run: Run, make_plugin: MakePlugin) -> None:
    text = "grüße 日本語 🙂 \u2028 <&>"
    done = run("call", make_plugin(), "echo", json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(done.out) == {"text": text}
    assert "日本語 🙂" in done.out


def test_a_locale_that_is_not_utf_8_changes_nothing_about_the_data(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "echo", "-", stdin='{"text": "ü🙂"}', PYTHONIOENCODING="ascii")
    assert json.loads(done.out) == {"text": "ü🙂"}
    assert done.err.startswith("ok example.echo/echo - ")


def test_numbers_keep_every_digit(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(answer="""reply '"status":"ok","output":[18446744073709551615,1.50,1e2]'""")
    assert run("call", plugin, "echo").out.split() == "[ 18446744073709551615, 1.50, 1e2 ]".split()
    assert '"output":[18446744073709551615,1.50,1e2]' in run("call", plugin, "echo", "--json").out


def test_half_a_mebibyte_of_output_arrives_whole(run: Run, make_plugin: MakePlugin) -> None:
    size = 500 * 1024
    fill = f'big=$(head -c {size} /dev/zero | tr "\\0" x); reply \'"status":"ok","output":"\'"$big"\'"\''
    plugin = make_plugin(answer=fill)
    assert run("call", plugin, "echo").out == f'"{"x" * size}"\n'
    assert run("call", plugin, "echo", "--json").json["output"] == "x" * size


def test_a_plugin_written_with_the_sdk_may_print(run: Run, sdk_plugin: Path) -> None:
    done = run("call", sdk_plugin, "greet", '{"name": "Ada"}', "--json")
    assert done.json["output"] == {"text": "Hello, Ada."}
    refused = run("call", sdk_plugin, "greet", '{"nme": "Ada"}')
    assert refused.code == 10
    assert "nme: is unknown" in refused.err


# What to call, and where.


def test_a_manifest_stands_for_its_folder(run: Run, make_plugin: MakePlugin) -> None:
    assert run("call", make_plugin() / "rterm-plugin.json", "echo", TEXT).code == 0


def test_a_folder_of_plugins_offers_all_their_exports(run: Run, make_plugin: MakePlugin) -> None:
    make_plugin("one")
    make_plugin("two")
    assert run("call", "plugins", "two", "--json").json["plugin"]["id"] == "example.two"
    assert run("call", "plugins", "example.one/one", "--json").json["plugin"]["id"] == "example.one"


def test_an_export_that_two_plugins_offer_needs_its_full_name(run: Run, make_plugin: MakePlugin) -> None:
    tools = [{"name": "same"}]
    make_plugin("one", tools=tools)
    make_plugin("two", tools=tools)
    done = run("call", "plugins", "same")
    assert done.code == 4
    assert "example.one/same" in done.err
    assert "example.two/same" in done.err
    assert run("call", "plugins", "example.two/same").code == 0


def test_a_plugin_is_called_by_its_id_when_its_place_is_named(run: Run, make_plugin: MakePlugin) -> None:
    tools = [{"name": "same"}]
    make_plugin("one", tools=tools)
    make_plugin("two", tools=tools)
    done = run("call", "example.two", "same", "--plugins", "plugins", "--json")
    assert done.code == 0
    assert done.json["plugin"]["id"] == "example.two"
    assert run("call", "example.two", "example.two/same", "--plugins", "plugins").code == 0


def test_an_unknown_id_is_not_found_and_the_nearest_one_is_named(run: Run, make_plugin: MakePlugin) -> None:
    make_plugin()
    done = run("call", "example.ecko", "echo", "--plugins", "plugins")
    assert done.code == 4
    assert "did you mean 'example.echo'?" in done.err


def test_an_id_without_a_place_is_not_found_and_says_how_to_call_by_id(run: Run) -> None:
    done = run("call", "example.echo", "echo")
    assert done.code == 4
    assert done.out == ""
    assert "there is no folder example.echo" in done.err
    assert "plugbay call example.echo … --plugins DIR" in done.err


def test_an_unknown_export_is_not_found_and_the_nearest_one_is_named(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "ecko")
    assert done.code == 4
    assert "did you mean" in done.err
    assert "echo" in done.err


def test_an_empty_folder_has_no_plugin(run: Run, cwd: Path) -> None:
    (cwd / "empty").mkdir()
    done = run("call", "empty", "echo")
    assert done.code == 4
    assert "there is no plugin in empty" in done.err


# What the caller can get wrong.


def test_an_input_that_is_no_json_is_a_usage_error_and_tells_how_to_quote(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(), "echo", "{a:1}")
    assert done.code == 2
    assert done.out == ""
    assert "error: the input is not JSON: object keys must be strings (byte 1)\n" in done.err
    assert "quote it for the shell" in done.err


@pytest.mark.parametrize("stdin", [b"", b"{", b"\xff\xfe{}"])
def test_broken_json_on_stdin_is_a_usage_error(run: Run, make_plugin: MakePlugin, stdin: bytes) -> None:
    done = run("call", make_plugin(), "echo", "-", "--json", stdin=stdin)
    assert done.code == 2
    assert set(done.json) == SHAPE
    assert done.json["failure"]["code"] == "invalid_input"
    assert "standard input" in done.json["failure"]["message"]
    assert done.json["call_id"] is None


def test_an_input_that_does_not_fit_the_schema_is_a_usage_error_and_nothing_is_started(
    run: Run, make_plugin: MakePlugin, cwd: Path
) -> None:
    plugin = make_plugin(answer="touch started")
    done = run("call", plugin, "echo", '{"text": 1}')
    assert done.code == 2
    assert "text: 1 is not of type" in done.err
    assert not (cwd / plugin / "started").exists()


@pytest.mark.parametrize("context", ["[]", "{"])
def test_a_context_that_is_no_object_is_a_usage_error(run: Run, make_plugin: MakePlugin, context: str) -> None:
    done = run("call", make_plugin(), "echo", "--context", context)
    assert done.code == 2
    assert "--context" in done.err


def test_the_context_reaches_the_plugin(run: Run, make_plugin: MakePlugin) -> None:
    answer = """seen=${request#*'"context":'}; seen=${seen%%'}'*}; reply '"status":"ok","output":'"$seen}" """
    context = '{"workspace_id": "ws-1"}'
    done = run("call", make_plugin(answer=answer), "echo", "--context", context, "--json")
    assert done.json["output"] == {"workspace_id": "ws-1"}


@pytest.mark.parametrize("seconds", ["0", "nan", "4000", "soon"])
def test_a_timeout_that_is_no_time_is_a_usage_error(run: Run, make_plugin: MakePlugin, seconds: str) -> None:
    assert run("call", make_plugin(), "echo", f"--timeout={seconds}").code == 2


def test_a_manifest_with_errors_is_refused_and_all_of_them_are_listed(run: Run, cwd: Path) -> None:
    write_manifest(cwd / "broken", '{\n  "plugin_id": 3,\n  "tools": []\n}\n')
    done = run("call", "broken", "echo")
    assert done.code == 3
    assert done.out == ""
    assert "broken/rterm-plugin.json:2  invalid_type" in done.err
    assert "broken/rterm-plugin.json:3  invalid_value" in done.err
    failure = run("call", "broken", "echo", "--json").json["failure"]
    assert {problem["path"] for problem in failure["detail"]["problems"]} >= {"plugin_id", "tools"}


def test_one_broken_plugin_does_not_hide_the_others(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    make_plugin()
    write_manifest(cwd / "plugins" / "broken", "{")
    done = run("call", "plugins", "echo")
    assert done.code == 0
    assert "plugins/broken is left out" in done.err


def test_a_folder_of_only_broken_plugins_is_invalid(run: Run, cwd: Path) -> None:
    write_manifest(cwd / "plugins" / "one", "{")
    write_manifest(cwd / "plugins" / "two", "[]")
    done = run("call", "plugins", "echo")
    assert done.code == 3
    assert "none of the 2 plugins in plugins can be used" in done.err


def test_warnings_are_for_people_only(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(colour="red")
    done = run("call", plugin, "echo")
    assert done.code == 0
    assert "unknown_key" in done.err
    assert json.loads(done.out) == {}
    assert run("call", plugin, "echo", "--json").err == ""


# The operator's side.


def test_a_plugin_that_requests_a_capability_is_denied_until_it_is_granted(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(capabilities=["tool.execute"])
    denied = run("call", plugin, "echo")
    assert denied.code == 5
    assert "--grant tool.execute" in denied.err
    assert run("call", plugin, "echo", "--grant", "tool.execute").code == 0
    assert run("call", plugin, "echo", "--grant-all").code == 0


def test_every_grant_counts(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(capabilities=["tool.execute", "net.fetch"])
    assert run("call", plugin, "echo", "--grant", "tool.execute").code == 5
    assert run("call", plugin, "echo", "--grant", "tool.execute", "--grant", "net.fetch").code == 0


@requirement("rune:capability:allow-list")
@pytest.mark.parametrize(("liberty", "code"), [("declares_more", None), ("none", "capability_not_declared")])
def test_the_allow_list_of_rune_is_the_operators(run: Run, tmp_path: Path, liberty: str, code: str | None) -> None:
    done = run("call", write_plugin(tmp_path, "rune", liberty), "t", "--grant", "net", "--json")
    failure = done.json["failure"]
    assert (failure and failure["code"]) == code
    assert (done.code == 0) is (code is None)
    assert "has no effect" not in done.err


def test_plugbay_toml_in_the_current_directory_counts(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    plugin = make_plugin(capabilities=["tool.execute"])
    (cwd / "plugbay.toml").write_text('[plugins."example.echo"]\ngrants = ["tool.execute"]\n')
    assert run("call", plugin, "echo").code == 0


def test_a_named_config_counts_instead(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    plugin = make_plugin()
    (cwd / "plugbay.toml").write_text("not toml")
    (cwd / "other.toml").write_text('[plugins."example.echo"]\nenabled = false\n')
    done = run("call", plugin, "echo", "--config", "other.toml")
    assert done.code == 5
    assert "disabled" in done.err


@pytest.mark.parametrize("name", ["plugbay.toml", "missing.toml"])
def test_a_config_that_cannot_be_used_is_invalid_and_says_where(
    run: Run, make_plugin: MakePlugin, cwd: Path, name: str
) -> None:
    (cwd / "plugbay.toml").write_text('[plugins."example.echo"]\ngrant = ["tool.execute"]\n')
    done = run("call", make_plugin(), "echo", "--config", name)
    assert done.code == 3
    assert name in done.err
    assert ("did you mean 'grants'?" in done.err) == (name == "plugbay.toml")


# How a plugin can fail.

FAILURES = {
    "crashed": (1, "echo 'ValueError: no city' >&2; exit 3"),
    "malformed_response": (1, "echo 'this is not JSON'"),
    "timeout": (8, "sleep 60"),
    "plugin_error": (10, REFUSE % "no_city"),
    "invalid_input": (10, REFUSE % "invalid_input"),
    "not_found": (10, REFUSE % "not_found"),
}


@pytest.mark.parametrize("code", FAILURES)
def test_each_failure_of_a_plugin_has_its_status_and_its_shape(run: Run, make_plugin: MakePlugin, code: str) -> None:
    status, answer = FAILURES[code]
    plugin = make_plugin(answer=answer)
    done = run("call", plugin, "echo", "--json", "--timeout", "1")
    assert done.code == status
    assert done.json["status"] == "failed"
    assert done.json["output"] is None
    assert set(done.json) == SHAPE
    assert set(done.json["failure"]) == FAILURE_SHAPE
    assert done.json["failure"]["code"] == code
    assert done.json["failure"]["origin"] in ORIGINS
    assert done.json["plugin"] == {"id": "example.echo", "version": "1.0.0", "contract": "rune"}


GREETINGS = {
    "handshake_failed": (7, '{"type":"hello"}'),
    "protocol_version_mismatch": (
        7,
        '{"type":"handshake","manifest":{"protocol_version":"rterm.plugin.v9"}}',
    ),
    "capability_not_allowed": (
        5,
        '{"type":"handshake","manifest":{"protocol_version":"rterm.plugin.v1","plugin_id":"example.echo",'
        '"plugin_version":"1.0.0","exposed_tools":["echo"],"capabilities":["net.fetch"]}}',
    ),
    "tool_not_exposed": (
        4,
        '{"type":"handshake","manifest":{"protocol_version":"rterm.plugin.v1","plugin_id":"example.echo",'
        '"plugin_version":"1.0.0","exposed_tools":["other"]}}',
    ),
}


@pytest.mark.parametrize("code", GREETINGS)
def test_each_failure_of_a_handshake_has_its_status(run: Run, make_plugin: MakePlugin, code: str) -> None:
    status, handshake = GREETINGS[code]
    done = run("call", make_plugin(handshake=handshake), "echo", "--json")
    assert (done.code, done.json["failure"]["code"]) == (status, code)
    assert code in CODES


def test_a_command_that_is_not_there_is_no_start(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin(process={"command": "./nope"})
    done = run("call", plugin, "echo")
    assert done.code == 7
    assert "launch_failed" in done.err
    assert "nope does not exist" in done.err
    assert "hint" in done.err


def test_a_crash_is_reported_with_its_exit_status_and_the_last_words(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(answer="echo 'no city today' >&2; exit 3"), "echo")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("✗ example.echo/echo · crashed · ")
    assert "exit code 3" in done.err
    assert "no city today" in done.err


@requirement("host:crash-panel")
def test_the_panel_of_a_crash_has_the_exit_then_stderr_then_the_hint(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(answer="echo 'no city today' >&2; kill -SEGV $$"), "echo")
    labels = [line.split()[0] for line in done.err.splitlines()[1:] if line.startswith("  ")]
    assert labels[0] == "exit" and labels.index("stderr") < labels.index("hint"), done.err
    assert "SIGSEGV" in done.err


OWN_LINES = """
def tool_invoke(m):
    args = m["params"]["args"]
    sys.stderr.write("line of %s\\n" % args["name"])
    sys.stderr.flush()
    if args["crash"]:
        os._exit(3)
    reply(m, {})
"""


@requirement("host:crash-panel")
def test_a_crash_has_only_the_lines_that_its_own_call_wrote(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd / "plugins", "p", OWN_LINES, tools=["do"])
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        first = run("call", "p", "p_do", "name=first", "crash=false", *there)
        assert first.code == 0, first.err
        second = run("call", "p", "p_do", "name=second", "crash=true", *there)
        assert second.code == 1 and "exit code 3" in second.err
        assert "line of second" in second.err and "line of first" not in second.err
        logged = run("logs", "p", *there).out
        assert "line of first" in logged, "the log has all of them"
        assert server.end() == 0


def test_the_plugins_own_error_is_reported_with_its_code(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(answer=REFUSE % "no_city"), "echo")
    assert done.code == 10
    assert "there is no city called Limbo" in done.err
    assert "no_city" in done.err


def test_a_plugin_cannot_paint_the_terminal(run: Run, make_plugin: MakePlugin) -> None:
    error = """reply '"status":"error","error":{"code":"x","message":"\\u001b[2J\\u202eevil\\nsecond"}' """
    done = run("call", make_plugin(answer=error), "echo")
    assert done.code == 10
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert "\\x1b[2J" in done.err


# The walk.

WALK = [
    "host.call",
    "catalog.resolve",
    "policy.authorize",
    "supervisor.lease",
    "process.spawn",
    "link.ready",
    "link.call",
    "host.call.finished",
]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_trace_shows_the_walk_in_its_order(run: Run, make_plugin: MakePlugin, form: list[str]) -> None:
    done = run("call", make_plugin(), "echo", "--trace", *form)
    assert done.code == 0
    json.loads(done.out)
    steps = re.findall(r"^ *(\d+\.\d\d) ms  (\S+)$", done.err, re.MULTILINE)
    times = [float(elapsed) for elapsed, _ in steps]
    names = [name for _, name in steps]
    assert times == sorted(times)
    assert [name for name in names if name in WALK] == WALK


def test_trace_ends_where_the_call_was_refused(run: Run, make_plugin: MakePlugin) -> None:
    done = run("call", make_plugin(capabilities=["tool.execute"]), "echo", "--trace")
    assert "policy.authorize" in done.err
    assert "process.spawn" not in done.err


# On a terminal, and when it goes away.


def test_colour_is_for_terminals_without_no_color(
    on_terminal: Callable[..., str], run: Run, make_plugin: MakePlugin
) -> None:
    plugin = make_plugin()
    assert "\x1b[" in on_terminal("call", plugin, "echo", TEXT)
    assert "\x1b" not in on_terminal("call", plugin, "echo", TEXT, NO_COLOR="1")
    assert "\x1b" not in on_terminal("call", plugin, "echo", TEXT, TERM="dumb")
    piped = run("call", plugin, "echo", TEXT)
    assert "\x1b" not in piped.out + piped.err


def test_forced_colour_does_not_break_data_in_a_pipe(run: Run, make_plugin: MakePlugin) -> None:
    plugin = make_plugin()
    json.loads(run("call", plugin, "echo", FORCE_COLOR="1").out)
    json.loads(run("call", plugin, "echo", "--json", FORCE_COLOR="1").out)


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(make_plugin: MakePlugin, cwd: Path) -> None:
    big = """reply '"status":"ok","output":"'"$(head -c 300000 /dev/zero | tr '\\0' x)"'"' """
    reader, writer = os.pipe()
    process = Piped("call", make_plugin(answer=big), "echo", stdout=writer, cwd=cwd, env=environment(cwd))
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert said == b""


@pytest.mark.parametrize("words", [("call", "plugins/echo", "echo"), ("--version",)], ids=["call", "version"])
def test_a_full_disk_is_reported(make_plugin: MakePlugin, cwd: Path, words: tuple[str, ...]) -> None:
    make_plugin()
    with open("/dev/full", "wb") as full:
        done = subprocess.run(  # how the interpreter ends is a part of it
            command(*words),
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment(cwd),
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_signal_ends_the_call_and_leaves_no_process_behind(
    make_plugin: MakePlugin, cwd: Path, number: int, status: int, form: list[str]
) -> None:
    plugin = make_plugin(answer=SLEEP)
    process = Piped("call", plugin, "echo", "--timeout", "50", *form, cwd=cwd, env=environment(cwd))
    file = cwd / plugin / "pid"
    wait_until(lambda: file.exists() and file.read_text().strip(), "the plugin to be called")
    child = int(file.read_text())
    assert is_alive(child)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert not is_alive(child)
    assert descendants_of(process.pid) == []
    assert b"Traceback" not in err
    if form:
        assert set(json.loads(out)) == SHAPE
        assert json.loads(out)["failure"]["code"] == "timeout", "rune's word for a caller who went away"
    else:
        assert out == b""
        assert "interrupted" in err.decode()


def test_ctrl_c_while_the_input_is_awaited_is_quiet(make_plugin: MakePlugin, cwd: Path) -> None:
    reader, writer = os.pipe()
    process = Piped("call", make_plugin(), "echo", "-", stdin=reader, cwd=cwd, env=environment(cwd))
    os.close(reader)
    blocked = Path(f"/proc/{process.pid}/wchan")
    wait_until(lambda: "pipe" in blocked.read_text(), "the command to read its stdin")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    os.close(writer)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_what_a_plugin_writes_to_stderr_is_kept_where_paths_says(run: Run, make_plugin: MakePlugin) -> None:
    assert run("call", make_plugin(answer="echo noted >&2\n" + ECHO), "echo").code == 0
    logs = Path(run("paths", "--json").json["log"])
    assert "noted" in (logs / "example.echo.log").read_text()


# Plugins that stay.

STREAMS = """
def llm_chat(m):
    for text in ("Hel", "lo"):
        notify("llm.chat.delta", request_id=m["id"], chunk={"type": "text_delta", "delta": text})
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    reply(m, {"content": {"type": "text", "text": ""}, "usage": usage, "finish_reason": {"kind": "stop"}})
"""
CHAT = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


def test_a_resident_plugin_is_started_called_and_shut_down(run: Run, cwd: Path) -> None:
    body = 'def shutdown(m):\n    open("bye", "w").close()\n    reply(m, {"ok": True})\n    os._exit(0)\n'
    root = write_nexo_plugin(cwd, body=body, tools=["echo"])
    done = run("call", "p", "p_echo", '{"a": 1}')
    assert (done.code, done.json) == (0, {"a": 1})
    assert (root / "bye").exists()


def test_only_the_plugin_that_is_called_is_started(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd / "all", tools=["echo"])
    other = write_nexo_plugin(cwd / "all", "q", body='open("started", "w").close()\n', tools=["echo"])
    assert run("call", "all", "p_echo").code == 0
    assert not (other / "started").exists()


def test_the_pieces_of_a_stream_are_lines_before_the_answer(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd, body=STREAMS, extends={"llm_providers": ["cohere"]})
    done = run("call", "p", "cohere", CHAT, "--stream", "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[:2] == [{"progress": {"type": "text_delta", "delta": text}} for text in ("Hel", "lo")]
    assert lines[2]["output"]["finish_reason"] == {"kind": "stop"}
    assert run("call", "p", "cohere", CHAT, "--stream").out.startswith('{"type":"text_delta","delta":"Hel"}\n')


def test_a_plugin_that_requests_a_sandbox_has_one_and_no_sandbox_prints_a_note(run: Run, cwd: Path) -> None:
    body = "def tool_invoke(m):\n    reply(m, open('/proc/self/status').read())\n"
    write_nexo_plugin(cwd, body=body, tools=["look"], more="[plugin.sandbox]\nenabled = true\n")
    confined = run("call", "p", "p_look")
    assert "Seccomp:\t2" in json.loads(confined.out) and "unconfined" not in confined.err
    raw = run("call", "p", "p_look", "--no-sandbox")
    assert "Seccomp:\t0" in json.loads(raw.out)
    assert "p: unconfined: it runs unconfined, with all rights of this user: --no-sandbox" in raw.err


def test_where_confinement_is_required_there_is_no_run_without(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd, tools=["echo"], more="[plugin.sandbox]\nenabled = true\n")
    (cwd / "plugbay.toml").write_text("[sandbox]\nrequire = true\n")
    refused = run("call", "p", "p_echo", "--no-sandbox", "--json")
    assert (refused.code, refused.json["failure"]["code"]) == (5, "sandbox_unavailable")
    assert run("call", "p", "p_echo").code == 0


EXAMPLE_OF_THE_CONTRACT = """
[plugin]
id = "slack"
version = "0.2.0"
name = "Slack Channel"
description = "..."
min_nexo_version = ">=0.1.0"

[plugin.requires]
nexo_capabilities = ["broker"]

[plugin.entrypoint]
command = "{command}"
args = ["--mode", "stdio"]
env = {{ "RUST_LOG" = "info" }}

[[plugin.channels.register]]
kind = "slack"
adapter = "SlackChannelAdapter"

[plugin.extends]
tools = ["slack_say"]
"""


@requirement("nexo:host-example-manifest")
@pytest.mark.parametrize("grants", [("--grant-all",), ()], ids=["all", "none"])
def test_the_example_manifest_of_nexos_contract_runs(run: Run, cwd: Path, grants: tuple[str, ...]) -> None:
    root = write_nexo_plugin(cwd, "slack", tools=["say"])
    program = root / "plugin-slack"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{root / "child.py"}" "$@"\n')
    program.chmod(0o755)
    (root / "nexo-plugin.toml").write_text(EXAMPLE_OF_THE_CONTRACT.format(command=program))
    done = run("call", "slack", "slack_say", '{"a": 1}', *grants)
    assert (done.code, json.loads(done.out or "null")) == (0, {"a": 1}), done.err
    assert "broker" not in run("inspect", "slack").out


def test_a_service_may_be_granted_although_no_manifest_requests_it(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd, tools=["echo"])
    assert "has no effect" not in run("call", "p", "p_echo", "--grant", "memory.recall").err
    assert "has no effect" in run("call", "p", "p_echo", "--grant", "memory.recal").err


def test_what_the_host_has_to_say_about_a_plugin_is_a_note(run: Run, cwd: Path) -> None:
    write_nexo_plugin(cwd, body="TOOLS.pop()\n", tools=["one", "two"])
    done = run("call", "p", "p_one", "--json")
    assert done.json["status"] == "succeeded"
    assert done.err.startswith("note:")
    assert "p_two" in done.err


@exhaustive
def test_a_start_that_failed_is_reported_once(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "notes", "sys.exit(3)")
    done = run("call", "notes", "echo")
    assert (done.code, "crashed" in done.err, "note:" in without_limits_notes(done.err)) == (1, True, False)
    assert "note:  notes: start_failed: code crashed: " in run("ps", "--plugins", "notes").err


PLUGIN = {"id": "p", "version": "1", "contract": "rune"}
DONE = {
    "status": "succeeded",
    "output": {"a": 1},
    "failure": None,
    "plugin": PLUGIN,
    "call_id": "c",
    "duration_ms": 2.0,
}
FAILURE = {"code": "timeout", "origin": "host", "message": "late", "detail": {"x": 1}, "retry_after_ms": 5}


class There(ServerClient):
    """A server that gives one answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def post(self, path: str, body: Any = None) -> Any:
        self.asked.append((path, body))
        return self.answer

    def events(self, method: str, path: str, body: Any = None, **query: Any) -> Iterator[tuple[str, Any]]:
        yield "progress", {"step": 1}
        yield "result", self.answer


def test_what_came_back_is_the_output_and_the_record() -> None:
    there = There(DONE)
    ending = call_on_server(there, CallRequest("p/t", {"b": 2}, {}, 0.5))
    assert ending.status == 0 and bytes(ending.output) == b'{"a":1}'
    assert ending.record is not None and (ending.record.plugin, ending.record.export) == ("p", "t")
    body = {"export": "p/t", "input": {"b": 2}, "context": {}, "timeout_ms": 500}
    assert there.asked == [("/api/v1/calls", body)]


def test_a_failure_is_the_same_failure_here() -> None:
    ending = call_on_server(
        There({**DONE, "status": "retryable_failure", "output": None, "failure": FAILURE}),
        CallRequest("p/t", {}, {}, None),
    )
    assert ending.status == Exit.TIMEOUT and ending.record is not None and ending.record.failure is not None
    assert ending.record.failure.retryable and ending.record.failure.to_json() == FAILURE


def test_pieces_are_shown_as_they_come() -> None:
    pieces: list[Any] = []
    ending = call_on_server(There(DONE), CallRequest("p/t", {}, {}, None, pieces.append))
    assert pieces == [{"step": 1}] and ending.status == 0


@requirement("vai:host-failed-result")
def test_a_failure_is_shown_with_the_result_that_the_plugin_answered_with(run: Run, tmp_path: Path) -> None:
    root = write_vai_plugin(tmp_path, FAILS)
    done = run("call", root, "t", "--json")
    assert (done.code, done.json["status"], done.json["output"]) == (Exit.PLUGIN_ERROR, "failed", LEFT)
    assert done.json["failure"]["message"] == "the disk is full"
    shown = run("call", root, "t")
    assert shown.out == "" and "the disk is full" in shown.err and "content   3 of 4 rows were written" in shown.err


@requirement("vai:host-failed-result")
def test_a_failure_on_the_server_has_its_result_here_too() -> None:
    failed = {**DONE, "status": "failed", "output": LEFT, "failure": FAILURE}
    ending = call_on_server(There(failed), CallRequest("p/t", {}, {}, None))
    assert ending.record is not None and ending.record.failure is not None
    assert json.loads(bytes(ending.output)) == LEFT

"""`plugbay tap`: frames of a real plugin in a real process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import REFUSE, MakePlugin, Run, environment
from tests.support.commands import Piped
from tests.support.kaged import write_kaged_plugin

CALL = ("--call", "echo", '{"text": "tea"}')


def test_a_call_is_shown_frame_by_frame(run: Run, make_plugin: MakePlugin) -> None:
    done = run("tap", make_plugin(), *CALL)
    lines = [line[12:] for line in done.out.splitlines()]
    assert done.code == 0
    assert lines[0].startswith("● started, pid ")
    assert lines[1] == '→ handshake  "rterm.plugin.v1"'
    assert lines[2].startswith("← ok handshake  ")
    assert lines[3].startswith("→ echo #") and lines[3].endswith('{"context": {}, "input": {"text": "tea"}}')
    assert lines[4].startswith("← ok echo #") and lines[4].endswith('ms  {"text": "tea"}')
    assert lines[5] == "● exited: exit code 0"
    assert done.err == ""


def test_a_plugin_can_be_named_by_its_id(run: Run, make_plugin: MakePlugin) -> None:
    make_plugin()
    make_plugin("other")
    done = run("tap", "example.echo", "--plugins", "plugins", *CALL, "--call", "example.echo/echo")
    assert done.code == 0 and done.out.count("→ echo") == 2 and "other" not in done.out


def test_as_json_every_line_is_one_of_a_recording(run: Run, make_plugin: MakePlugin) -> None:
    done = run("tap", make_plugin(), *CALL, "--json")
    items = [json.loads(line) for line in done.out.splitlines()]
    assert [item.get("direction", item.get("event")) for item in items] == [
        "spawn",
        "host",
        "plugin",
        "host",
        "plugin",
        "exit",
    ]


def test_a_recording_can_be_made_on_the_way_and_made_again(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    folder = make_plugin()
    for _ in range(2):
        done = run("tap", folder, *CALL, "--record", "r.jsonl")
        assert (done.code, done.err) == (0, f"note:  recorded 4 frames in {cwd / 'r.jsonl'}\n")
    assert len((cwd / "r.jsonl").read_text().splitlines()) == 8
    (cwd / "notes.txt").write_text("mine")
    refused = run("tap", folder, *CALL, "--record", "notes.txt")
    assert refused.code == 1 and "notes.txt exists and is not a recording" in refused.err
    assert (cwd / "notes.txt").read_text() == "mine"


def test_a_call_that_fails_decides_the_status(run: Run, make_plugin: MakePlugin) -> None:
    done = run("tap", make_plugin(answer=REFUSE % "no_city"), *CALL)
    assert done.code == 10
    assert "← error echo" in done.out
    assert "note:  example.echo/echo: plugin_error: there is no city called Limbo" in done.err


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["nowhere"], 4, "there is no folder nowhere"),
        (["nowhere", "--plugins", "plugins"], 4, "no plugin has the id 'nowhere'"),
        (["plugins"], 2, "there are 2 plugins in plugins; name one"),
        (["plugins/echo", "--call", "echo", "{oops}"], 2, "the input of echo is not JSON: "),
        (["plugins/echo", "--call"], 2, "--call"),
    ],
)
def test_what_cannot_be_tapped_is_refused_with_the_reason(
    run: Run, make_plugin: MakePlugin, words: list[str], status: int, why: str
) -> None:
    make_plugin()
    make_plugin("other")
    done = run("tap", *words)
    assert done.code == status and why in done.err and done.out == ""


def test_without_a_call_it_watches_until_it_is_interrupted(cwd: Path, tmp_path: Path) -> None:
    write_kaged_plugin(cwd, "p")
    words = ("tap", "p", "--plugins", ".", "--no-sandbox", "--json")
    watching = Piped(*words, cwd=cwd, env=environment(tmp_path))
    assert watching.stdout is not None
    seen = [json.loads(watching.stdout.readline()) for _ in range(4)]
    assert seen[3]["frame"]["method"] == "initialized"
    watching.send_signal(signal.SIGINT)
    out, _ = watching.communicate()
    rest = [json.loads(line) for line in out.splitlines()]
    assert watching.returncode == 130
    assert rest[0]["frame"]["method"] == "shutdown" and rest[-1]["event"] == "exit"


def test_a_plugin_that_starts_on_demand_causes_a_note(cwd: Path, tmp_path: Path, make_plugin: MakePlugin) -> None:
    watching = Piped("tap", make_plugin(), cwd=cwd, env=environment(tmp_path))
    assert watching.stderr is not None
    assert watching.stderr.readline() == (
        b"note:  example.echo starts with its first call; --call EXPORT JSON makes one\n"
    )
    watching.send_signal(signal.SIGTERM)
    watching.communicate()
    assert watching.returncode == 143


def test_on_a_terminal_every_frame_is_one_line_in_colour(
    on_terminal: Callable[..., str], make_plugin: MakePlugin
) -> None:
    shown = on_terminal("tap", make_plugin(), *CALL)
    assert "\x1b[" in shown and len(shown.splitlines()) == 6
    assert "\x1b[" not in on_terminal("tap", "plugins/echo", *CALL, NO_COLOR="1")


def test_secrets_are_not_shown(run: Run, make_plugin: MakePlugin) -> None:
    done = run("tap", make_plugin(), "--call", "echo", '{"text": "Bearer abcdefghijklmnop1234"}')
    assert "abcdefghijklmnop1234" not in done.out
    assert done.out.count("1 redacted") == 2

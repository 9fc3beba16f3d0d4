"""Every event has a view, and text of plugins cannot move the cursor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.cli.dev import events
from plugbay.cli.dev.view import COMMAND_HELP, COMMANDS, RESULT_LINES, Command, HumanView, JsonView, Prompt, parse
from plugbay.cli.render import output
from plugbay.conformance.replay.differences import IgnoredPaths, differences
from plugbay.host.discovery.folders import Found
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Failure, Problem
from plugbay.model.spec import Export, PluginSpec

TOOL = Export("tool", "forecast", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
SPEC = PluginSpec(
    id="weather", version="1.0.0", contract="rune", root=Path("/p"), command=("x",), exports=(TOOL, Export("hook", "h"))
)
FAILURE = Failure("crashed", "it broke", detail={"hint": "mend it", "stderr_tail": ["a line that was shown before"]})


def record(failure: Failure | None = None) -> CallRecord:
    return CallRecord("call_1", "weather", "1.0.0", "rune", "forecast", 0.0, 12.0, failure)


@pytest.fixture(autouse=True)
def fresh_printers() -> Iterator[None]:
    output.out.cache_clear()
    output.err.cache_clear()
    yield
    output.out.cache_clear()
    output.err.cache_clear()


def shown(event: events.Event, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    HumanView().show(event)
    said = capsys.readouterr()
    return said.out, said.err


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (events.Watching(SPEC), ["weather · 1.0.0 · rune · /p", "forecast  city?: string", "h         hook"]),
        (
            events.Validated(Found(Path("/p"), "rune", None, (Problem("missing", "name", "is needed", line=7),))),
            ["not reloaded: the manifest has 1 error", ":7", "name: is needed"],
        ),
        (events.Changed(["a", "b", "c", "d"]), ["a, b, c and 1 more saved"]),
        (events.Ready(41.6), ["✓ started; the handshake is complete · 42 ms"]),
        (events.Failed(FAILURE), ["✗ crashed", "it broke", "hint      mend it"]),
        (events.StderrWritten("Traceback"), ["  │ Traceback"]),
        (events.LogNoted("warn", "noise", "not JSON: hi"), ["printed to stdout  not JSON: hi"]),
        (events.LogNoted("info", "info", "adding"), ["  │ info  adding"]),
        (events.CallStarted("forecast", {"city": "Lima"}, True), ['→ forecast {"city":"Lima"} again']),
        (events.CallStarted("forecast", {"city": "L" * 300}, False), ["→ forecast {…}"]),
        (events.CallProgressed("forecast", {"done": 1}), ['progress  {"done": 1}']),
        (events.AttachOffered("unix:/x#t", "RUN ME", True), ["RUN ME", "breakpoint()"]),
        (events.AttachOffered("unix:/x#t", "RUN ME", False), ["its stderr goes to that terminal"]),
        (events.Attached(7), ["✓ process 7 is attached"]),
        (events.Detached(7), ["process 7 has exited"]),
        (events.Remark("by the way"), ["by the way"]),
    ],
)
def test_every_event_has_its_words(event: events.Event, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(event, capsys)
    assert out == ""
    for text in words:
        assert text in err
    assert "shown before" not in err


def test_a_result_goes_to_stdout_and_its_differences_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    changes = differences({"a": 1, "gone": 2, "same": 3}, {"a": 2, "same": 3, "new": [4]}, IgnoredPaths())
    out, err = shown(events.CallFinished(record(), b'{"a":2,"same":3,"new":[4]}', changes), capsys)
    assert json.loads(out) == {"a": 2, "same": 3, "new": [4]}
    assert "✓ forecast · 12 ms · 3 differences" in err
    assert "~ a  1 → 2" in err and "- gone  2" in err and "+ new  [4]" in err


@pytest.mark.parametrize(("changes", "verdict"), [(None, "12 ms\n"), ([], "12 ms · unchanged\n")])
def test_a_first_result_and_an_unchanged_one_differ_in_the_verdict(
    changes: list[object] | None, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = shown(events.CallFinished(record(), None, changes), capsys)  # type: ignore[arg-type]
    assert out == "null\n" and err.endswith(verdict)


def test_of_a_long_result_the_beginning_is_shown_and_the_rest_counted(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.dumps(list(range(100))).encode()
    out, err = shown(events.CallFinished(record(), document, None), capsys)
    assert out.count("\n") == RESULT_LINES
    assert f"… {102 - RESULT_LINES} more lines" in err


def test_a_failed_call_shows_the_reason_but_not_the_stderr_again(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(events.CallFinished(record(FAILURE), None, None), capsys)
    assert out == ""
    assert "✗ forecast · crashed · 12 ms" in err and "it broke" in err and "shown before" not in err


def test_nothing_a_plugin_says_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (
        events.StderrWritten("\x1b[2J"),
        events.CallProgressed("x", "\x1b[2J"),
        events.LogNoted("warn", "noise", "\x1b[2J"),
    ):
        assert "\x1b" not in "".join(shown(event, capsys))


def test_json_is_one_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView()
    view.show(events.CallFinished(record(), b'{"big":12345678901234567890}', []))
    view.list_exports([TOOL])
    view.list_commands()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["output"] == {"big": 12345678901234567890} and first["differences"] == []
    assert second["exports"][0]["name"] == "forecast"


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", None),
        ("   ", None),
        ("greet", Command("call", "greet", "{}")),
        ('greet {"name": "A b"}', Command("call", "greet", '{"name": "A b"}')),
        ("  call greet  [1, 2] ", Command("call", "greet", "[1, 2]")),
        ("call reload", Command("call", "reload", "{}")),
        ("reload", Command("reload")),
        ("reload {}", Command("call", "reload", "{}")),
        ("?", Command("help")),
        ("q", Command("quit")),
        ("exit", Command("quit")),
        ("!", Command("again")),
    ],
)
def test_a_line_is_a_command_or_a_call(line: str, meaning: Command | None) -> None:
    assert parse(line) == meaning


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_means_itself_and_is_explained(command: str) -> None:
    assert parse(command) == Command(command)
    assert command in COMMAND_HELP


def test_output_without_a_prompt_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    with Prompt(lambda line: None, lambda: []).print_above():
        print("hello")
    assert capsys.readouterr().out == "hello\n"

"""Tapped frames: sender, name, matching request and duration, one line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from plugbay.cli.render import output, tap_view
from plugbay.cli.render.tap_view import HumanView, JsonView
from plugbay.link.recording import Frame, Happening, Item, StderrLine
from tests.conformance.recordings import call, error, items, result, tell


@pytest.fixture(autouse=True)
def _fresh_printers() -> Iterator[None]:
    """Printers keep the stream they were made for."""
    output.out.cache_clear()
    yield
    output.out.cache_clear()


def shown(capsys: pytest.CaptureFixture[str], contract: str, said: list[Item], **options: Any) -> list[str]:
    view = HumanView(contract, **options)
    for item in said:
        view.show(item)
    return capsys.readouterr().out.splitlines()


def test_answers_name_their_question_and_the_time_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    said = items(
        [
            (".", {"event": "spawn", "pid": 7}),
            (">", call(1, "p.t", a=1)),
            ("<", call(1, "kaged.storage.get", key="k")),
            (">", result(1, {"found": False})),
            ("!", "working"),
            ("<", error(1, "no tea")),
            (">", tell("initialized")),
            (".", {"event": "exit", "code": 0, "signal": None}),
        ]
    )
    assert shown(capsys, "kaged", said) == [
        "    0.000   ● started, pid 7",
        '    0.010   → p.t #1  {"a": 1}',
        '    0.020   ← kaged.storage.get #1  {"key": "k"}',
        '    0.030   → ok kaged.storage.get #1  10 ms  {"found": false}',
        "    0.040   │ working",
        '    0.050   ← error p.t #1  40 ms  {"code": -32000, "message": "no tea"}',
        "    0.060   → initialized",
        "    0.070   ● exited: exit code 0",
    ]


def test_greetings_and_pieces_have_their_words(capsys: pytest.CaptureFixture[str]) -> None:
    request = {"type": "request", "id": "req_1", "op": "tool.invoke", "body": {"export_id": "t"}}
    said = items(
        [
            (">", {"type": "hello", "role": "host"}),
            ("<", {"type": "hello", "role": "plugin"}),
            (">", request),
            ("<", {"type": "event", "request_id": "req_1", "event": {"type": "progress"}}),
        ]
    )
    lines = shown(capsys, "vai", said)
    assert lines[1] == '    0.010   ← ok hello  10 ms  "plugin"'
    assert lines[3] == '    0.030   ← piece tool.invoke t #req_1  10 ms  {"type": "progress"}'


def test_what_was_taken_out_or_cut_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[Item] = [
        Frame(0, 1, "host", 20, call(1, "a", token="***"), redacted=("/params/token",)),
        Frame(0, 1, "plugin", 99_999, None, b'{"a":', (), "", "sha256:0123456789abcdef"),
        Frame(0, 1, "plugin", 5, None, b"\x1b[2J\xff", (), "not JSON"),
    ]
    assert shown(capsys, "nexo", said) == [
        '    0.000   → a #1  1 redacted  {"token": "***"}',
        '    0.000   ← cut   99,999 bytes, sha256:0123456789ab…  {"a":',
        "    0.000   ← not a message not JSON  \\x1b[2J\\xff",
    ]


def test_a_second_process_has_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[Item] = [Happening(1.5, 2, "joined", {"pid": 8}), StderrLine(1.5, 2, "two\nlines")]
    assert shown(capsys, "nexo", said) == ["    1.500 2 ● joined, pid 8", "    1.500 2 │ two lines"]


def test_a_frame_is_one_line_unless_all_of_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    frame = Frame(0, 1, "plugin", 1, result(1, {"text": "x" * 500}))
    (line,) = shown(capsys, "nexo", [frame])
    assert len(line) == tap_view.PIPE_WIDTH and line.endswith("…")
    lines = shown(capsys, "nexo", [frame], full=True)
    assert json.loads("".join(lines[1:])) == frame.value


def test_questions_that_are_never_answered_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_view, "MAX_OPEN_CALLS", 3)
    view = HumanView("nexo")
    for number in range(10):
        view.show(Frame(0, 1, "host", 1, call(number, "a")))
    assert len(view._asked) == 3


def test_as_json_an_item_is_a_line_of_a_recording(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    item = Frame(0.5, 1, "host", 9, {"a": 1})
    JsonView().show(item)
    assert json.loads(capsysbinary.readouterr().out) == item.to_json()

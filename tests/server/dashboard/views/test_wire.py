"""Frames, lines and events of a plugin as rows."""

from __future__ import annotations

from typing import Any

from plugbay.contracts.base import Role
from plugbay.link.recording import EXIT, SPAWN, Frame, Happening, Item, StderrLine
from plugbay.server.dashboard.views import wire
from plugbay.server.dashboard.views.wire import MAX_SHOWN, WireReader


def frame(t: float, sender: str, value: Any, **more: Any) -> Frame:
    return Frame(t, 1, sender, 10, value, **more)


def test_answers_are_matched_with_requests() -> None:
    rows = WireReader("nexo").rows(
        [
            frame(1.0, Role.HOST, {"jsonrpc": "2.0", "id": 7, "method": "tool.invoke", "params": {}}),
            frame(1.25, Role.PLUGIN, {"jsonrpc": "2.0", "id": 7, "result": {"tea": 1}}, redacted=("/result/key",)),
            frame(2.0, Role.PLUGIN, {"jsonrpc": "2.0", "id": 9, "error": {"message": "no"}}),
            frame(3.0, Role.PLUGIN, {"jsonrpc": "2.0", "method": "broker.publish"}),
        ]
    )
    assert [(row.sender, row.title, row.tone) for row in rows] == [
        ("host", "tool.invoke #7", "calm"),
        ("plugin", "ok tool.invoke #7, 250 ms", "good"),
        ("plugin", "error  #9", "bad"),
        ("plugin", "broker.publish", "calm"),
    ]
    assert rows[1].notes == ("10 bytes", "1 redacted") and '"tea": 1' in rows[1].whole and rows[0].time == "1.000"


def test_what_is_no_message_is_marked() -> None:
    odd = Frame(0.5, 2, Role.PLUGIN, 4, None, b"\xffno", problem="not JSON")
    cut = Frame(0.6, 2, Role.PLUGIN, 99_999, None, b"{" * 9_000, cut="sha256:x")
    first, second = WireReader("nexo").rows([odd, cut])
    assert (first.title, first.tone, first.notes) == ("not a message", "warn", ("4 bytes", "not JSON"))
    assert first.whole == "\\xffno" and first.process == 2
    assert second.title == "a long message" and len(second.whole) == MAX_SHOWN


def test_lines_and_processes_have_rows() -> None:
    items: list[Item] = [
        Happening(0.1, 1, SPAWN, {"pid": 42}),
        StderrLine(0.2, 1, "hello"),
        Happening(0.3, 1, EXIT, {"code": 3}),
    ]
    rows = WireReader("rune").rows(items)
    assert [(row.sender, row.title) for row in rows] == [
        ("process", "spawn, process 42"),
        ("stderr", "hello"),
        ("process", "ended: exit code 3"),
    ]


def test_a_contract_that_is_not_known_has_frames_all_the_same() -> None:
    (row,) = WireReader("later").rows([frame(0.0, Role.HOST, {"a": 1})])
    assert row.title == "not a message" and '"a": 1' in row.whole


def test_requests_without_an_answer_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(wire, "MAX_OPEN_CALLS", 2)
    reader = WireReader("nexo")
    reader.rows([frame(0.0, Role.HOST, {"id": number, "method": "m"}) for number in range(5)])
    assert len(reader._asked) == 2

"""Keys as a terminal sends them, and a terminal that is closed."""

from __future__ import annotations

import os
import pty
from typing import Any

import pytest
from textual import events

from plugbay.tui.canvas import key_event
from plugbay.tui.driver import KeyHeld, KeyParser, _ErrorIgnoringFile, is_gone
from tests.support.requirements import requirement


def test_a_terminal_that_was_closed_is_known_to_be_gone_and_takes_whatever_is_written() -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", buffering=1) as file:
        forgiving = _ErrorIgnoringFile(file)
        forgiving.write("here\n")
        forgiving.flush()
        assert os.read(ours, 100) == b"here\r\n"
        assert not is_gone(theirs) and forgiving.isatty() and forgiving.fileno() == theirs
        os.close(ours)
        assert is_gone(theirs)
        assert forgiving.write("gone\n") == 5
        forgiving.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)  # so that the file itself can be closed


def char(ch: str, mods: int = 0) -> dict[str, Any]:
    return {"code": {"type": "char", "ch": ch}, "mods": mods}


@requirement("ainb:tui-alt")
@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("\x1ba", [char("a", 4)]),
        ("\x1bb\x1bf", [char("b", 4), char("f", 4)]),
        ("\x1bA", [char("A", 5)]),
        ("\x1b.", [char(".", 4)]),
        ("\x1b[97;3u", [char("a", 4)]),
        ("\x1b[21~", [{"code": {"type": "f", "n": 10}, "mods": 0}]),
        ("?", [char("?")]),
        ("\x1b[47;2;63u", [char("?")]),
    ],
)
def test_alt_with_a_letter_is_one_key_at_once(sent: str, keys: list[dict[str, Any]]) -> None:
    heard = list(KeyParser().feed(sent))
    pressed = [key_event(event.key, event.character) for event in heard if isinstance(event, events.Key)]
    assert pressed == [{**key, "kind": "press"} for key in keys]
    assert len(heard) == len(keys)


@requirement("ainb:tui-key-kinds")
@pytest.mark.parametrize(
    ("sent", "key", "kind"),
    [
        ("\x1b[97;1:2;97u", char("a"), "repeat"),
        ("\x1b[97;1:3u", char("a"), "release"),
        ("\x1b[97:65;2:3u", char("A", 1), "release"),
        ("\x1b[97;5:2u", char("a", 2), "repeat"),
        ("\x1b[21;1:3~", {"code": {"type": "f", "n": 10}, "mods": 0}, "release"),
        ("\x1b[1;1:2A", {"code": {"type": "up"}, "mods": 0}, "repeat"),
    ],
)
def test_a_repeat_and_a_release_are_no_press(sent: str, key: dict[str, Any], kind: str) -> None:
    (event,) = KeyParser().feed(sent)
    assert isinstance(event, KeyHeld)
    assert (key_event(event.key, event.character), event.kind) == ({**key, "kind": "press"}, kind)


def test_a_press_that_is_reported_as_one_is_a_key() -> None:
    (event,) = KeyParser().feed("\x1b[97;1:1;97u")
    assert isinstance(event, events.Key) and event.key == "a"

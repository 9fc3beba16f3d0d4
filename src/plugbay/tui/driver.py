"""`HangupDriver`: Textual's driver for Linux, for a terminal that may disappear and for every key that plugins know.

It keeps the app alive when the terminal is closed: Textual's writer thread ends at the first error, and the next write
would block the event loop for ever. `KeyParser` reads Alt with a letter without delay, and repeats and releases where
the terminal reports them; they arrive as `KeyHeld` messages, because Textual takes every `Key` for a press.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import selectors
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import _character_to_key
from textual.message import Message

REPORT_KINDS = "\x1b[=2;2u"
"""Asks a terminal with the Kitty keyboard protocol to report repeats and releases too; others ignore it."""

POLL_SECONDS = 0.1
READ_BYTES = 4096

_KINDS = {"2": "repeat", "3": "release"}
_KIND = re.compile(r"(\x1b\[[\d:]*;\d*):([123])((?:;[\d:]*)?[u~A-Z])")
"""A key of the Kitty protocol whose kind stands after its modifiers."""

_ALTERNATES = re.compile(r"(\x1b\[\d+):[\d:]*")
_INTRODUCERS = frozenset("[]OPX^_")
"""Characters after which an escape sequence goes on; after all others, the escape was Alt."""


class KeyHeld(Message):
    """A key is held down, or was released."""

    def __init__(self, key: str, character: str | None, kind: str) -> None:
        super().__init__()
        self.key = key
        self.character = character
        self.kind = kind
        """`repeat` or `release`."""


class KeyParser(XTermParser):
    """Textual's parser of terminal input, with Alt and with kinds of keys."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Any]:
        found = _KIND.fullmatch(sequence)
        if found is not None:
            before, kind, after = found.groups()
            keys = super()._sequence_to_key_events(_ALTERNATES.sub(r"\1", before, count=1) + after)
            return [KeyHeld(key.key, key.character, _KINDS[kind]) if kind in _KINDS else key for key in keys]
        character = sequence[1:]
        if len(sequence) == 2 and sequence[0] == "\x1b" and character.isprintable() and character not in _INTRODUCERS:
            shift = "shift+" if character.isupper() else ""
            return [events.Key(f"alt+{shift}{_character_to_key(character.lower())}", character)]
        return super()._sequence_to_key_events(sequence, alt)


class HangupDriver(LinuxDriver):
    """The driver of `Terminal`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = cast(Any, _ErrorIgnoringFile(self._file))

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(REPORT_KINDS)
        self.flush()

    def run_input_thread(self) -> None:
        """As Textual's, with `KeyParser`. It ends with the terminal, whose end is readable for ever."""
        parser, decode = KeyParser(), codecs.getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector, suppress(OSError):
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                data = os.read(self.fileno, READ_BYTES) if selector.select(POLL_SECONDS) else None
                if data == b"":
                    return
                text = decode(data or b"")
                for event in (*(parser.feed(text) if text else ()), *parser.tick()):
                    self.process_message(event)
            if selector.select(POLL_SECONDS):  # answers of the terminal must not reach the shell
                os.read(self.fileno, READ_BYTES)


class _ErrorIgnoringFile:
    """A file that ignores write errors of a closed terminal."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            self._file.write(text)
        except OSError:
            pass
        return len(text)

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def is_gone(fileno: int) -> bool:
    """Whether the terminal of this descriptor was closed."""
    poll = select.poll()
    poll.register(fileno, 0)
    return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))

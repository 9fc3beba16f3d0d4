"""The line at the bottom of `plugbay dev`: what can be typed there, and how it survives what is printed meanwhile.

Owns the words, the thread that waits for them, history and completion, and the state of the terminal. What a word does
is the command's business.
"""

from __future__ import annotations

import contextlib
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

PROMPT = "dev> "

CALL = "call"

WORDS = {
    "EXPORT {…}": "call it; without JSON, with {}",
    "call EXPORT {…}": "the same, for an export with the name of a command",
    "again": "the last call once more",
    "cancel": "give up the call that runs",
    "tools": "what can be called, and with what",
    "reload": "start the plugin afresh, as a save does",
    "help": "this list",
    "quit": "leave; Ctrl-D does, too",
}
"""What can be typed, and what it does."""

COMMANDS = ("again", "cancel", "tools", "reload", "help", "quit")
SHORT = {"?": "help", "q": "quit", "exit": "quit", "!": "again", "exports": "tools"}

CLEAR = "\r\x1b[K"
"""To the beginning of the line, and nothing on it."""


class Typed(NamedTuple):
    """What a line means: a command, or a call with the text of its input."""

    command: str
    export: str = ""
    given: str = "{}"


def parse(line: str) -> Typed | None:
    """What was typed; None for nothing."""
    first, _, rest = line.strip().partition(" ")
    command = SHORT.get(first, first)
    if not first:
        return None
    if command in COMMANDS and not rest.strip():
        return Typed(command)
    if first == CALL:
        first, _, rest = rest.strip().partition(" ")
    return Typed(CALL, first, rest.strip() or "{}")


class Prompt:
    """Lines that somebody types, each handed over from a thread of its own; None when there will be no more."""

    def __init__(self, hand_over: Callable[[str | None], object], names: Callable[[], Sequence[str]]) -> None:
        self._hand_over = hand_over
        self._names = names
        self._shown = False
        self._readline = _readline()
        self._terminal = _terminal_state()
        self._dealt_with = threading.Semaphore(0)

    def open(self) -> None:
        """Begin to ask. The thread holds nothing up: it ends with the process."""
        if self._readline is not None:
            self._readline.set_completer(self._complete)
            self._readline.set_completer_delims(" ")
            self._readline.parse_and_bind("tab: complete")
            self._readline.set_auto_history(True)
            self._readline.set_pre_input_hook(self._drawn)
        threading.Thread(target=self._ask, name="prompt", daemon=True).start()

    def close(self) -> None:
        """Leave the terminal as it was: whoever reads a line has changed how it behaves."""
        self._shown = False
        if self._terminal is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._terminal)

    def go_on(self) -> None:
        """The last line was dealt with: ask for the next."""
        self._dealt_with.release()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Print above the line: it goes, and comes back with what was typed so far."""
        if not self._shown:
            yield
            return
        sys.stdout.write(CLEAR)
        sys.stdout.flush()
        try:
            yield
        finally:
            sys.stderr.flush()
            typed = self._readline.get_line_buffer() if self._readline is not None else ""
            sys.stdout.write(PROMPT + typed)
            sys.stdout.flush()

    def _ask(self) -> None:
        while True:
            self._shown = self._readline is None
            try:
                line: str | None = input(PROMPT)
            except (EOFError, OSError, ValueError):
                line = None
            self._shown = False
            self._hand_over(line)
            if line is None:
                return
            self._dealt_with.acquire()

    def _drawn(self) -> None:
        """From here on there is a line that others must not write over."""
        self._shown = True

    def _complete(self, text: str, number: int) -> str | None:
        assert self._readline is not None
        begun = self._readline.get_line_buffer()[: self._readline.get_begidx()].strip()
        words = [*self._names(), *COMMANDS] if not begun else list(self._names()) if begun == CALL else []
        fitting = [f"{word} " for word in words if word.startswith(text)]
        return fitting[number] if number < len(fitting) else None


def _readline() -> ModuleType | None:
    """History and completion, where this Python has them."""
    try:
        import readline
    except ImportError:
        return None
    return readline


def _terminal_state() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (OSError, ValueError, termios.error):
        return None

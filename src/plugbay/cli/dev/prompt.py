"""The interactive prompt of `plugbay dev`: its commands, history, completion and the state of the terminal.

A daemon thread reads lines and passes them on. Output printed meanwhile goes above the prompt line (`print_above`).
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

COMMAND_HELP = {
    "EXPORT {…}": "call it; without JSON, with {}",
    "call EXPORT {…}": "the same, for an export with the name of a command",
    "again": "the last call once more",
    "cancel": "give up the call that runs",
    "tools": "what can be called, and with what",
    "reload": "start the plugin afresh, as a save does",
    "help": "this list",
    "quit": "leave; Ctrl-D does, too",
}
"""Each form of a typed line, and its effect."""

COMMANDS = ("again", "cancel", "tools", "reload", "help", "quit")
SHORT = {"?": "help", "q": "quit", "exit": "quit", "!": "again", "exports": "tools"}

CLEAR = "\r\x1b[K"
"""Carriage return, then erase to the end of the line."""


class Command(NamedTuple):
    """A parsed line: a command, or a call with its input as text."""

    command: str
    export: str = ""
    given: str = "{}"


def parse(line: str) -> Command | None:
    """Parse a typed line; None for an empty one."""
    first, _, rest = line.strip().partition(" ")
    command = SHORT.get(first, first)
    if not first:
        return None
    if command in COMMANDS and not rest.strip():
        return Command(command)
    if first == CALL:
        first, _, rest = rest.strip().partition(" ")
    return Command(CALL, first, rest.strip() or "{}")


class Prompt:
    """Calls `on_line` from its thread with each typed line, and with None at the end of input."""

    def __init__(self, on_line: Callable[[str | None], object], names: Callable[[], Sequence[str]]) -> None:
        self._on_line = on_line
        self._names = names
        self._shown = False
        self._readline = _readline()
        self._terminal = _terminal_state()
        self._handled = threading.Semaphore(0)

    def open(self) -> None:
        """Start the reading thread. It is a daemon, so it does not delay the exit of the process."""
        if self._readline is not None:
            self._readline.set_completer(self._complete)
            self._readline.set_completer_delims(" ")
            self._readline.parse_and_bind("tab: complete")
            self._readline.set_auto_history(True)
            self._readline.set_pre_input_hook(self._prompt_drawn)
        threading.Thread(target=self._read_lines, name="prompt", daemon=True).start()

    def close(self) -> None:
        """Restore the terminal modes, which readline changes while it reads a line."""
        self._shown = False
        if self._terminal is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._terminal)

    def ask_next(self) -> None:
        """Read the next line; call it when the last one was handled."""
        self._handled.release()

    @contextlib.contextmanager
    def print_above(self) -> Iterator[None]:
        """Erase the prompt line while the block prints, then restore it with the text typed so far."""
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

    def _read_lines(self) -> None:
        while True:
            self._shown = self._readline is None
            try:
                line: str | None = input(PROMPT)
            except (EOFError, OSError, ValueError):
                line = None
            self._shown = False
            self._on_line(line)
            if line is None:
                return
            self._handled.acquire()

    def _prompt_drawn(self) -> None:
        """The prompt is visible from now on; `print_above` must restore it."""
        self._shown = True

    def _complete(self, text: str, number: int) -> str | None:
        assert self._readline is not None
        begun = self._readline.get_line_buffer()[: self._readline.get_begidx()].strip()
        words = [*self._names(), *COMMANDS] if not begun else list(self._names()) if begun == CALL else []
        fitting = [f"{word} " for word in words if word.startswith(text)]
        return fitting[number] if number < len(fitting) else None


def _readline() -> ModuleType | None:
    """The readline module, or None in a Python built without it."""
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

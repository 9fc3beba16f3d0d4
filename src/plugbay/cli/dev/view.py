"""The terminal of `plugbay dev`: prints events for people or as JSON lines, and reads typed lines (`Prompt`).

Results go to stdout, everything else to stderr. A daemon thread reads lines; output printed meanwhile goes above the
prompt line (`print_above`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from plugbay.cli.dev import events
from plugbay.cli.lookup import count_problems
from plugbay.cli.render import call_view, output, schema_text
from plugbay.cli.render.call_view import show_problems
from plugbay.model.errors import Failure

if TYPE_CHECKING:
    from types import ModuleType

    from plugbay.conformance.replay.differences import Difference
    from plugbay.model.spec import Export


RESULT_LINES = 40
"""Lines of a result that are printed; `plugbay call` prints all of them."""

MAX_DIFFERENCES = 6
MAX_PATHS = 3

MAX_EXPORTS = 12

MAX_SHOWN_INPUT = 200
"""Characters; a longer input is shortened on the line of its call."""

WORD_WIDTH = 18

BAR = "│ "

NOISE = "noise"


class View(Protocol):
    """Prints events."""

    def show(self, event: events.Event) -> None: ...

    def list_exports(self, exports: Sequence[Export]) -> None: ...

    def list_commands(self) -> None: ...


class JsonView:
    """Prints one line of JSON for each event."""

    def show(self, event: events.Event) -> None:
        output.print_line(event.to_json())

    def list_exports(self, exports: Sequence[Export]) -> None:
        output.print_line({"event": "exports", "exports": [export.to_json() for export in exports]})

    def list_commands(self) -> None:
        """Prints nothing: there is no prompt with `--json`."""


class HumanView:
    """Prints lines for a person."""

    def __init__(self, print_above: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> None:
        """`print_above` is a context manager that moves the prompt out of the way while a block prints."""
        self.print_above = print_above

    def show(self, event: events.Event) -> None:
        with self.print_above():
            self._show(event)

    def list_exports(self, exports: Sequence[Export]) -> None:
        with self.print_above():
            _list(exports)

    def list_commands(self) -> None:
        with self.print_above():
            for word, meaning in COMMAND_HELP.items():
                output.err().field(word, meaning, width=WORD_WIDTH, label_style=output.CODE)

    @functools.singledispatchmethod
    def _show(self, event: events.Event) -> None:
        raise TypeError(f"no view for {event!r}")

    @_show.register
    def _(self, event: events.Watching) -> None:
        spec, page = event.spec, output.err()
        tail = "".join(
            f"{output.DOT}{fact}" for fact in (output.known_version(spec.version), spec.contract, spec.root) if fact
        )
        page.line((spec.id, output.NAME), (tail, output.DIM))
        _list(spec.exports)

    @_show.register
    def _(self, event: events.Validated) -> None:
        found = event.found
        if found.spec is None:
            text = f"not reloaded: the manifest has {count_problems(found.errors)}"
            output.err().line((output.BAD, output.BAD_STYLE), f" {text}; correct and save it")
        show_problems(output.err(), found, found.problems)

    @_show.register
    def _(self, event: events.Changed) -> None:
        shown = ", ".join(event.paths[:MAX_PATHS])
        more = f" and {len(event.paths) - MAX_PATHS} more" if len(event.paths) > MAX_PATHS else ""
        output.err().blank()
        output.err().line(("↻ ", output.CODE), (f"{shown}{more}", output.NAME), (" saved", output.DIM))

    @_show.register
    def _(self, event: events.Generated) -> None:
        page, words = output.err(), " updated from the declarations in the source"
        page.line(("↻ ", output.CODE), (", ".join(event.paths), output.NAME), (words, output.DIM))

    @_show.register
    def _(self, event: events.Ready) -> None:
        took = f"{output.DOT}{output.duration(event.duration_ms)}"
        output.err().line((output.OK, output.GOOD_STYLE), " started; the handshake is complete", (took, output.DIM))

    @_show.register
    def _(self, event: events.Failed) -> None:
        failure = event.failure
        output.err().line((output.BAD, output.BAD_STYLE), " ", (failure.code, output.BAD_STYLE))
        call_view.show_failure(strip_stderr(failure))

    @_show.register
    def _(self, event: events.StderrWritten) -> None:
        output.err().line((BAR, output.DIM), event.text, indent=2)

    @_show.register
    def _(self, event: events.LogNoted) -> None:
        style = {"error": output.BAD_STYLE, "warn": output.WARN_STYLE}.get(event.level, output.CODE)
        label = "printed to stdout" if event.about == NOISE else event.about
        output.err().line((BAR, output.DIM), (label, style), f"  {event.text}", indent=2)

    @_show.register
    def _(self, event: events.CallStarted) -> None:
        given = output.json_bytes(event.input).decode()
        call = f"{event.export} {given}" if len(given) <= MAX_SHOWN_INPUT else f"{event.export} {{…}}"
        output.err().line(("→ ", output.CODE), call, (" again" if event.again else "", output.DIM))

    @_show.register
    def _(self, event: events.CallProgressed) -> None:
        output.err().line((BAR, output.DIM), ("progress", output.CODE), f"  {_format_item(event.item)}", indent=2)

    @_show.register
    def _(self, event: events.CallFinished) -> None:
        record = event.record
        failure = record.failure
        mark = (output.BAD, output.BAD_STYLE) if failure else (output.OK, output.GOOD_STYLE)
        code = (f"{output.DOT}{failure.code}" if failure else "", output.BAD_STYLE)
        took = (f"{output.DOT}{output.duration(record.duration_ms)}", output.DIM)
        output.err().line(mark, " ", (record.export, output.NAME), code, took, (_verdict(event), output.DIM))
        if failure is not None:
            call_view.show_failure(strip_stderr(failure))
            return
        _print_result(b"null" if event.output is None else event.output)
        _list_differences(event.differences or ())

    @_show.register
    def _(self, event: events.AttachOffered) -> None:
        page = output.err()
        page.line("Run the plugin yourself, in another terminal:")
        page.blank()
        # Not wrapped, so that it can be copied as one line.
        page.console.print(event.line, style=output.CODE, soft_wrap=True)
        page.blank()
        text = (
            "breakpoint(), print and debuggers work there" if event.interactive else "its stderr goes to that terminal"
        )
        page.line((f"{text}; no timeout applies.", output.DIM))

    @_show.register
    def _(self, event: events.Attached) -> None:
        output.err().line((output.OK, output.GOOD_STYLE), f" process {event.pid} is attached")

    @_show.register
    def _(self, event: events.Detached) -> None:
        output.err().line((output.WARN, output.WARN_STYLE), f" process {event.pid} has exited; run the command again")

    @_show.register
    def _(self, event: events.Remark) -> None:
        output.err().line((event.text, output.DIM))


def strip_stderr(failure: Failure) -> Failure:
    """The failure without its stderr tail, which the view has already printed."""
    detail = {key: value for key, value in failure.detail.items() if key != "stderr_tail"}
    return Failure(failure.code, failure.message, origin=failure.origin, plugin=failure.plugin, detail=detail)


def _list(exports: Sequence[Export]) -> None:
    page = output.err()
    width = max((len(export.name) for export in exports[:MAX_EXPORTS]), default=0) + 2
    for export in exports[:MAX_EXPORTS]:
        takes = schema_text.summary(export.input_schema) if export.input_schema is not None else ""
        kind = f"{export.kind.replace('_', ' ')} " if export.kind != "tool" else ""
        page.field(export.name, (kind, output.DIM), takes, width=width, label_style=output.CODE)
    if len(exports) > MAX_EXPORTS:
        page.line(f"… and {len(exports) - MAX_EXPORTS} more", indent=2)


def _verdict(event: events.CallFinished) -> str:
    if event.differences is None:
        return ""
    number = len(event.differences)
    return f"{output.DOT}{output.count(number, 'difference')}" if number else f"{output.DOT}unchanged"


def _print_result(document: bytes) -> None:
    lines = msgspec.json.format(document, indent=2).count(b"\n") + 1
    if lines <= RESULT_LINES:
        output.print_document(document)
        return
    text = msgspec.json.format(document, indent=2).decode()
    output.out().line("\n".join(text.split("\n")[:RESULT_LINES]))
    output.err().line((f"… {lines - RESULT_LINES:,} more lines", output.DIM))


def _list_differences(differences: Sequence[Difference]) -> None:
    page = output.err()
    for item in differences[:MAX_DIFFERENCES]:
        place = item.path.lstrip("/").replace("/", ".") or "the whole value"
        if item.new is None:
            page.line(("- ", output.BAD_STYLE), (place, output.CODE), f"  {item.gone}", indent=2)
        elif item.gone is None:
            page.line(("+ ", output.GOOD_STYLE), (place, output.CODE), f"  {item.new}", indent=2)
        else:
            page.line(("~ ", output.WARN_STYLE), (place, output.CODE), f"  {item.gone} → {item.new}", indent=2)
    if len(differences) > MAX_DIFFERENCES:
        page.line((f"… {len(differences) - MAX_DIFFERENCES:,} more", output.DIM), indent=2)


def _format_item(item: Any) -> str:
    from plugbay.conformance.replay.differences import shown

    return shown(msgspec.json.decode(output.json_bytes(item)))


PROMPT = "dev> "

CALL = "call"

COMMAND_HELP = {
    "EXPORT {…}": "call an export; the default input is {}",
    "call EXPORT {…}": "the same, for an export with the name of a command",
    "again": "repeat the last call",
    "cancel": "cancel the running call",
    "tools": "list the exports and their inputs",
    "reload": "restart the plugin, as a save does",
    "help": "show this list",
    "quit": "exit; so does Ctrl-D",
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

"""Prints the events of `plugbay dev` for a person or as JSON lines. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugbay.cli.dev import events
from plugbay.cli.dev.prompt import COMMAND_HELP
from plugbay.cli.render import call_view, output, schema_text
from plugbay.cli.render.manifest_problems import count_problems, show_problems
from plugbay.model.errors import Failure

if TYPE_CHECKING:
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
            what = f"not reloaded: the manifest has {count_problems(found.errors)}"
            output.err().line((output.BAD, output.BAD_STYLE), f" {what}; save it again when that is fixed")
        show_problems(output.err(), found, found.problems)

    @_show.register
    def _(self, event: events.Changed) -> None:
        shown = ", ".join(event.paths[:MAX_PATHS])
        more = f" and {len(event.paths) - MAX_PATHS} more" if len(event.paths) > MAX_PATHS else ""
        output.err().blank()
        output.err().line(("↻ ", output.CODE), (f"{shown}{more}", output.NAME), (" saved", output.DIM))

    @_show.register
    def _(self, event: events.Ready) -> None:
        took = f"{output.DOT}{output.duration(event.duration_ms)}"
        output.err().line((output.OK, output.GOOD_STYLE), " it starts and greets", (took, output.DIM))

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
        what = f"{event.export} {given}" if len(given) <= MAX_SHOWN_INPUT else f"{event.export} {{…}}"
        output.err().line(("→ ", output.CODE), what, (" again" if event.again else "", output.DIM))

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
        what = "breakpoint(), print and debuggers work there" if event.interactive else "its stderr is that terminal"
        page.line((f"{what}; no deadline cuts it short.", output.DIM))

    @_show.register
    def _(self, event: events.Attached) -> None:
        output.err().line((output.OK, output.GOOD_STYLE), f" process {event.pid} is attached")

    @_show.register
    def _(self, event: events.Detached) -> None:
        output.err().line((output.WARN, output.WARN_STYLE), f" process {event.pid} has gone; run the line again")

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
    return f"{output.DOT}{output.count(number, 'difference')}" if number else f"{output.DOT}the same as before"


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
        place = item.path.lstrip("/").replace("/", ".") or "all of it"
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

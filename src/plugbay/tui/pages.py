"""Text pages about a plugin without a frame: its facts, or its failure.

Pure. Text of plugins and manifests is never interpreted as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plugbay.host.discovery.folders import Found
from plugbay.host.status import PluginStatus
from plugbay.model.errors import Code, Failure
from plugbay.model.text import error_excerpt
from plugbay.tui.styles import AMBER, BLUE, GREEN, GREY, RED, SIGNS, safe, state_text, version_text

LABEL_COLUMNS = 12
"""Width of the label column."""

STDERR_LINES = 12
"""Lines of stderr: enough for the end of a traceback."""

OTHER_LINES = 12
"""Lines of the failure page besides stderr."""

NO_PLUGINS = Text.assemble(
    ("No plugins here\n\n", f"bold {GREY}"),
    ("plugbay tui DIR", BLUE),
    (" shows every plugin in a folder of plugins.", GREY),
)


def about_page(status: PluginStatus) -> RenderableType:
    """Facts, exports, grants and counters of a plugin without a screen."""
    spec = status.spec
    parts: list[RenderableType] = [Text(safe(spec.description or spec.name or spec.id), style="bold"), Text()]
    look = SIGNS[status.state]
    facts = [
        ("state", Text.assemble((f"{look.symbol} {state_text(status.state)}", look.colour))),
        ("contract", Text(version_text(spec, ", version "))),
        ("process", Text(_process(status))),
        ("folder", Text(safe(spec.root))),
    ]
    parts += [_fields(facts), Text()]
    rows = [(Text(export.kind), Text(safe(export.name)), Text(safe(export.description))) for export in spec.exports]
    parts += _section("exports", rows, "none")
    parts += _section("grants", _grants(status), "no capabilities requested")
    counted = [(Text(safe(name)), Text(f"{count:,}")) for name, count in sorted(status.counters.items())]
    parts += _section("counters", counted, "none")
    return Group(*parts)


def _process(status: PluginStatus) -> str:
    if status.pid is not None:
        return f"pid {status.pid}, start {status.generation} since the host began"
    return "none" if status.spec.lifetime == "resident" else "one for each call"


def _grants(status: PluginStatus) -> list[tuple[Text, ...]]:
    granted = set(status.granted)
    asked = dict.fromkeys((*status.spec.capabilities, *status.granted))
    words = {name: Text("◇ missing", AMBER) for name in status.missing} | {
        name: Text("✓ granted", GREEN) for name in granted
    }
    return [(words.get(name, Text("✗ refused", AMBER)), Text(safe(name))) for name in asked]


def _fields(facts: Iterable[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL_COLUMNS, style=GREY)
    table.add_column(overflow="fold")
    for label, text in facts:
        table.add_row(label, text)
    return table


def _section(title: str, rows: Sequence[tuple[Text, ...]], empty: str) -> list[RenderableType]:
    heading = Text(title, style=f"bold {BLUE}")
    if not rows:
        return [Text.assemble(heading, ("  " + empty, GREY)), Text()]
    table = Table.grid(padding=(0, 2))
    for index, _ in enumerate(rows[0]):
        table.add_column(no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return [heading, table, Text()]


def manifest_problems(found: Found) -> RenderableType:
    """All problems of an invalid manifest."""
    rows = [
        (Text(f"line {problem.line}" if problem.line else ""), _problem(problem.path, problem.message))
        for problem in found.problems
    ]
    title = Text("This plugin cannot be used: its manifest has problems", style=f"bold {RED}")
    return Group(title, Text(safe(found.root), style=GREY), Text(), *_section("problems", rows, "none"))


def _problem(path: str, message: str) -> Text:
    return Text.assemble((safe(path) + ": " if path else "", "bold"), safe(message))


def failure_page(status: PluginStatus, failure: Failure, height: int) -> RenderableType:
    """The failure of a screen, and the keys to go on, in about `height` lines."""
    look = SIGNS[status.state]
    parts: list[RenderableType] = [
        Text(_headline(failure), style=f"bold {RED}"),
        Text(),
        _fields(
            [
                ("plugin", Text(safe(status.spec.id))),
                ("state", Text.assemble((f"{look.symbol} {state_text(status.state)}", look.colour))),
                *([("exit", Text(safe(failure.detail["exit"]), style=RED))] if failure.detail.get("exit") else []),
                ("failure", Text(f"{failure.code}: {safe(failure.message)}")),
            ]
        ),
        Text(),
    ]
    room = max(1, min(STDERR_LINES, height - OTHER_LINES))
    tail = [safe(line) for line in error_excerpt(failure.detail.get("stderr_tail", ()), room)]
    if tail:
        parts += [Text("last lines of stderr", style=f"bold {BLUE}")]
        parts += [Text("  " + line, style=GREY, overflow="fold") for line in tail]
        parts += [Text()]
    if failure.detail.get("hint"):
        parts += [_fields([("hint", Text(safe(failure.detail["hint"])))]), Text()]
    parts.append(Text.assemble(("r", f"bold {BLUE}"), " reloads it   ", ("Esc", f"bold {BLUE}"), " goes to the list"))
    return Group(*parts)


def _headline(failure: Failure) -> str:
    headlines = {
        Code.CRASHED: "The plugin crashed",
        Code.QUARANTINED: "The plugin is quarantined: it failed too often",
        Code.LAUNCH_FAILED: "The plugin could not be started",
        Code.HANDSHAKE_FAILED: "The handshake of the plugin failed",
        Code.CAPABILITY_NOT_ALLOWED: "The plugin requests capabilities that are not granted",
        Code.MALFORMED_RESPONSE: "The plugin returned an invalid frame",
    }
    return headlines.get(failure.code, "The plugin returned no frame")

"""What an MCP server offers, shown to a person who approves it; and how that differs from what was approved.

Owns the one start that an approval takes, the page, and the question. What an approval is, and what follows from it, is
`host.pins`' and `host.offers`'.
"""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli import local_host
from plugbay.cli.render import output, schema_text
from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugbay.host.catalog.approvals import Change, Pin
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host

MAX_TEXT = 2_000
"""Characters of a description on the page. A longer one says so: what nobody has read may be meant to be overlooked."""


INVISIBLE = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)])
)
"""Characters that Unicode calls printable and that nobody sees; texts have been hidden in them. Emoji need the last of
the first row of selectors, U+FE0F, which can spell nothing alone."""


class Look(NamedTuple):
    """One server as it shows itself now, beside what was approved of it."""

    name: str
    hello: dict[str, Any]
    candidate: Pin
    approved: Pin | None
    changes: list[Change]

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        from plugbay.host.catalog.approvals import PARTS

        offer = self.hello["offer"]
        return {
            "server": self.name,
            "era": self.hello.get("era"),
            "protocol_version": self.hello.get("protocol_version"),
            "info": self.hello.get("server"),
            "offers": {part: [item.get(key) for item in offer.get(part) or ()] for part, key in PARTS.items()},
            "definitions": {part: list(offer.get(part) or ()) for part in PARTS},
            "warnings": list(self.hello.get("warnings") or ()),
            "approved_before": self.approved is not None,
            "changes": [change.to_json() for change in self.changes],
        }


def look(name: str, found: list[Found], config: Config | None) -> Look:
    """Start the server once, without any grant, and let it say what it offers; raises `CallFailed`."""
    output.note_what_hosts_log(without=output.FAILED_STARTS)
    host = local_host.make(found, config, grants=(), trusted=(name,))
    known = [status.spec.id for status in host.plugins() if status.needs_approval]
    if name not in known:
        raise CallFailed(unknown(name, known, f"no MCP server is called {name!r}"))
    problem = host.offers.problems.get(name)
    if problem is not None:
        output.note(f"{name} has to be approved again: {problem}")
    return local_host.visit(host, lambda running: _look(running, name))


def unknown(name: str, known: Sequence[str], text: str) -> Failure:
    """There is no such server, but perhaps one with nearly that name."""
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
    hint = "plugbay mcp list shows them all" if known else "plugbay mcp add begins with one"
    return Failure(Code.NOT_FOUND, f"{text}; {meant}", detail={"hint": hint})


async def _look(host: Host, name: str) -> Look:
    failures = await host.meet(name)
    if failures:
        raise CallFailed(failures[name])
    hello = host.offers.hello(name)
    assert hello is not None, "who has been met has said what it is"
    return Look(name, dict(hello), host.offers.candidate(name), host.offers.pin(name), host.offers.drift(name))


def approve(look: Look, state: Path) -> None:
    """From now on the server may offer exactly this; raises `ConfigInvalid`."""
    from plugbay.host.catalog.approvals import Pins

    Pins(state).save(look.name, look.candidate)


def agreed(question: str) -> bool:
    """What the person at the terminal says; no, when there is nobody."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    console = output.err().console
    console.print(f"{question} [y/N] ", end="")
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D, which leaves the cursor where it is
        console.print()
    return answer.strip().lower() in {"y", "yes"}


def show(page: output.Printer, look: Look) -> None:
    """Everything the server offers, for a person to read before agreeing to it."""
    server = look.hello.get("server") or {}
    title = server.get("title") or server.get("name") or look.name
    page.line((look.name, output.NAME), f"  {_short(title)} {_short(server.get('version', ''))}".rstrip())
    page.field("speaks", f"MCP {look.hello['protocol_version']}", (f"{output.DOT}{look.hello['era']}", output.DIM))
    if server.get("instructions"):
        page.field("says", _short(server["instructions"]))
    for part, definition in _everything(look):
        page.line((part, output.DIM), " ", (_short(_name(definition)), output.CODE), indent=2)
        for said in _said(definition):
            page.line(_short(said), indent=4)
        if part == "tool":
            page.line(("input ", output.DIM), schema_text.summary(definition.get("inputSchema")), indent=4)
    if not any(look.hello["offer"].get(part) for part in look.hello["offer"]):
        page.line(("offers nothing", output.WARN_STYLE), indent=2)
    for warning in look.hello.get("warnings") or ():
        page.line((output.WARN, output.WARN_STYLE), f" {warning}", indent=2)


def _everything(look: Look) -> list[tuple[str, dict[str, Any]]]:
    from plugbay.host.catalog.approvals import NOUNS, PARTS

    return [(NOUNS[part], definition) for part in PARTS for definition in look.hello["offer"].get(part) or ()]


def _said(definition: dict[str, Any]) -> list[str]:
    """Its words for people and models."""
    return [str(definition[key]) for key in ("title", "description") if definition.get(key)]


def _name(definition: dict[str, Any]) -> str:
    return str(definition.get("uri") or definition.get("uriTemplate") or definition.get("name"))


def _short(text: str) -> str:
    line = "".join(map(_seen, " ".join(text.split())))
    if len(line) <= MAX_TEXT:
        return line
    return f"{line[:MAX_TEXT]}… and {len(line) - MAX_TEXT:,} characters more, which --json shows"


def _seen(char: str) -> str:
    """What a model reads and a person would not see, such as letters without width, in a form that can be seen."""
    return char if char.isprintable() and char not in INVISIBLE else f"\\u{{{ord(char):x}}}"


def show_changes(page: output.Printer, changes: Sequence[Change]) -> None:
    """Each difference with its lines: what was approved, and what is offered now."""
    for change in changes:
        page.line((str(change), output.NAME))
        for line in _difference(change):
            style = {"+": output.GOOD_STYLE, "-": output.BAD_STYLE}.get(line[:1], output.DIM)
            page.line((line, style), indent=2)


def _difference(change: Change) -> list[str]:
    before, after = _lines(change.before), _lines(change.after)
    return list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]


def _lines(definition: dict[str, Any] | None) -> list[str]:
    text = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False)
    return [] if definition is None else ["".join(map(_seen, line)) for line in text.split("\n")]

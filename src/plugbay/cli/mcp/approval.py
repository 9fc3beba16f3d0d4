"""Shows the offer of an MCP server for approval, and its differences to the approved one.

Starts the server once to read its offer. `host.catalog` stores approvals and enforces them.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli import local_host
from plugbay.cli.render import output, schema_text
from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugbay.host.catalog.approvals import Approval, Change
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host

MAX_TEXT = 2_000
"""Characters of a description on the page. The page says when it cuts one: an attack may hide in the rest."""


INVISIBLE = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)])
)
"""Characters that Unicode calls printable and that are invisible, which attacks use to hide text. U+FE0F, the last of
the variation selectors, is missing here: emoji need it, and alone it can encode nothing."""


class ServerOffer(NamedTuple):
    """The current offer of a server beside the approved one."""

    name: str
    hello: dict[str, Any]
    candidate: Approval
    approved: Approval | None
    changes: list[Change]

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        from plugbay.host.catalog.approvals import PARTS

        listed = self.hello["offer"]
        return {
            "server": self.name,
            "era": self.hello.get("era"),
            "protocol_version": self.hello.get("protocol_version"),
            "info": self.hello.get("server"),
            "offers": {part: [item.get(key) for item in listed.get(part) or ()] for part, key in PARTS.items()},
            "definitions": {part: list(listed.get(part) or ()) for part in PARTS},
            "warnings": list(self.hello.get("warnings") or ()),
            "approved_before": self.approved is not None,
            "changes": [change.to_json() for change in self.changes],
        }


def read_offer(name: str, found: list[Found], config: Config | None) -> ServerOffer:
    """Start the server once, without any grant, and read its offer; raises `CallFailed`."""
    output.show_host_log(without=output.FAILED_STARTS)
    host = local_host.make_host(found, config, grants=(), trusted=(name,))
    known = [status.spec.id for status in host.plugins() if status.needs_approval]
    if name not in known:
        raise CallFailed(unknown_server(name, known, f"no MCP server is called {name!r}"))
    problem = host.runtime_exports.problems.get(name)
    if problem is not None:
        output.note(f"{name} has to be approved again: {problem}")
    return local_host.run_with(host, lambda running: _read_offer(running, name))


def unknown_server(name: str, known: Sequence[str], text: str) -> Failure:
    """The failure for a wrong server name, with the closest known name."""
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
    hint = "plugbay mcp list shows them all" if known else "plugbay mcp add begins with one"
    return Failure(Code.NOT_FOUND, f"{text}; {meant}", detail={"hint": hint})


async def _read_offer(host: Host, name: str) -> ServerOffer:
    failures = await host.meet(name)
    if failures:
        raise CallFailed(failures[name])
    hello = host.runtime_exports.hello(name)
    assert hello is not None, "meet() succeeded, so the server has greeted"
    return ServerOffer(
        name,
        dict(hello),
        host.runtime_exports.candidate(name),
        host.runtime_exports.approval(name),
        host.runtime_exports.drift(name),
    )


def approve(offer: ServerOffer, state: Path) -> None:
    """Approve exactly this offer; raises `ConfigInvalid`."""
    from plugbay.host.catalog.approvals import Approvals

    Approvals(state).save(offer.name, offer.candidate)


def show(page: output.Printer, offer: ServerOffer) -> None:
    """Print the whole offer."""
    server = offer.hello.get("server") or {}
    title = server.get("title") or server.get("name") or offer.name
    page.line((offer.name, output.NAME), f"  {_shorten(title)} {_shorten(server.get('version', ''))}".rstrip())
    page.field("speaks", f"MCP {offer.hello['protocol_version']}", (f"{output.DOT}{offer.hello['era']}", output.DIM))
    if server.get("instructions"):
        page.field("says", _shorten(server["instructions"]))
    for part, definition in _definitions(offer):
        page.line((part, output.DIM), " ", (_shorten(_name(definition)), output.CODE), indent=2)
        for said in _texts(definition):
            page.line(_shorten(said), indent=4)
        if part == "tool":
            page.line(("input ", output.DIM), schema_text.summary(definition.get("inputSchema")), indent=4)
    if not any(offer.hello["offer"].get(part) for part in offer.hello["offer"]):
        page.line(("offers nothing", output.WARN_STYLE), indent=2)
    for warning in offer.hello.get("warnings") or ():
        page.line((output.WARN, output.WARN_STYLE), f" {warning}", indent=2)


def _definitions(offer: ServerOffer) -> list[tuple[str, dict[str, Any]]]:
    from plugbay.host.catalog.approvals import NOUNS, PARTS

    return [(NOUNS[part], definition) for part in PARTS for definition in offer.hello["offer"].get(part) or ()]


def _texts(definition: dict[str, Any]) -> list[str]:
    """Title and description."""
    return [str(definition[key]) for key in ("title", "description") if definition.get(key)]


def _name(definition: dict[str, Any]) -> str:
    return str(definition.get("uri") or definition.get("uriTemplate") or definition.get("name"))


def _shorten(text: str) -> str:
    line = "".join(map(_make_visible, " ".join(text.split())))
    if len(line) <= MAX_TEXT:
        return line
    return f"{line[:MAX_TEXT]}… and {len(line) - MAX_TEXT:,} characters more, which --json shows"


def _make_visible(char: str) -> str:
    """Escape a character that a model reads and a person does not see, such as one without width."""
    return char if char.isprintable() and char not in INVISIBLE else f"\\u{{{ord(char):x}}}"


def show_changes(page: output.Printer, changes: Sequence[Change]) -> None:
    """Print a diff of each changed definition."""
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
    return [] if definition is None else ["".join(map(_make_visible, line)) for line in text.split("\n")]

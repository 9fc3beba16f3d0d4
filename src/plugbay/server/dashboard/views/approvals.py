"""Definitions of an MCP server that wait for an approval. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from plugbay.host.admin.operating import Inspection
from plugbay.host.catalog.approvals import INSTRUCTIONS, NOUNS, PARTS
from plugbay.model.lifecycle import PENDING
from plugbay.server.dashboard.loader import PluginSnapshot
from plugbay.server.dashboard.text import as_json

MAX_DEFINITIONS = 200


MAX_CHARACTERS = 512 << 10
"""Characters of all definitions together: as much as a person can read before a decision."""


MAX_DEFINITION = 48 << 10
"""Characters of one definition; less than a page shows of one value."""


class Definition(msgspec.Struct, frozen=True):
    """One definition offered by an MCP server."""

    kind: str
    name: str
    description: str
    whole: str
    """The complete definition as JSON."""
    change: str
    """`new` or `changed` since the last approval."""


class Approval(msgspec.Struct, frozen=True):
    """Exports that are not approved, and the last look at them."""

    disabled: tuple[str, ...]
    seen: bool = False
    digest: str = ""
    instructions: str = ""
    definitions: tuple[Definition, ...] = ()
    gone: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    too_much: bool = False


def approval_of(plugin: PluginSnapshot, look: Inspection | None) -> Approval | None:
    """The approval an operator has to decide on; None if there is none."""
    status = plugin.status
    if not status.needs_approval or (str(status.state) != PENDING and not status.disabled):
        return None
    if look is None:
        return Approval(status.disabled)
    changed = {(change.part, change.name): change.word for change in look.changes}
    shown = tuple(_definition(part, definition, changed) for part, definition in look.definitions[:MAX_DEFINITIONS])
    instructions = str((look.hello.get("server") or {}).get(INSTRUCTIONS) or "")
    sizes = [len(instructions), *(len(each.whole) for each in shown)]
    too_much = len(look.definitions) > MAX_DEFINITIONS or sum(sizes) > MAX_CHARACTERS or max(sizes) > MAX_DEFINITION
    return Approval(
        status.disabled,
        True,
        look.digest,
        instructions[:MAX_DEFINITION],
        () if too_much else shown,
        tuple(str(change) for change in look.changes if change.word == "gone"),
        tuple(map(str, look.hello.get("warnings") or ())),
        too_much,
    )


def _definition(part: str, definition: dict[str, Any], changed: dict[tuple[str, str], str]) -> Definition:
    name = str(definition.get(PARTS[part]))
    texts = [str(definition[key]) for key in ("title", "description") if definition.get(key)]
    return Definition(
        NOUNS[part], name, "\n".join(texts), as_json(definition, most=MAX_DEFINITION + 1), changed.get((part, name), "")
    )

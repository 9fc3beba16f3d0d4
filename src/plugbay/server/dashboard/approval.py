"""What a page shows of a server that waits for approval: everything that would be approved, or that it is too much.

Pure. Owns that nobody can approve on a page what the page did not show in full. What an approval is, is the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plugbay.host.admin.approval import Inspection
from plugbay.host.catalog.approvals import INSTRUCTIONS, NOUNS, PARTS
from plugbay.server.dashboard.known import Known
from plugbay.server.dashboard.text import as_json

MAX_DEFINITIONS = 200
MAX_CHARACTERS = 512 << 10
"""Of all definitions together, as they are shown: what a person could read before deciding."""

MAX_DEFINITION = 48 << 10
"""Characters of one, below what a page cuts off."""

PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Definition:
    """One thing that is offered, in the server's own words."""

    kind: str
    name: str
    description: str
    whole: str
    """The definition as JSON, all of it."""
    change: str
    """`new` or `changed` since an approval before."""


@dataclass(frozen=True, slots=True)
class Approval:
    """What is not approved, and what was seen of it."""

    disabled: tuple[str, ...]
    seen: bool = False
    digest: str = ""
    instructions: str = ""
    definitions: tuple[Definition, ...] = ()
    gone: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    too_much: bool = False


def approval_of(known: Known, look: Inspection | None) -> Approval | None:
    """What an operator has to decide about a plugin's offer; None when that is nothing."""
    status = known.status
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
    said = [str(definition[key]) for key in ("title", "description") if definition.get(key)]
    return Definition(
        NOUNS[part], name, "\n".join(said), as_json(definition, most=MAX_DEFINITION + 1), changed.get((part, name), "")
    )

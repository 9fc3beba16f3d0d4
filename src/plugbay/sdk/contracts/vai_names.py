"""What a plugin is called under vai, and which of its declarations are exports there.

    acme/devkit       acme/devkit           a publisher and a name, as they are
    example.weather   local/example.weather nobody in particular publishes it

An export has one name whatever its kind: a tool and a harness their own, a hook and a compactor `export=` or the name
of their function. Hooks with one name are one export, for all their events. Of hooks, only those of events with a dot
in their name are vai's. Refuses to know the wire, and whether a name is a good one: that is for the host to judge.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    from plugbay.sdk.types.handlers import Compactor, Export, Harness, Tool

    class Named(Protocol):
        """What has names on the wire."""

        @property
        def id(self) -> str: ...
        @property
        def tools(self) -> Mapping[str, Tool]: ...
        @property
        def hooks(self) -> Mapping[str, Export]: ...
        @property
        def compaction(self) -> Compactor | None: ...
        @property
        def harnesses(self) -> Mapping[str, Harness]: ...


TOOL, HOOK, COMPACTOR, HARNESS = "tool", "hook", "compactor", "harness"

LOCAL = "local"
"""The publisher of what has none."""

LONGEST = 64
"""Characters of a publisher, of a name and of an export."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


def package_id(id: str) -> str:
    """An id as a publisher and a name, in lower case, with `-` for what is not in vai's alphabet."""
    publisher, slash, name = id.partition("/")
    return f"{_part(publisher)}/{_part(name)}" if slash else f"{LOCAL}/{_part(id)}"


def _part(text: str) -> str:
    return _spelt(text, "._-", "-").lstrip("._-")[:LONGEST] or "x"


def export_id(name: str) -> str:
    """A name as an export has it: lower case, a letter first, and `_` for what is not in vai's alphabet."""
    spelt = _spelt(name, "_", "_")
    return (spelt if spelt[:1] in set(_LETTERS) else f"x{spelt}")[:LONGEST]


def _spelt(text: str, marks: str, otherwise: str) -> str:
    known = frozenset(_LETTERS + _DIGITS + marks)
    return "".join(char if char in known else otherwise for char in text.lower())


class Offer:
    """One export: its kind, who does it, and for a hook, who does it for each event."""

    __slots__ = ("by_event", "handler", "id", "kind")

    def __init__(self, kind: str, handler: Export) -> None:
        self.id = export_id(handler.name)
        self.kind = kind
        self.handler = handler
        self.by_event: dict[str, Export] = {}


def offers(plugin: Named) -> dict[str, Offer]:
    """Every export by its id; raises ValueError when two have one."""
    found: dict[str, Offer] = {}
    for offer in (*_offers(plugin), *_hooks(plugin)):
        other = found.setdefault(offer.id, offer)
        if other is not offer:
            raise ValueError(f"a {other.kind} and a {offer.kind} of {plugin.id} are both called {offer.id!r} under vai")
    return found


def _offers(plugin: Named) -> list[Offer]:
    compactors = () if plugin.compaction is None else (plugin.compaction,)
    kinds: tuple[tuple[str, Iterable[Export]], ...] = (
        (HARNESS, plugin.harnesses.values()),
        (TOOL, plugin.tools.values()),
        (COMPACTOR, compactors),
    )
    return [Offer(kind, handler) for kind, handlers in kinds for handler in handlers]


def _hooks(plugin: Named) -> list[Offer]:
    found: dict[str, Offer] = {}
    for event, hook in plugin.hooks.items():
        if "." in event:
            found.setdefault(export_id(hook.name), Offer(HOOK, hook)).by_event[event] = hook
    return list(found.values())

"""`Offering`: everything that is served at one moment, as lists for clients and as tables that lead back to plugins.

Owns what is served and what is not: tools of every contract; resources, templates and prompts of MCP servers. Decides
with values. An offering does not change; when plugins come and go, there is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from plugbay.contracts.mcp.messages import empty_offer
from plugbay.host.catalog.catalog import Entry
from plugbay.mcp_server import definitions
from plugbay.mcp_server.names import Names, NamesCollide, Rule

SERVED = frozenset({"tool", "resource", "prompt"})
"""The kinds of exports that MCP has a word for."""


@dataclass(slots=True)
class Offering:
    """What is served, and who is behind each of it."""

    offer: dict[str, list[dict[str, Any]]] = field(default_factory=empty_offer)
    tools: dict[str, Entry] = field(default_factory=dict)
    prompts: dict[str, Entry] = field(default_factory=dict)
    """Both by the name they are served under."""
    resources: dict[str, Entry] = field(default_factory=dict)
    templates: dict[str, Entry] = field(default_factory=dict)
    """Both by their address, which is the server's own."""
    collisions: list[NamesCollide] = field(default_factory=list)
    """Exports that are left out, because another one has their name."""
    shadowed: list[str] = field(default_factory=list)
    """Resources that are left out, because another server has one of the same address: nobody can rename those."""

    def readers(self, uri: str) -> list[Entry]:
        """Who may have what is kept under `uri`, the likeliest first: one export of each plugin.

        A server need not list everything it has, so whoever has resources at all is asked in the end.
        """
        exact = [self.resources[uri]] if uri in self.resources else []
        matching = sorted((template for template in self.templates if fits(template, uri)), key=_said, reverse=True)
        found: dict[str, Entry] = {}
        for entry in (
            *exact,
            *map(self.templates.__getitem__, matching),
            *self.resources.values(),
            *self.templates.values(),
        ):
            found.setdefault(entry.spec.id, entry)
        return list(found.values())


def gather(entries: Iterable[Entry], rule: Rule, only: Sequence[str] = ()) -> Offering:
    """What of these exports is served; the first of a name has it."""
    offering = Offering()
    tools, prompts = Names(rule), Names(rule)
    for entry in entries:
        if not is_served(entry, only):
            continue
        try:
            if entry.export.kind == "tool":
                _add_named(offering.offer["tools"], offering.tools, tools, entry)
            elif entry.export.kind == "prompt":
                _add_named(offering.offer["prompts"], offering.prompts, prompts, entry)
            else:
                _add_resource(offering, entry)
        except NamesCollide as collision:
            offering.collisions.append(collision)
    return offering


def is_served(entry: Entry, only: Sequence[str] = ()) -> bool:
    """Whether an export is among those that are wanted, and can be used at all.

    A pattern with a slash is held against `plugin/export`, one without against the plugin's id.
    """
    if entry.export.kind not in SERVED or entry.export.facts.get("unsupported"):
        return False
    return not only or any(fnmatchcase(entry.full_name if "/" in glob else entry.spec.id, glob) for glob in only)


def _add_named(listed: list[dict[str, Any]], table: dict[str, Entry], names: Names, entry: Entry) -> None:
    served = names.add(entry.spec.id, definitions.own_name(entry.export))
    table[served] = entry
    describe = definitions.tool if entry.export.kind == "tool" else definitions.prompt
    listed.append(describe(entry.export, served))


def _add_resource(offering: Offering, entry: Entry) -> None:
    own = entry.export.facts[definitions.FACT]
    is_template = "uriTemplate" in own
    table = offering.templates if is_template else offering.resources
    address = own["uriTemplate" if is_template else "uri"]
    holder = table.setdefault(address, entry)
    if holder is not entry:
        offering.shadowed.append(f"{entry.full_name} is left out: {holder.full_name} has the address {address} already")
        return
    offering.offer["resource_templates" if is_template else "resources"].append(own)


_EXPRESSIONS = re.compile(r"(?:\{[^{}]*\})+")
_WITH_SIGN = re.compile(r"\{[+#./;?&]")
_SEPARATOR = re.compile("[/?#]")
"""What stands for itself in an address, and therefore is in no value of an expression without a sign."""


def _said(template: str) -> int:
    """How much of its addresses a template says: one that takes them all must not come before whose they are."""
    return len(_EXPRESSIONS.sub("", template))


def fits(template: str, uri: str) -> bool:
    """Whether an address looks like one of a template's; it only says whom to ask first.

    One pass, for servers write templates as they like: each text between expressions is taken where it comes first. So
    an address may be missed that a search would find.
    """
    begin, *texts = _EXPRESSIONS.split(template)
    if not texts:
        return uri == template
    *between, last = texts
    at, end = len(begin), len(uri) - len(last)
    if at > end or not (uri.startswith(begin) and uri.endswith(last)):
        return False
    for expressions, text in zip(_EXPRESSIONS.findall(template), [*between, ""], strict=True):
        until = uri.find(text, at, end) if text else end
        if until < 0 or not (_WITH_SIGN.search(expressions) or _SEPARATOR.search(uri, at, until) is None):
            return False
        at = until + len(text)
    return True

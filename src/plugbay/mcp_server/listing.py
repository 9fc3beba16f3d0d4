"""Names for the world of MCP: from a plugin and its export to one name every client takes, and back.

Owns the rule and the table. The rule looks at nothing but the two names, so a tool is called the same whatever else is
served beside it; the table leads back, and refuses two exports that the rule gives one name.

From an export to its definition in MCP. What an MCP server said of itself is said again, unchanged.

Owns titles, schemas and hints about effects. Decides with values; refuses to know who asks and how a call goes.

`Listing`: everything that is served at one moment, as lists for clients and as tables that lead back to plugins.

Owns what is served and what is not: tools of every contract; resources, templates and prompts of MCP servers. Decides
with values. An offering does not change; when plugins come and go, there is another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from plugbay.contracts.mcp.messages import empty_offer
from plugbay.host.catalog.catalog import Entry
from plugbay.model.errors import PlugbayError
from plugbay.model.ids import full_name
from plugbay.model.spec import Export

MAX_NAME_LENGTH = 64
"""Characters: what the strictest client and model take."""

SEPARATOR = "__"
"""Between the plugin and its export."""

HASH_DIGITS = 8
"""Hexadecimal digits that tell apart what had to be cut: one collision in 65,000 such names."""

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]+")

NamingRule = Callable[[str, str], str]
"""(plugin id, export's name) → the name it is served under."""


class NamesCollide(PlugbayError):
    """Two exports would be served under one name."""

    def __init__(self, served: str, one: str, other: str) -> None:
        self.served = served
        self.exports = (one, other)
        hint = "leave one of them out with --only, or rename one plugin"
        super().__init__(f"{one} and {other} would both be served as {served!r}; {hint}")

    def __reduce__(self) -> tuple[type[NamesCollide], tuple[str, str, str]]:
        return type(self), (self.served, *self.exports)


def qualified_name(plugin_id: str, name: str) -> str:
    """`example.weather`, `forecast` → `example_weather__forecast`."""
    return _fitting(f"{_plain(plugin_id)}{SEPARATOR}{_plain(name)}", full_name(plugin_id, name))


def short_name(plugin_id: str, name: str) -> str:
    """The export's own name: for one plugin, or for several that have no name in common."""
    return _fitting(_plain(name), full_name(plugin_id, name))


NAMING_RULES: dict[str, NamingRule] = {"full": qualified_name, "short": short_name}
"""By the word on the command line."""


def _plain(text: str) -> str:
    return _NOT_ALLOWED.sub("_", text) or "_"


def _fitting(served: str, whole: str) -> str:
    """Cut where it is too long; the end then depends on all that was cut."""
    if len(served) <= MAX_NAME_LENGTH:
        return served
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{served[: MAX_NAME_LENGTH - HASH_DIGITS - 1]}_{mark}"


class NameTable:
    """Both directions, for exports of one kind."""

    def __init__(self, rule: NamingRule) -> None:
        self._rule = rule
        self._owners: dict[str, tuple[str, str]] = {}

    def add(self, plugin_id: str, name: str) -> str:
        """The name it is served under; raises `NamesCollide` when another export has it."""
        served = self._rule(plugin_id, name)
        owner = self._owners.setdefault(served, (plugin_id, name))
        if owner != (plugin_id, name):
            raise NamesCollide(served, full_name(*owner), full_name(plugin_id, name))
        return served

    def owner(self, served: str) -> tuple[str, str] | None:
        """The plugin and the export behind a name; None when nothing is served under it."""
        return self._owners.get(served)


def mapped(rule: NamingRule, exports: Iterable[tuple[str, str]]) -> NameTable:
    """The table for these exports; raises `NamesCollide`."""
    names = NameTable(rule)
    for plugin_id, name in exports:
        names.add(plugin_id, name)
    return names


FACT = "mcp"
"""Where an export of an MCP server keeps the server's own definition."""

WRAPPED = "input"
"""The one argument of a tool whose input is no object; MCP's arguments are one."""

EFFECTS: dict[str, dict[str, bool]] = {
    "read_only": {"readOnlyHint": True},
    "idempotent_write": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "non_idempotent_write": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
}
"""By effect class. Whoever does not know says nothing: MCP's own defaults assume the worst."""

TIERS: dict[tuple[str, bool], str] = {
    ("safe", False): "read_only",
    ("dangerous", True): "non_idempotent_write",
    ("destructive", True): "non_idempotent_write",
}
"""Effects of rune's tools: by how much approval they ask for, and whether they change anything."""

ANYTHING: dict[str, Any] = {"type": "object"}
"""The schema of a tool that does not say what it takes."""


def describe_tool(export: Export, served: str) -> dict[str, Any]:
    """How `tools/list` describes a tool."""
    own = export.facts.get(FACT)
    if own is not None:
        return own if own.get("name") == served else {**own, "name": served}
    title = export.facts.get("display_name")
    hints = _hints(export)
    return {
        "name": served,
        **({"title": title} if title else {}),
        **({"description": export.description} if export.description else {}),
        "inputSchema": _input_schema(export),
        **({"outputSchema": export.output_schema} if promises_object(export) else {}),
        **({"annotations": hints} if hints else {}),
    }


def describe_prompt(export: Export, served: str) -> dict[str, Any]:
    """How `prompts/list` describes a prompt; only MCP servers have any."""
    own: dict[str, Any] = export.facts[FACT]
    return own if own.get("name") == served else {**own, "name": served}


def own_name(export: Export) -> str:
    """What its author calls it; a host may have to call a prompt otherwise that has the name of a tool."""
    name: str = export.facts.get(FACT, {}).get("name", export.name)
    return name


def takes_object(export: Export) -> bool:
    """Whether MCP's arguments are the tool's input; otherwise its input is one of them."""
    schema = export.input_schema
    return not isinstance(schema, dict) or schema.get("type", "object") == "object"


def promises_object(export: Export) -> bool:
    """Whether the tool says what object it answers with: what `structuredContent` then has to be."""
    return isinstance(export.output_schema, dict) and export.output_schema.get("type") == "object"


def _input_schema(export: Export) -> dict[str, Any]:
    schema = export.input_schema
    if not isinstance(schema, dict):
        return ANYTHING
    if not takes_object(export):
        return {"type": "object", "properties": {WRAPPED: schema}, "required": [WRAPPED]}
    return schema if "type" in schema else {"type": "object", **schema}


def _hints(export: Export) -> dict[str, bool]:
    facts = export.facts
    effect = facts.get("effect_class") or TIERS.get((facts.get("approval_tier", ""), facts.get("mutating", True)), "")
    return EFFECTS.get(effect, {})


SERVED = frozenset({"tool", "resource", "prompt"})
"""The kinds of exports that MCP has a word for."""


@dataclass(slots=True)
class Listing:
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
        matching = sorted(
            (template for template in self.templates if matches_template(template, uri)), key=_said, reverse=True
        )
        found: dict[str, Entry] = {}
        for entry in (
            *exact,
            *map(self.templates.__getitem__, matching),
            *self.resources.values(),
            *self.templates.values(),
        ):
            found.setdefault(entry.spec.id, entry)
        return list(found.values())


def build_listing(entries: Iterable[Entry], rule: NamingRule, only: Sequence[str] = ()) -> Listing:
    """What of these exports is served; the first of a name has it."""
    offering = Listing()
    tools, prompts = NameTable(rule), NameTable(rule)
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


def _add_named(listed: list[dict[str, Any]], table: dict[str, Entry], names: NameTable, entry: Entry) -> None:
    served = names.add(entry.spec.id, own_name(entry.export))
    table[served] = entry
    describe = describe_tool if entry.export.kind == "tool" else describe_prompt
    listed.append(describe(entry.export, served))


def _add_resource(offering: Listing, entry: Entry) -> None:
    own = entry.export.facts[FACT]
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


def matches_template(template: str, uri: str) -> bool:
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

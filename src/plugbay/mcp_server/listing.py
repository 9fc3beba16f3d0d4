"""`Listing`: all tools, resources and prompts that MCP clients see at one moment, and the export behind each name.

Served are tools of every contract, and resources, templates and prompts of MCP servers. A name depends only on the
plugin id and the export name, so a tool keeps its name when other plugins come and go. Definitions of MCP servers pass
unchanged. A listing is immutable: when plugins change, a new one is built. Names and definitions are the same for MCP
clients, for language models (`ModelTools`) and for hosts of other contracts (`plugbay.adapters`), each within its own
`Alphabet`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from plugbay.contracts.mcp.messages import empty_offer
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.operation import INPUTS
from plugbay.model.errors import PlugbayError
from plugbay.model.ids import full_name
from plugbay.model.spec import Export

MAX_NAME_LENGTH = 64
"""Characters; the limit of the strictest clients and models."""

SEPARATOR = "__"
"""Between plugin and export."""

HASH_DIGITS = 8
"""Hexadecimal digits that distinguish truncated names: a collision needs about 65,000 of them."""


class Alphabet(NamedTuple):
    """The names that a receiver of tools accepts."""

    forbidden: re.Pattern[str]
    """Runs of other characters; each becomes `_`."""
    longest: int = MAX_NAME_LENGTH
    lower: bool = False
    """Whether names are in lower case and begin with a letter."""


MODELS = Alphabet(re.compile(r"[^A-Za-z0-9_-]+"))
"""The alphabet of MCP clients and language models."""

NamingRule = Callable[[str, str], str]
"""Maps plugin id and export name to the name that clients see."""

MCP_FACT = "mcp"
"""Key in `Export.facts` for the original definition of an MCP server's export."""

INPUT_ARGUMENT = "input"
"""The argument that wraps an input which is not an object; MCP arguments are always an object."""

EFFECTS: dict[str, dict[str, bool]] = {
    "read_only": {"readOnlyHint": True},
    "idempotent_write": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "non_idempotent_write": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
}
"""Annotations by effect class. An unknown class has none: the MCP defaults assume the worst."""

TIERS: dict[tuple[str, bool], str] = {
    ("safe", False): "read_only",
    ("dangerous", True): "non_idempotent_write",
    ("destructive", True): "non_idempotent_write",
}
"""Effect class of rune tools, by approval tier and whether they mutate anything."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}
"""The schema of a tool without an input schema."""

SERVED = frozenset({"tool", "resource", "prompt"})
"""The kinds of exports that MCP can list."""

AS_TOOLS: dict[str, str] = {
    "method": "The method {name} of {plugin}.",
    "cli_namespace": "The command line {name} of {plugin}: argv has its words; answers with its output and exit code.",
}
"""Kinds of exports that can be offered as tools, and the description of one that has none."""

_EXPRESSIONS = re.compile(r"(?:\{[^{}]*\})+")
_WITH_SIGN = re.compile(r"\{[+#./;?&]")
_SEPARATOR = re.compile("[/?#]")
"""Separators in URIs; a simple expression never expands to one of them."""


class NamesCollide(PlugbayError):
    """Two exports would get the same name."""

    def __init__(self, served: str, one: str, other: str) -> None:
        self.served = served
        self.exports = (one, other)
        hint = "leave one of them out with --only, or rename one plugin"
        super().__init__(f"{one} and {other} would both be served as {served!r}; {hint}")

    def __reduce__(self) -> tuple[type[NamesCollide], tuple[str, str, str]]:
        return type(self), (self.served, *self.exports)


def qualified_name(plugin_id: str, name: str, alphabet: Alphabet = MODELS) -> str:
    """`example.weather`, `forecast` → `example_weather__forecast`."""
    served = f"{_sanitize(plugin_id, alphabet)}{SEPARATOR}{_sanitize(name, alphabet)}"
    return _truncate(served, full_name(plugin_id, name), alphabet)


def short_name(plugin_id: str, name: str, alphabet: Alphabet = MODELS) -> str:
    """The name of the export alone: for one plugin, or for plugins whose exports have distinct names."""
    return _truncate(_sanitize(name, alphabet), full_name(plugin_id, name), alphabet)


NAMING_RULES: dict[str, NamingRule] = {"full": qualified_name, "short": short_name}
"""By the value of `--names`."""


def _sanitize(text: str, alphabet: Alphabet) -> str:
    spelt = alphabet.forbidden.sub("_", text.lower() if alphabet.lower else text) or "_"
    return f"x{spelt}" if alphabet.lower and not "a" <= spelt[0] <= "z" else spelt


def _truncate(served: str, whole: str, alphabet: Alphabet) -> str:
    """Truncate a name that is too long; a hash of the full name replaces its end."""
    if len(served) <= alphabet.longest:
        return served
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{served[: alphabet.longest - HASH_DIGITS - 1]}_{mark}"


class NameTable:
    """Names of exports of one kind, in both directions."""

    def __init__(self, rule: NamingRule) -> None:
        self._rule = rule
        self._owners: dict[str, tuple[str, str]] = {}

    def add(self, plugin_id: str, name: str) -> str:
        """Return the name of an export; raises `NamesCollide` when another export has it."""
        served = self._rule(plugin_id, name)
        owner = self._owners.setdefault(served, (plugin_id, name))
        if owner != (plugin_id, name):
            raise NamesCollide(served, full_name(*owner), full_name(plugin_id, name))
        return served

    def owner(self, served: str) -> tuple[str, str] | None:
        """Return plugin id and export name; None when the name is unknown."""
        return self._owners.get(served)


def as_tool(entry: Entry) -> Export:
    """The export as a tool: a tool as it is, a method or a command line with the input of its kind."""
    export = entry.export
    if export.kind not in AS_TOOLS:
        return export
    said = export.description or AS_TOOLS[export.kind].format(name=export.name, plugin=entry.spec.id)
    return replace(export, kind="tool", description=said, input_schema=export.input_schema or INPUTS.get(export.kind))


def describe_tool(export: Export, served: str) -> dict[str, Any]:
    """Definition of a tool for `tools/list`."""
    own = export.facts.get(MCP_FACT)
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
    """Definition of a prompt for `prompts/list`; only MCP servers have prompts."""
    own: dict[str, Any] = export.facts[MCP_FACT]
    return own if own.get("name") == served else {**own, "name": served}


def original_name(export: Export) -> str:
    """The name its author gave it. A prompt with the name of a tool has another name in the host."""
    name: str = export.facts.get(MCP_FACT, {}).get("name", export.name)
    return name


def takes_object(export: Export) -> bool:
    """Whether the MCP arguments are the input itself; otherwise the input is one argument."""
    schema = export.input_schema
    return not isinstance(schema, dict) or schema.get("type", "object") == "object"


def promises_object(export: Export) -> bool:
    """Whether the output schema promises an object, which `structuredContent` then must be."""
    return isinstance(export.output_schema, dict) and export.output_schema.get("type") == "object"


def _input_schema(export: Export) -> dict[str, Any]:
    schema = export.input_schema
    if not isinstance(schema, dict):
        return ANY_OBJECT
    if not takes_object(export):
        return {"type": "object", "properties": {INPUT_ARGUMENT: schema}, "required": [INPUT_ARGUMENT]}
    return schema if "type" in schema else {"type": "object", **schema}


def _hints(export: Export) -> dict[str, bool]:
    return EFFECTS.get(effect_of(export), {})


def effect_of(export: Export) -> str:
    """The effect class of a tool, one of `EFFECTS`; empty when its contract does not say."""
    facts = export.facts
    hints = facts.get(MCP_FACT, {}).get("annotations")
    if isinstance(hints, dict):
        return next((effect for effect, told in EFFECTS.items() if told.items() <= hints.items()), "")
    return facts.get("effect_class") or TIERS.get((facts.get("approval_tier", ""), facts.get("mutating", True)), "")


class Listing(msgspec.Struct):
    """The lists for clients, and the export behind each item."""

    offer: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=empty_offer)
    tools: dict[str, Entry] = msgspec.field(default_factory=dict)
    prompts: dict[str, Entry] = msgspec.field(default_factory=dict)
    """Tools and prompts by listed name."""
    resources: dict[str, Entry] = msgspec.field(default_factory=dict)
    templates: dict[str, Entry] = msgspec.field(default_factory=dict)
    """Resources and templates by URI; a URI is never renamed."""
    collisions: list[NamesCollide] = msgspec.field(default_factory=list)
    """Exports that are left out because another export has their name."""
    shadowed: list[str] = msgspec.field(default_factory=list)
    """Resources that are left out because another server has the same URI."""

    def readers(self, uri: str) -> list[Entry]:
        """Candidates that may own `uri`, most likely first, one export per plugin.

        Servers need not list all their resources, so every plugin with resources is a candidate in the end.
        """
        exact = [self.resources[uri]] if uri in self.resources else []
        matching = sorted(
            (template for template in self.templates if matches_template(template, uri)),
            key=_literal_length,
            reverse=True,
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


def build_listing(
    entries: Iterable[Entry], rule: NamingRule, only: Sequence[str] = (), as_tools: Collection[str] = ()
) -> Listing:
    """Build the listing of these exports; the first export of a name wins.

    `as_tools` are the kinds of `AS_TOOLS` that are listed as tools, too.
    """
    listed = Listing()
    tools, prompts = NameTable(rule), NameTable(rule)
    for entry in entries:
        if not is_served(entry, only, as_tools):
            continue
        try:
            if entry.export.kind == "tool" or entry.export.kind in as_tools:
                _add_named(listed.offer["tools"], listed.tools, tools, entry)
            elif entry.export.kind == "prompt":
                _add_named(listed.offer["prompts"], listed.prompts, prompts, entry)
            else:
                _add_resource(listed, entry)
        except NamesCollide as collision:
            listed.collisions.append(collision)
    return listed


def is_served(entry: Entry, only: Sequence[str] = (), as_tools: Collection[str] = ()) -> bool:
    """Whether an export matches `only` and can be served.

    A pattern with a slash matches `plugin/export`, one without a slash matches the plugin id.
    """
    kind = entry.export.kind
    if (kind not in SERVED and kind not in as_tools) or entry.export.facts.get("unsupported"):
        return False
    return is_selected(entry, only)


def is_selected(entry: Entry, only: Sequence[str]) -> bool:
    """Whether an export matches one of the patterns; without patterns, every export does."""
    return not only or any(fnmatchcase(entry.full_name if "/" in glob else entry.spec.id, glob) for glob in only)


def _add_named(listed: list[dict[str, Any]], table: dict[str, Entry], names: NameTable, entry: Entry) -> None:
    served = names.add(entry.spec.id, original_name(entry.export))
    table[served] = entry
    is_prompt = entry.export.kind == "prompt"
    listed.append(describe_prompt(entry.export, served) if is_prompt else describe_tool(as_tool(entry), served))


def _add_resource(listed: Listing, entry: Entry) -> None:
    own = entry.export.facts[MCP_FACT]
    is_template = "uriTemplate" in own
    table = listed.templates if is_template else listed.resources
    address = own["uriTemplate" if is_template else "uri"]
    holder = table.setdefault(address, entry)
    if holder is not entry:
        listed.shadowed.append(f"{entry.full_name} is left out: {holder.full_name} already has the address {address}")
        return
    listed.offer["resource_templates" if is_template else "resources"].append(own)


def _literal_length(template: str) -> int:
    """Number of literal characters: a template that matches everything must come after specific ones."""
    return len(_EXPRESSIONS.sub("", template))


def matches_template(template: str, uri: str) -> bool:
    """Whether a URI may come from a template. Used only to order candidates.

    Templates are untrusted, so this is one linear pass: each literal is matched at its first occurrence, and a URI may
    be missed that a full search would match.
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

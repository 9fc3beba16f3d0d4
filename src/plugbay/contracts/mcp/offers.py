"""Exports from a server's lists, and back; URI templates (RFC 6570).

Owns the names of tools, resources, templates and prompts, and the input schema of each. The server's own definition
stays in `facts["mcp"]`, unchanged, so that nothing is lost when it is served again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from plugbay.contracts.mcp.messages import LISTS, as_object, as_text, empty_offer
from plugbay.contracts.schemas import Preview
from plugbay.model.spec import Export

KINDS = {"tools": "tool", "resources": "resource", "resource_templates": "resource", "prompts": "prompt"}
"""The list of an offer → the kind of its exports."""

FACT = "mcp"
"""Where an export keeps the server's own definition, and under `LIST` which list it is from."""
LIST = "mcp_list"

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")

_EXPRESSION_KINDS = {
    "": ("", ",", False),
    "+": ("", ",", False),
    "#": ("#", ",", False),
    ".": (".", ".", False),
    "/": ("/", "/", False),
    ";": (";", ";", True),
    "?": ("?", "&", True),
    "&": ("&", "&", True),
}
"""The sign of an expression → what stands before it, between its values, and whether each value has its name."""

_RESERVED = ":/?#[]@!$&'()*+,;="
"""Characters that `{+x}` and `{#x}` do not escape, because they have a meaning in an address."""

NO_INPUT: dict[str, Any] = {"type": "object", "properties": {}}


def exports_of(offer: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[list[Export], list[str]]:
    """The exports of an offer, in its order, and what is odd about them.

    Where two would have one name a tool keeps it, a resource is called by its address, and a prompt `prompt:NAME`.
    """
    warnings: list[str] = []
    preview = Preview()
    names = Counter(wished_name(name, entry) for name, entry in _entries(offer))
    taken: set[str] = set()
    exports: list[Export] = []
    for name, entry in _entries(offer):
        wished, other = wished_name(name, entry), _other_name(name, entry)
        free = [each for each in (wished, other) if each and each not in taken]
        clear = name == "tools" or names[wished] == 1
        chosen = next((each for each in free if clear or each == other), "")
        if not chosen:
            warnings.append(f"{name} has {wished!r}, a name that another export has already; it cannot be called")
            continue
        taken.add(chosen)
        exports.append(_export(name, chosen, dict(entry), preview, warnings))
    if preview.passed_over:
        warnings.append(f"{preview.passed_over} of its schemas, too many or too large, are checked at their first use")
    return exports, warnings


def offer_of(exports: Iterable[Export]) -> dict[str, list[dict[str, Any]]]:
    """The offer that `exports` came from."""
    offer = empty_offer()
    for export in exports:
        definition, listed = export.facts.get(FACT), export.facts.get(LIST)
        if isinstance(definition, dict) and listed in offer:
            offer[listed].append(definition)
    return offer


def address(export: Export, given: Mapping[str, Any]) -> str | None:
    """The uri to read for a resource: its own, or that of its template with `given` filled in; None: it is none."""
    definition = as_object(export.facts.get(FACT))
    template = definition.get("uriTemplate")
    return expand_template(template, given) if isinstance(template, str) else definition.get("uri")


def wished_name(name: str, entry: Mapping[str, Any]) -> str:
    """The preferred name of an entry of the list `name`; a resource without a name has its address."""
    return as_text(entry.get("name")) or _identity(name, entry)


def _entries(offer: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(listed.name, entry) for listed in LISTS for entry in offer.get(listed.name, ())]


def _other_name(name: str, entry: Mapping[str, Any]) -> str:
    identity = _identity(name, entry)
    return f"prompt:{identity}" if name == "prompts" and identity else identity


def _identity(name: str, entry: Mapping[str, Any]) -> str:
    identity = next(listed.identity for listed in LISTS if listed.name == name)
    return as_text(entry.get(identity))


def _export(name: str, chosen: str, entry: dict[str, Any], preview: Preview, warnings: list[str]) -> Export:
    return Export(
        kind=KINDS[name],
        name=chosen,
        description=as_text(entry.get("description")) or as_text(entry.get("title")),
        input_schema=_input_schema(name, chosen, entry, preview, warnings),
        output_schema=_usable(chosen, "outputSchema", entry, preview, warnings) if name == "tools" else None,
        facts={FACT: entry, LIST: name},
    )


def _input_schema(name: str, chosen: str, entry: dict[str, Any], preview: Preview, warnings: list[str]) -> Any:
    if name == "tools":
        return _usable(chosen, "inputSchema", entry, preview, warnings)
    if name == "resource_templates":
        return _object_of(list_variables(as_text(entry.get("uriTemplate"))), {})
    if name == "prompts":
        arguments = entry.get("arguments")
        given = [as_object(argument) for argument in (arguments if isinstance(arguments, list) else [])]
        return _object_of(
            [as_text(each.get("name")) for each in given if each.get("name")],
            {as_text(each.get("name")): each for each in given},
        )
    return NO_INPUT


def _object_of(names: Iterable[str], about: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an object of texts."""
    properties: dict[str, Any] = {}
    for name in names:
        description = as_text(about.get(name, {}).get("description"))
        properties[name] = {"type": "string", **({"description": description} if description else {})}
    required = [name for name in properties if about.get(name, {}).get("required") is True]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _usable(chosen: str, key: str, entry: dict[str, Any], preview: Preview, warnings: list[str]) -> Any:
    """A schema that can be enforced; None accepts anything."""
    schema = entry.get(key)
    if schema is None:
        return None
    why = preview.problem(schema) if isinstance(schema, dict | bool) else "it is not a schema"
    if why is None:
        return schema
    warnings.append(f"{chosen}: its {key} cannot be enforced, so nothing is checked against it: {why}")
    return None


# URI templates (RFC 6570).

MAX_LENGTH_DIGITS = 4
"""Digits of the length in `{name:30}`, as the standard has it. Python refuses to read very many."""


def list_variables(template: str) -> list[str]:
    """The names in a template, in order, each once."""
    names = [name for _, names in _EXPRESSION.findall(template) for name in _split_variables(names)]
    return list(dict.fromkeys(name for name, _, _ in names))


def expand_template(template: str, values: Mapping[str, Any]) -> str:
    """The address with `values` filled in; what is missing or null leaves nothing behind."""
    return _EXPRESSION.sub(lambda match: _fill(match[1], match[2], values), template)


def _split_variables(names: str) -> list[tuple[str, bool, int | None]]:
    """(name, whether a list is taken apart, how much of a text is wanted) of each variable."""
    found = []
    for part in names.split(","):
        name, _, most = part.strip().rstrip("*").partition(":")
        if name:
            is_length = most.isdecimal() and len(most) <= MAX_LENGTH_DIGITS
            found.append((name, part.strip().endswith("*"), int(most) if is_length else None))
    return found


def _fill(sign: str, names: str, values: Mapping[str, Any]) -> str:
    first, between, named = _EXPRESSION_KINDS[sign]
    safe = _RESERVED if sign in ("+", "#") else ""
    parts = [
        part
        for name, apart, most in _split_variables(names)
        if values.get(name) is not None
        for part in _expand_value(name, values[name], apart, most, safe, named, empty="" if sign == ";" else "=")
    ]
    return first + between.join(parts) if parts else ""


def _expand_value(
    name: str, value: Any, apart: bool, most: int | None, safe: str, named: bool, empty: str
) -> list[str]:
    items = value if isinstance(value, list) else [value]
    texts = [quote(_as_text(item)[:most], safe=safe) for item in items]
    if not (apart and isinstance(value, list)):
        texts = [",".join(texts)]
    return [f"{name}={text}" if text else f"{name}{empty}" for text in texts] if named else texts


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

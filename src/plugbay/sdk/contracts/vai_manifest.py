"""What the manifest of a plugin says under vai, and which schemas lie beside it: all of it follows from the code.

What an export may need is said in the words that operators grant it with: `network`, `filesystem=scratch`,
`filesystem=assets_ro`, `scope=chains:read`, `secret=jira_token`; for the whole plugin, or for one export. Refuses to
know the format of the file, and whether a manifest is a good one: that is for the host to judge.
"""

from __future__ import annotations

from plugbay.contracts.vai.messages import PROTOCOL
from plugbay.sdk.contracts.vai_names import COMPACTOR, HARNESS, HOOK, TOOL, offers, package_id
from plugbay.sdk.results import RESULT
from plugbay.sdk.types.handlers import Compactor, Harness, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.sdk.contracts.vai_names import Named, Offer

    class Described(Named, Protocol):
        """What a manifest is made of."""

        @property
        def version(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def capabilities(self) -> tuple[str, ...]: ...
        @property
        def config_schema(self) -> dict[str, Any] | None: ...
        @property
        def secrets_schema(self) -> dict[str, Any] | None: ...


API_VERSION = "vai.plugin.v1"

SECONDS = {HARNESS: 1_800, TOOL: 20, HOOK: 15, COMPACTOR: 120}
"""How long an export of each kind may take whose author says nothing; what the contract's own example has."""

SYSTEMS = ("linux", "darwin")
PROCESSORS = ("amd64", "arm64")
"""Python runs on all of them."""

MAX_LABEL = 128
"""Characters of what people read in lists."""


def manifest_of(plugin: Described, entrypoint: Sequence[str]) -> dict[str, Any]:
    """The manifest as an object; what says nothing is left out."""
    return {
        "api_version": API_VERSION,
        "package_id": package_id(plugin.id),
        "version": plugin.version,
        "name": (plugin.name or plugin.id)[:MAX_LABEL],
        **_said(description=plugin.description),
        "runtime": {
            "protocol": PROTOCOL,
            "transport": "stdio",
            "entrypoint": list(entrypoint),
            "os": list(SYSTEMS),
            "arch": list(PROCESSORS),
        },
        "exports": [_export(plugin, offer) for offer in offers(plugin).values()],
    }


def schemas_of(plugin: Described) -> dict[str, dict[str, Any]]:
    """Every schema that the manifest names, by its path."""
    return {
        path: schema
        for offer in offers(plugin).values()
        for path, schema in _schemas(plugin, offer).values()
        if schema is not None
    }


def _export(plugin: Described, offer: Offer) -> dict[str, Any]:
    terms = offer.handler.terms
    seconds = SECONDS[offer.kind] if terms.timeout is None else terms.timeout
    paths = {key: path for key, (path, schema) in _schemas(plugin, offer).items() if schema is not None}
    config = paths.pop("config_schema", None)
    return {
        "id": offer.id,
        "kind": offer.kind,
        "display_name": offer.id.replace("_", " ").strip().title() or offer.id,
        **_said(description=offer.handler.description, execution_class=terms.execution_class),
        "default_timeout_ms": max(round(seconds * 1000), 1),
        **_said(max_concurrency=terms.max_concurrency, config_schema=config),
        "permissions": permissions_of((*plugin.capabilities, *terms.capabilities), plugin.secrets_schema),
        offer.kind: {**_facts(offer), **paths},
    }


def _facts(offer: Offer) -> dict[str, Any]:
    match offer.handler:
        case Harness() as harness:
            return {"mode": harness.mode, "fidelity": harness.fidelity, "supports": list(harness.supports)}
        case Tool() as tool:
            return {"effect_class": tool.effect, "streaming": tool.streaming}
        case Compactor() as compactor:
            return {
                "target_context": compactor.target_context,
                "supports_pinned_items": compactor.supports_pinned_items,
            }
    return {"subscribes_to": list(offer.by_event)}


def permissions_of(capabilities: Iterable[str], secrets_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What these words ask for. Scopes need the network, and what may write may read, too."""
    asked: dict[str, list[str]] = {"network": [], "filesystem": [], "scope": [], "secret": []}
    for capability in dict.fromkeys(capabilities):
        name, _, target = capability.partition("=")
        if name in asked:
            asked[name].append(target)
    kinds = [kind for kind in ("scratch", "assets_ro") if kind in asked["filesystem"]]
    slots = [*asked["secret"], *(secrets_schema or {}).get("properties", {})]
    return {
        "network": "egress" if asked["network"] or asked["scope"] else "none",
        "filesystem": kinds[0] if kinds else "none",
        "gateway_api_scopes": asked["scope"],
        "secret_slots": list(dict.fromkeys(slots)),
    }


def _schemas(plugin: Described, offer: Offer) -> dict[str, tuple[str, dict[str, Any] | None]]:
    """The schemas of an export by their key in the manifest, each with its path; None for those it does not have."""
    own = offer.handler.terms.config_schema
    found = {"config_schema": ("schemas/config.json", plugin.config_schema)}
    if own is not None:
        found["config_schema"] = (f"schemas/{offer.id}_config.json", own)
    if isinstance(offer.handler, Tool):
        found["input_schema"] = (f"schemas/{offer.id}_input.json", offer.handler.input_schema)
        found["output_schema"] = (f"schemas/{offer.id}_output.json", structured(offer.handler.output_schema))
    return found


def structured(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of structured output, which is an object, for a tool that returns what `schema` says."""
    if schema is None or "object" in schema.get("type", "object"):  # a word, or a list of them
        return schema
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {name: rule for name, rule in schema.items() if name != "$defs"}
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shared}


def _said(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "")}

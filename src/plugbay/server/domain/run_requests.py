"""The resolved request of a run: model, tools, limits. Pure: the caller passes the bound tools in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from plugbay.server.domain.errors import unprocessable
from plugbay.server.domain.workers import BoundExport

MAX_TURNS, MAX_TOOL_CALLS = 16, 64
"""Default limits of model replies and tool calls."""

MOST_TURNS, MOST_TOOL_CALLS = 128, 1024
"""Maximum values in a request."""

TIMEOUT_MS = 600_000
LONGEST_MS = 3_600_000
"""Milliseconds of a run: default, and maximum."""

MAX_TOKENS = 4096
MOST_TOKENS = 1 << 20
"""Tokens of one reply: default, and maximum."""

MAX_NAME = 64
"""Characters of a tool name, as providers allow."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run."""

    max_turns: int = MAX_TURNS
    max_tool_calls: int = MAX_TOOL_CALLS
    max_tokens: int = MAX_TOKENS
    timeout_ms: int = TIMEOUT_MS


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with the name the model uses."""

    name: str
    binding_id: str
    package_id: str
    export_id: str
    description: str
    input_schema: Any
    effect_class: str


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved request, stored with the run."""

    provider: str
    model: str
    tools: tuple[OfferedTool, ...] = ()
    limits: Limits = Limits()
    temperature: float = 0.7
    scopes: tuple[str, ...] | None = None
    """Scopes of the caller; None: all."""

    def to_json(self) -> dict[str, Any]:
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunRequest:
        return msgspec.convert(kept, cls)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options in a client's request."""

    model: str | None = None
    tools: Sequence[str] | None = None
    """Names of exports, `package/export` or binding ids; None: all that are bound."""
    limits: Mapping[str, int] | None = None
    temperature: float | None = None


def resolve_request(
    wanted: RunOptions,
    defaults: Mapping[str, Any],
    providers: Sequence[str],
    bound: Sequence[BoundExport],
    scopes: Sequence[str] | None,
) -> RunRequest:
    """Merge the client's options with the chain's defaults; raises for invalid ones."""
    provider, model = resolve_model(wanted.model or defaults.get("model"), providers)
    names = wanted.tools if wanted.tools is not None else defaults.get("tools")
    limits = {**(defaults.get("limits") or {}), **(wanted.limits or {})}
    temperature = wanted.temperature if wanted.temperature is not None else defaults.get("temperature")
    return RunRequest(
        provider=provider,
        model=model,
        tools=offer_tools(bound if names is None else select_tools(names, bound)),
        limits=msgspec.convert(limits, Limits),
        temperature=0.7 if temperature is None else temperature,
        scopes=None if scopes is None else tuple(scopes),
    )


def resolve_model(name: Any, providers: Sequence[str]) -> tuple[str, str]:
    """Split `provider/model`; with a single provider, the model alone is enough."""
    if not isinstance(name, str) or not name:
        raise unprocessable("run.model_missing", "neither the request nor the chain says which model", "model")
    provider, slash, model = name.partition("/")
    if slash and model and provider in providers:
        return provider, model
    if len(providers) == 1:
        return providers[0], name
    known = ", ".join(providers) or "none is configured"
    raise unprocessable("run.model_unknown", f"{name!r} names no provider; there are: {known}", "model")


def select_tools(names: Sequence[str], bound: Sequence[BoundExport]) -> list[BoundExport]:
    """The tools with these names, each once."""
    found: dict[str, BoundExport] = {}
    for name in names:
        matches = [tool for tool in bound if name in _tool_names(tool)]
        if not matches:
            raise unprocessable("run.tool_unknown", f"no tool {name!r} is bound here", "tools", tool=name)
        if len(matches) > 1:
            text = f"{name!r} is the name of several tools; say which package"
            raise unprocessable("run.tool_ambiguous", text, "tools", candidates=[_full_name(tool) for tool in matches])
        found[matches[0].binding_id] = matches[0]
    return list(found.values())


def _tool_names(tool: BoundExport) -> tuple[str, ...]:
    return tool.binding_id, tool.export_id, _full_name(tool)


def _full_name(tool: BoundExport) -> str:
    return f"{tool.package_id}/{tool.export_id}"


def offer_tools(tools: Sequence[BoundExport]) -> tuple[OfferedTool, ...]:
    """Tools for a model, by export name; ambiguous names get the package as prefix."""
    count = Counter(tool.export_id for tool in tools)
    return tuple(
        OfferedTool(
            name=tool.export_id if count[tool.export_id] == 1 else _long_name(tool),
            binding_id=tool.binding_id,
            package_id=tool.package_id,
            export_id=tool.export_id,
            description=tool.description,
            input_schema=tool.input_schema,
            effect_class=str(tool.facts.get("effect_class", "unknown")),
        )
        for tool in tools
    )


def _long_name(tool: BoundExport) -> str:
    """Package and export joined with characters that providers allow; cut at the front."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{tool.package_id}__{tool.export_id}")[-MAX_NAME:]

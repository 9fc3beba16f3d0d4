"""What a run is asked to do, as it was understood: the model, the tools, the limits.

Pure: decides with values what can be run, and says why something cannot. Whose tools there are comes from the caller.
"""

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
"""Replies of the model, and calls of tools, where the request does not say: enough for work of many steps."""

MOST_TURNS, MOST_TOOL_CALLS = 128, 1024
"""What a request can ask for."""

TIMEOUT_MS = 600_000
LONGEST_MS = 3_600_000
"""Milliseconds for a whole run: ten minutes, and at most as long as an invocation may take."""

MAX_TOKENS = 4096
MOST_TOKENS = 1 << 20
"""Of one reply."""

MAX_NAME = 64
"""Characters of a tool's name, as providers have it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What stops a run."""

    max_turns: int = MAX_TURNS
    max_tool_calls: int = MAX_TOOL_CALLS
    max_tokens: int = MAX_TOKENS
    timeout_ms: int = TIMEOUT_MS


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """A tool under the name the model calls it by."""

    name: str
    binding_id: str
    package_id: str
    export_id: str
    description: str
    input_schema: Any
    effect_class: str


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as it is kept with the run."""

    provider: str
    model: str
    tools: tuple[Offered, ...] = ()
    limits: Limits = Limits()
    temperature: float = 0.7
    scopes: tuple[str, ...] | None = None
    """What whoever asked may do; None: everything."""

    def to_json(self) -> dict[str, Any]:
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunRequest:
        return msgspec.convert(kept, cls)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client says."""

    model: str | None = None
    tools: Sequence[str] | None = None
    """Names of exports, `package/export` or binding ids; None: all that are bound."""
    limits: Mapping[str, int] | None = None
    temperature: float | None = None


def understood(
    wanted: Wanted,
    defaults: Mapping[str, Any],
    providers: Sequence[str],
    bound: Sequence[BoundExport],
    scopes: Sequence[str] | None,
) -> RunRequest:
    """The request with what the chain says where the client says nothing; raises what cannot be."""
    provider, model = chosen_model(wanted.model or defaults.get("model"), providers)
    names = wanted.tools if wanted.tools is not None else defaults.get("tools")
    limits = {**(defaults.get("limits") or {}), **(wanted.limits or {})}
    temperature = wanted.temperature if wanted.temperature is not None else defaults.get("temperature")
    return RunRequest(
        provider=provider,
        model=model,
        tools=offered(bound if names is None else named(names, bound)),
        limits=msgspec.convert(limits, Limits),
        temperature=0.7 if temperature is None else temperature,
        scopes=None if scopes is None else tuple(scopes),
    )


def chosen_model(name: Any, providers: Sequence[str]) -> tuple[str, str]:
    """The provider and its model in `provider/model`; where there is one provider only, its model is enough."""
    if not isinstance(name, str) or not name:
        raise unprocessable("run.model_missing", "neither the request nor the chain says which model", "model")
    provider, slash, model = name.partition("/")
    if slash and model and provider in providers:
        return provider, model
    if len(providers) == 1:
        return providers[0], name
    known = ", ".join(providers) or "none is configured"
    raise unprocessable("run.model_unknown", f"{name!r} names no provider; there are: {known}", "model")


def named(names: Sequence[str], bound: Sequence[BoundExport]) -> list[BoundExport]:
    """The tools with these names, each once."""
    found: dict[str, BoundExport] = {}
    for name in names:
        matches = [tool for tool in bound if name in _names(tool)]
        if not matches:
            raise unprocessable("run.tool_unknown", f"no tool {name!r} is bound here", "tools", tool=name)
        if len(matches) > 1:
            text = f"{name!r} is the name of several tools; say which package"
            raise unprocessable("run.tool_ambiguous", text, "tools", candidates=[_full(tool) for tool in matches])
        found[matches[0].binding_id] = matches[0]
    return list(found.values())


def _names(tool: BoundExport) -> tuple[str, ...]:
    return tool.binding_id, tool.export_id, _full(tool)


def _full(tool: BoundExport) -> str:
    return f"{tool.package_id}/{tool.export_id}"


def offered(tools: Sequence[BoundExport]) -> tuple[Offered, ...]:
    """Tools as a model is offered them: by their own names, and where two have the same, with their package's."""
    count = Counter(tool.export_id for tool in tools)
    return tuple(
        Offered(
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
    """The package stands before the export, in letters that providers allow; the end of it tells tools apart."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{tool.package_id}__{tool.export_id}")[-MAX_NAME:]

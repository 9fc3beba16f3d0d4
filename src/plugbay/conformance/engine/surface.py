"""The exports of a plugin that scenarios can use, and the named values that are filled into scenarios for each.

Also says why a rule does not apply to a plugin, and adds exports that the plugin names during a conversation. Starts no
process.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.conformance.engine import inputs
from plugbay.conformance.engine.dialects import Dialect
from plugbay.conformance.engine.scenario import IDS, Scenario
from plugbay.conformance.engine.template import PURE, fill
from plugbay.contracts.kaged import storage
from plugbay.contracts.kaged.messages import topic, wire_name
from plugbay.model.spec import Export, PluginSpec

HOOKS = ("on_session_start", "on_session_idle", "pre_compact", "post_compact")
"""The hooks of kaged: each has its own input, so each is a need of its own."""

UNMET = {
    "tool": "the manifest declares no tool",
    "channel": "the manifest declares no channel",
    "llm_provider": "the manifest declares no LLM provider",
    "hook": "the manifest declares no hook",
    "vector_backend": "the manifest declares no memory backend",
    "topic": "the manifest registers no channel, so no event reaches the plugin",
    "question": "the plugin has no export that can be called",
    "method": "the manifest declares no method",
    "notification": "the manifest declares no notification",
    "compactor": "the plugin is not a compactor",
    **{name: f"the manifest declares no hook {name}" for name in HOOKS},
    "screen": "the manifest provides no screen",
    "cli_namespace": "the manifest provides no namespace of command lines",
    "snapshot": "the manifest subscribes to no snapshot",
    "publication": "the manifest provides no snapshot",
    "read_path": "the manifest asks to read no files",
    "action": "the manifest provides no action: no namespace of command lines, no command",
    "pub_sub": "the manifest asks for no event_bus, provides no snapshot and subscribes to none",
    "harness": "the manifest exports no harness",
    "secret": "the manifest has no secret slot",
    "scratch": "no compactor asks for a scratch directory",
    "output_schema": "no tool has an output_schema",
    "handshake_era": "the server speaks no revision with a handshake",
    "resource": "the server offers no resource",
    "prompt": "the server offers no prompt",
    "logging": "the server declares no logging",
    "stdio": "the rule is for stdin, stdout and the process of a server, and this one is on the network",
}
"""Why a rule does not apply to a plugin without exports of this kind."""

ANY_OF = {"action": ("cli_namespace", "command"), "pub_sub": ("bus", "publication", "snapshot")}
"""Needs that one of several kinds meets."""

BY_FACT = {
    "publication": "publications",
    "bus": "bus",
    "read_path": "read_roots",
    "secret": "secret_slots",
    "scratch": "scratch",
    "output_schema": "schemas",
    "handshake_era": "handshake",
    "logging": "logging",
    "stdio": "stdio",
}
"""Kinds whose names are one of the facts."""

SEVERAL = 4
"""At most so many requests of one export are open at once, fewer if its manifest says so."""

FIRST_OF = "method channel llm_provider hook vector_backend topic screen cli_namespace snapshot resource prompt".split()
"""Kinds of which every conversation knows one by name."""

ID_STEP = 100
"""From one id of a scenario's own requests to the next: `settle` counts on from the one it is given."""

TOUR_BEGINS = 1_000
"""The first id of what is asked on a tour, and of several requests at once; a scenario's own have smaller ones."""

TURN_STEP = 10_000
"""From an id to the same one of the next turn: no id comes twice in the life of a process."""


class Target(msgspec.Struct, frozen=True):
    """The export that a turn is about: its kind and name, and the tool that is called, if any."""

    kind: str = ""
    name: str = ""
    tool: Export | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Surface(msgspec.Struct, frozen=True):
    """The exports of a plugin: from its manifest, and as the plugin described them since."""

    spec: PluginSpec
    dialect: Dialect
    said: Mapping[str, tuple[Export, ...]] = msgspec.field(default_factory=dict)
    """Kind → exports as the plugin itself described them; they replace those of the manifest."""
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Named values that the manifest implies beside the spec."""
    place: str = ""
    """A folder that a process has for itself."""
    turn: int = 0
    """How many turns the process has had."""

    def exports(self, kind: str) -> tuple[Export, ...]:
        return self.said.get(kind, _declared(self.spec, kind))

    def learn(self, kind: str, entries: Any) -> Surface:
        """The surface after the plugin has described its exports; only those that the manifest declares count."""
        declared = {export.name for export in _declared(self.spec, kind)}
        described = [entry for entry in entries if _is_described(entry)] if isinstance(entries, list) else []
        said = tuple(
            Export(kind, entry["name"], str(entry.get("description", "")), entry.get("input_schema"))
            for entry in described
            if entry["name"] in declared
        )
        return replace(self, said={**self.said, kind: said})

    def tools_to_call(self) -> list[Export]:
        """The tools that may be called, those with an example of their input first."""
        tools = [export for export in self.exports("tool") if inputs.may_be_called(export)]
        return sorted(tools, key=lambda tool: not inputs.has_example(tool))

    def names(self, kind: str) -> list[str]:
        """Names of the exports of this kind that can be tried."""
        if kind == "topic":
            return [pattern for pattern in self.spec.subscribes if not _is_wild(pattern)]
        if kind in ("snapshot", "command"):
            return list(self.spec.snapshots if kind == "snapshot" else self.spec.commands)
        if kind in BY_FACT:
            return list(self.facts.get(BY_FACT[kind], ()))
        if kind == "notification":
            return [name.removeprefix(topic(self.spec.id, "")) for name in self.spec.publishes]
        exports: Sequence[Export] = self.tools_to_call() if kind == "tool" else self.exports(kind)
        return [export.name for export in exports]

    def targets(self, scenario: Scenario) -> list[Target]:
        """The targets of a scenario; one target without a name when it is not repeated."""
        if scenario.for_each is None:
            return [Target(tool=self._tool("string_input" in scenario.needs))]
        kinds = tuple(self.dialect.questions) if scenario.for_each == "question" else (scenario.for_each,)
        return self._targets(kinds)

    def _targets(self, kinds: Sequence[str]) -> list[Target]:
        return [self._target(kind, name) for kind in kinds for name in self.names(kind)]

    def _target(self, kind: str, name: str) -> Target:
        tools = self.exports("tool") if kind == "tool" else ()
        return Target(kind, name, next((tool for tool in tools if tool.name == name), self._tool()))

    def _tool(self, with_string: bool = False) -> Export | None:
        tools = self.tools_to_call()
        return next((tool for tool in tools if not with_string or inputs.free_string(tool) is not None), None)

    def unmet(self, need: str) -> str:
        """Why a rule with this need does not apply to the plugin; empty when it does."""
        if need == "capabilities":
            return "" if self.spec.capabilities else "the manifest requests no capabilities"
        if need in ("tool", "no_tool"):
            declares = bool(_declared(self.spec, "tool"))
            return (
                ""
                if declares is (need == "tool")
                else UNMET["tool"]
                if need == "tool"
                else "the manifest declares tools"
            )
        if need in ("tool_to_call", "string_input"):
            return self._no_call(need)
        if need in HOOKS:
            return "" if need in self.names("hook") else UNMET[need]
        kinds = tuple(self.dialect.questions) if need == "question" else ANY_OF.get(need, (need,))
        return "" if any(self.names(kind) for kind in kinds) else UNMET[need]

    def _no_call(self, need: str) -> str:
        if not self.exports("tool"):
            return "the plugin offers no tool"
        if not self.tools_to_call():
            return "every tool has side effects, and no schema has an example of an input that may be used"
        if need == "string_input" and self._tool(with_string=True) is None:
            return "no tool has a text parameter"
        return ""

    def tour(self) -> list[Any]:
        """Every request that the plugin can answer, in order."""
        targets = self._targets(tuple(self.dialect.questions))
        messages = [message for target in targets for message in self.named(target)["question"]]
        return [
            {**message, "id": self._id(number)} if "id" in message else message
            for number, message in enumerate(messages, TOUR_BEGINS)
        ]

    def named(self, target: Target) -> dict[str, Any]:
        """The named values of a conversation about this target."""
        spec, tool = self.spec, target.tool
        named: dict[str, Any] = {
            "plugin_id": spec.id,
            "plugin_version": spec.version,
            "protocol": self.dialect.contract.version,
            "tool": "" if tool is None else tool.name,
            "tools": [export.name for export in _declared(spec, "tool")],
            "namespaces": [f"{spec.id}_", f"ext_{spec.id}_"],
            "capabilities": list(spec.capabilities),
            "publishes": list(spec.publishes),
            "methods": [*self.names("method"), *(wire_name(spec.id, each.name) for each in _declared(spec, "tool"))],
            "notifications": self.names("notification"),
            "storage_methods": [storage.NAMES[op] for op, need in storage.NEEDS.items() if need in spec.capabilities],
            "shutdown_timeout": spec.timeouts.farewell + spec.timeouts.teardown + spec.timeouts.term,
            "hook_timeout": spec.patience.get("RunHook", spec.timeouts.call),
            "request_id": f"plugin_req_{secrets.token_hex(8)}",
            **{name: self._id(number * ID_STEP) for number, name in enumerate(IDS, 1)},
            "input": {} if tool is None else inputs.input_for(tool),
            **{kind: next(iter(self.names(kind)), "") for kind in FIRST_OF},
            **self.facts,
        }
        if target.kind:
            named[target.kind] = target.name
        export = next((each for each in spec.exports if (each.kind, each.name) == (target.kind, target.name)), tool)
        named |= {"place": self.place, **self.dialect.about(export, self.place)}
        messages = [fill(message, named, PURE) for message in self.dialect.questions.get(target.kind, ())]
        return {**named, "question": messages, **self._request(messages, export)}

    def _request(self, messages: Sequence[Any], export: Export | None) -> dict[str, Any]:
        """The parts of a request's first message, and as many copies as may be open at once."""
        request = dict(messages[0]) if messages else {}
        count = min(SEVERAL, export.facts.get("max_concurrency", 1) if export is not None else 1)
        ids = [self._id(TOUR_BEGINS + number) for number in range(count)]
        parts = {name: request.get(name, {}) for name in ("body", "params")}
        return {"request": request, **parts, "several": [{**request, "id": id} for id in ids]}

    def _id(self, number: int) -> Any:
        """The id of a request of this turn."""
        return self.dialect.request_id(self.turn * TURN_STEP + number)


def with_string(tool: Export | None) -> Any:
    """The generator of inputs for this tool that carry a given text."""

    def generate(content: str) -> Any:
        assert tool is not None
        given, name = inputs.input_for(tool), inputs.free_string(tool)
        return {**(given if isinstance(given, dict) else {}), str(name): content}

    return generate


def _declared(spec: PluginSpec, kind: str) -> tuple[Export, ...]:
    return tuple(export for export in spec.exports if export.kind == kind)


def _is_described(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _is_wild(pattern: str) -> bool:
    return any(segment in ("*", ">") for segment in pattern.split("."))

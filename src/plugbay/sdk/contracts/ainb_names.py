"""What a plugin is called under ainb, and what its manifest says: all of it follows from the code.

One source serves several contracts, so only what ainb has a word for is in there. Refuses to know the wire, the format
of the file, and whether a manifest is a good one: that is for the host to judge.
"""

from __future__ import annotations

from plugbay.contracts.ainb.messages import ABI_VERSION, CAPABILITIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.sdk.types.handlers import Handler

    class Named(Protocol):
        """What a manifest is made of."""

        @property
        def id(self) -> str: ...
        @property
        def version(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def capabilities(self) -> tuple[str, ...]: ...
        @property
        def tools(self) -> Mapping[str, object]: ...
        @property
        def screens(self) -> Mapping[str, object]: ...
        @property
        def commands(self) -> Mapping[str, object]: ...
        @property
        def clis(self) -> Mapping[str, object]: ...
        @property
        def actions(self) -> Mapping[str, object]: ...
        @property
        def topics(self) -> Sequence[str]: ...
        @property
        def snapshots(self) -> Sequence[tuple[str | None, Handler]]: ...
        @property
        def latest(self) -> Sequence[str]: ...
        @property
        def knobs(self) -> Mapping[str, Mapping[str, Any]]: ...
        @property
        def eager(self) -> bool: ...
        @property
        def idle_seconds(self) -> int | None: ...


KINDS = {"path": "path", "text": "string", "multiline": "string", "boolean": "bool", "enum": "enum", "int_range": "int"}
"""What a knob of each type is as a setting; there is none for the others."""


def ainb_name(id: str) -> str:
    """An id as the name of a folder and of the program in it."""
    return "".join("-" if char in "/\\" or not char.isprintable() else char for char in id).lstrip(".")


def tool_namespaces(plugin: Named) -> list[str]:
    """The command line that all tools are behind, since ainb has none; not where its name is taken."""
    name = "-".join(ainb_name(plugin.id).split()).lstrip("-")
    return [name] if plugin.tools and name not in {*plugin.clis, *plugin.actions} else []


def subscribed(plugin: Named) -> list[str]:
    """The topics that handlers are declared for."""
    return list(dict.fromkeys(topic for topic, _ in plugin.snapshots if topic is not None))


def carried_capabilities(capabilities: Iterable[str]) -> dict[str, bool | list[str]]:
    """Those that ainb knows, as grants: `network` asks for all of it, `network=HOST` for that only."""
    grants: dict[str, bool | list[str]] = {}
    for capability in capabilities:
        name, narrowed, target = capability.partition("=")
        if name not in CAPABILITIES:
            continue
        grant = grants.setdefault(name, [])
        if not narrowed:
            grants[name] = True
        elif isinstance(grant, list) and target not in grant:
            grant.append(target)
    return grants


def manifest_of(plugin: Named) -> dict[str, Any]:
    """The manifest as an object; sections that say nothing are left out."""
    known = {"name": ainb_name(plugin.id), "version": plugin.version, "abi_version": ABI_VERSION}
    description = plugin.description or plugin.name
    sections: dict[str, Any] = {
        "plugin": {**known, **({"description": description} if description else {})},
        "capabilities": carried_capabilities(plugin.capabilities),
        "provides": _said(
            screens=list(plugin.screens),
            commands=list(plugin.commands),
            # Hosts find who does an action among those who have a command line of that name.
            cli_namespaces=list(dict.fromkeys([*plugin.clis, *plugin.actions, *tool_namespaces(plugin)])),
            snapshots=list(plugin.topics),
        ),
        "subscribes": _said(snapshots=subscribed(plugin), latest_state=list(plugin.latest)),
        "lifecycle": {
            **({"spawn": "eager"} if plugin.eager else {}),
            **({} if plugin.idle_seconds is None else {"idle_reap_secs": plugin.idle_seconds}),
        },
        "config": [_setting(name, facts) for name, facts in plugin.knobs.items() if facts["type"] in KINDS],
    }
    return {name: section for name, section in sections.items() if section}


def _said(**lists: list[str]) -> dict[str, list[str]]:
    return {name: items for name, items in lists.items() if items}


def _setting(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A knob; its default is a text, whatever it is."""
    default = facts.get("default")
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return {
        "key": str(facts["binds_to"]).removeprefix("config."),
        "kind": KINDS[facts["type"]],
        "label": facts["label"],
        **({} if default is None else {"default": text}),
        **({"choices": list(facts["values"])} if "values" in facts else {}),
    }

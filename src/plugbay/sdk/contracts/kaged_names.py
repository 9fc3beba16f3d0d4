"""What a plugin is called under kaged, and which of its declarations that contract carries.

One source serves several contracts, so a plugin called `example.weather` is `example-weather` there, and its tool
`forecast` is asked for as `example-weather.forecast`. What kaged has no word for is not offered to its hosts. Refuses
to know the wire and whether a name is a good one: that is for the host to judge.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    class Named(Protocol):
        """What has names on the wire."""

        @property
        def id(self) -> str: ...
        @property
        def tools(self) -> Mapping[str, object]: ...
        @property
        def methods(self) -> Mapping[str, object]: ...
        @property
        def hooks(self) -> Mapping[str, object]: ...
        @property
        def compaction(self) -> object | None: ...


ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")

PRE_COMPACT = "pre_compact"
HOOKS = ("on_session_start", "on_session_idle", PRE_COMPACT, "post_compact")
"""Every hook there is, in the order of a session's life."""

GRANTS = ("read:fs:", "write:fs:", "exec:", "net:", "kaged:storage:")
"""How its capabilities begin; other contracts have others, which a host of kaged would refuse."""


def kaged_name(id: str) -> str:
    """An id in kaged's alphabet: lower case, and `-` for whatever else is not in it."""
    return "".join(char if char in ALPHABET else "-" for char in id.lower())


def is_own_method(plugin: Named, method: str) -> bool:
    """Whether only a host of kaged would ask this plugin for `method`."""
    name, _, tool = method.partition(".")
    return method in plugin.methods or (name == kaged_name(plugin.id) and tool in plugin.tools)


def carried_hooks(plugin: Named) -> tuple[str, ...]:
    """The hooks that are offered; compacting happens in one of them."""
    declared = {*plugin.hooks, *((PRE_COMPACT,) if plugin.compaction is not None else ())}
    return tuple(hook for hook in HOOKS if hook in declared)


def carried_capabilities(capabilities: Iterable[str]) -> tuple[str, ...]:
    return tuple(capability for capability in capabilities if capability.startswith(GRANTS))

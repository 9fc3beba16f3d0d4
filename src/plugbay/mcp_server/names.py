"""Names for the world of MCP: from a plugin and its export to one name every client takes, and back.

Owns the rule and the table. The rule looks at nothing but the two names, so a tool is called the same whatever else is
served beside it; the table leads back, and refuses two exports that the rule gives one name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from plugbay.model.errors import PlugbayError
from plugbay.model.ids import full_name

LONGEST = 64
"""Characters: what the strictest client and model take."""

SEPARATOR = "__"
"""Between the plugin and its export."""

MARK = 8
"""Hexadecimal digits that tell apart what had to be cut: one collision in 65,000 such names."""

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")

Rule = Callable[[str, str], str]
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


def full(plugin_id: str, name: str) -> str:
    """`example.weather`, `forecast` → `example_weather__forecast`."""
    return _fitting(f"{_plain(plugin_id)}{SEPARATOR}{_plain(name)}", full_name(plugin_id, name))


def short(plugin_id: str, name: str) -> str:
    """The export's own name: for one plugin, or for several that have no name in common."""
    return _fitting(_plain(name), full_name(plugin_id, name))


RULES: dict[str, Rule] = {"full": full, "short": short}
"""By the word on the command line."""


def _plain(text: str) -> str:
    return _FOREIGN.sub("_", text) or "_"


def _fitting(served: str, whole: str) -> str:
    """Cut where it is too long; the end then depends on all that was cut."""
    if len(served) <= LONGEST:
        return served
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:MARK]
    return f"{served[: LONGEST - MARK - 1]}_{mark}"


class Names:
    """Both directions, for exports of one kind."""

    def __init__(self, rule: Rule) -> None:
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


def mapped(rule: Rule, exports: Iterable[tuple[str, str]]) -> Names:
    """The table for these exports; raises `NamesCollide`."""
    names = Names(rule)
    for plugin_id, name in exports:
        names.add(plugin_id, name)
    return names

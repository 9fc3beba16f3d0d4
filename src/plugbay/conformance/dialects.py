"""What differs between contracts when their scenarios are carried out.

Owns the list of contracts with scenarios, and two files beside the scenarios of each that has them:

    shared/hosts.json       {"answering": [{"when": pattern, "says": [template, …]}, …], …}
    shared/questions.json   {"tool": [template, …], …}

A host of the first answers what a plugin asks or tells on its own; `$asked` is the id of what was asked, `$asked_with`
its params, and `{"$stored": [method, params]}` what a storage of kaged answers. The second is what a plugin can be
asked, by kind of export. Refuses to know any message: those are in the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugbay.conformance.scenario import FOLDER
from plugbay.contracts.kaged.messages import API_VERSION, MAX_READ
from plugbay.contracts.nexo.messages import MAX_CHILD_LINE, NEXO_VERSION
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE, PROTOCOL


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a host says to a line of the plugin that fits `when`. The line is then no answer to anything we asked."""

    when: Any
    says: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the scenario files of a contract leave to be filled in."""

    protocol: str | int
    max_line: int
    host: str = ""
    """The usual host of its scenarios; empty: every line of the plugin has to be expected."""
    hosts: Mapping[str, tuple[Reaction, ...]] = field(default_factory=dict)
    questions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def reactions(self, host: str | None) -> tuple[Reaction, ...]:
        """How this host, or the usual one, reacts."""
        name = self.host if host is None else host
        return self.hosts[name] if name else ()


def shared(contract: str, name: str, folder: Path = FOLDER) -> Any:
    """A file beside the scenarios of a contract."""
    return json.loads((folder / contract / "shared" / name).read_text("utf-8"))


def _hosts(contract: str) -> dict[str, tuple[Reaction, ...]]:
    return {
        name: tuple(Reaction(rule["when"], tuple(rule["says"])) for rule in rules)
        for name, rules in shared(contract, "hosts.json").items()
    }


def _questions(contract: str) -> dict[str, tuple[Any, ...]]:
    return {kind: tuple(messages) for kind, messages in shared(contract, "questions.json").items()}


def dialect(contract: str) -> Dialect | None:
    """How to speak this contract; None when there are no scenarios for it."""
    make = _MAKES.get(contract)
    return None if make is None else make()


def _rune() -> Dialect:
    return Dialect(PROTOCOL, MAX_PLUGIN_LINE)


def _nexo() -> Dialect:
    return Dialect(NEXO_VERSION, MAX_CHILD_LINE, "answering", _hosts("nexo"), _questions("nexo"))


def _kaged() -> Dialect:
    return Dialect(API_VERSION, MAX_READ, "answering", _hosts("kaged"), _questions("kaged"))


_MAKES = {"rune": _rune, "nexo": _nexo, "kaged": _kaged}

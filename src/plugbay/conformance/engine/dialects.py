"""The differences between contracts when their scenarios run.

Lists the contracts that have scenarios, and reads up to three files beside the scenarios of each:

    shared/hosts.json       {"answering": [{"when": pattern, "says": [template, …]}, …], …}
    shared/questions.json   {"tool": [template, …], …}
    shared/axes.json        {"ainb.framing": "framing", …}

A host of the first answers what a plugin asks or tells on its own; `$asked` is the id of what was asked, `$asked_with`
its params, and `{"$stored": [method, params]}` what a storage of kaged answers. The name of another host stands for all
it does. The second is what a plugin can be asked, by kind of export. The third is for contracts that name their axes
themselves: the scenarios are their checks. Messages are in the files, not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugbay.conformance.engine import ainb_facts, mcp_facts, vai_facts
from plugbay.conformance.engine.scenario import FOLDER
from plugbay.contracts.ainb.messages import ABI_VERSION, MAX_BODY
from plugbay.contracts.kaged.messages import API_VERSION, MAX_READ
from plugbay.contracts.mcp.messages import MAX_LINE, REVISIONS
from plugbay.contracts.nexo.messages import MAX_CHILD_LINE, NEXO_VERSION
from plugbay.contracts.rune.messages import MAX_PLUGIN_LINE, PROTOCOL
from plugbay.contracts.vai import messages as vai
from plugbay.link.framings import Framing, Lengths, Lines, OpenLengths
from plugbay.model.spec import Export, PluginSpec

TEXTS = {
    "rune": "Plugin runtime protocol rterm.plugin.v1 (2026-04-16)",
    "nexo": "nexo Plugin Contract 1.10.0",
    "kaged": "kaged Plugin Interface Reference",
    "ainb": "ainb plugin contract v2",
    "vai": "VAI Plugin System, vai.rpc.v1",
    "mcp": "Model Context Protocol specification, 2025-11-25",
}
"""The published title of each contract."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The frames that a host sends when a frame of the plugin matches `when`. Such a frame answers no request."""

    when: Any
    says: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The facts of one contract that its scenario files leave open."""

    text: str
    """The published title of the contract."""
    protocol: str | int
    max_line: int
    host: str = ""
    """The default host of its scenarios; empty: no host, so a scenario must expect every frame."""
    hosts: Mapping[str, tuple[Reaction, ...]] = field(default_factory=dict)
    questions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    cut_by: Callable[[int], Framing] = Lines
    """Makes the framing of one conversation from `max_line`."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Id and title of each axis, in order; empty: every scenario is an axis."""
    facts: Callable[[PluginSpec], Mapping[str, Any]] = lambda spec: {}
    """Named values from the manifest that the spec does not have."""
    about: Callable[[Export | None, str], Mapping[str, Any]] = lambda export, place: {}
    """Named values for a call of an export, which may use the folder `place`."""
    is_introduced: bool = False
    """The manifest lists no exports: the plugin is greeted once before the run and lists them."""
    request_id: Callable[[int], Any] = lambda number: number
    """How the number of a request is written."""

    def reactions(self, host: str | None) -> tuple[Reaction, ...]:
        """The reactions of this host, or of the default one."""
        name = self.host if host is None else host
        return self.hosts[name] if name else ()

    def framing(self) -> Framing:
        """The framing for one conversation."""
        return self.cut_by(self.max_line)


def shared(contract: str, name: str, folder: Path = FOLDER) -> Any:
    """A file beside the scenarios of a contract."""
    return json.loads((folder / contract / "shared" / name).read_text("utf-8"))


def _hosts(contract: str) -> dict[str, tuple[Reaction, ...]]:
    hosts: dict[str, tuple[Reaction, ...]] = {}
    for name, rules in shared(contract, "hosts.json").items():
        reactions: list[Reaction] = []
        for rule in rules:
            reactions += hosts[rule] if isinstance(rule, str) else [Reaction(rule["when"], tuple(rule["says"]))]
        hosts[name] = tuple(reactions)
    return hosts


def _questions(contract: str) -> dict[str, tuple[Any, ...]]:
    return {kind: tuple(messages) for kind, messages in shared(contract, "questions.json").items()}


def dialect(contract: str) -> Dialect | None:
    """The dialect of this contract; None when it has no scenarios."""
    make = _MAKES.get(contract)
    return None if make is None else make()


def _rune() -> Dialect:
    return Dialect(TEXTS["rune"], PROTOCOL, MAX_PLUGIN_LINE)


def _nexo() -> Dialect:
    return Dialect(TEXTS["nexo"], NEXO_VERSION, MAX_CHILD_LINE, "answering", _hosts("nexo"), _questions("nexo"))


def _kaged() -> Dialect:
    return Dialect(TEXTS["kaged"], API_VERSION, MAX_READ, "answering", _hosts("kaged"), _questions("kaged"))


def _ainb() -> Dialect:
    return Dialect(
        TEXTS["ainb"],
        ABI_VERSION,
        MAX_BODY,
        "answering",
        _hosts("ainb"),
        _questions("ainb"),
        cut_by=Lengths,
        axes=shared("ainb", "axes.json"),
        facts=ainb_facts.facts,
    )


def _vai() -> Dialect:
    return Dialect(
        TEXTS["vai"],
        vai.PROTOCOL,
        vai.MAX_BODY,
        "listening",
        _hosts("vai"),
        _questions("vai"),
        cut_by=OpenLengths,
        axes=shared("vai", "axes.json"),
        facts=vai_facts.facts,
        about=vai_facts.about,
        request_id=vai.request_id,
    )


def _mcp() -> Dialect:
    return Dialect(
        TEXTS["mcp"],
        REVISIONS[0],
        MAX_LINE,
        "listening",
        _hosts("mcp"),
        _questions("mcp"),
        axes=shared("mcp", "axes.json"),
        facts=mcp_facts.facts,
        about=mcp_facts.about,
        is_introduced=True,
    )


_MAKES = {"rune": _rune, "nexo": _nexo, "kaged": _kaged, "ainb": _ainb, "vai": _vai, "mcp": _mcp}

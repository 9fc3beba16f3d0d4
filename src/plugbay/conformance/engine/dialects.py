"""The differences between contracts when their scenarios run.

A contract has a dialect when it has a folder of scenarios. Up to three files beside the scenarios describe it:

    shared/hosts.json       {"answering": [{"when": pattern, "says": [template, …]}, …], …}
    shared/questions.json   {"tool": [template, …], …}
    shared/axes.json        {"ainb.framing": "framing", …}

The first describes hosts: their reactions to the requests and notifications of a plugin. `$asked` is the id of the
request, `$asked_with` its params, and `{"$stored": [method, params]}` the answer of kaged's storage. The name of
another host stands for all reactions of that host. The second has the requests for each kind of export. The third is
for contracts that name their axes; their scenarios are the checks of an axis.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plugbay.conformance.engine.facts import ainb_facts, mcp_about, mcp_facts, vai_about, vai_facts
from plugbay.conformance.engine.scenario import FOLDER
from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract
from plugbay.contracts.frames import Framing
from plugbay.contracts.registry import CONTRACTS
from plugbay.contracts.vai.messages import request_id
from plugbay.model.spec import Export, PluginSpec

DEFAULT_HOSTS = ("answering", "listening")
"""The default host of a contract: the first of these that its `hosts.json` describes."""


class Reaction(msgspec.Struct, frozen=True):
    """The frames that a host sends when a frame of the plugin matches `when`. Such a frame answers no request."""

    when: Any
    says: tuple[Any, ...]


class Dialect(msgspec.Struct, frozen=True):
    """A contract, and the facts that its scenario files leave open."""

    contract: Contract
    host: str = ""
    """The default host of its scenarios; empty: no host, so a scenario must expect every frame."""
    hosts: Mapping[str, tuple[Reaction, ...]] = msgspec.field(default_factory=dict)
    questions: Mapping[str, tuple[Any, ...]] = msgspec.field(default_factory=dict)
    axes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Id and title of each axis, in order; empty: every scenario is an axis."""
    facts: Callable[[PluginSpec], Mapping[str, Any]] = lambda spec: {}
    """Named values from the manifest that the spec does not have."""
    about: Callable[[Export | None, str], Mapping[str, Any]] = lambda export, place: {}
    """Named values for a call of an export, which may use the folder `place`."""
    request_id: Callable[[int], Any] = lambda number: number
    """How the number of a request is written."""

    def reactions(self, host: str | None) -> tuple[Reaction, ...]:
        """The reactions of this host, or of the default one."""
        name = self.host if host is None else host
        return self.hosts[name] if name else ()

    def framing(self) -> Framing:
        """The framing of the plugin's messages, for one conversation."""
        return self.contract.framing_of(Role.PLUGIN)


_OWN_VALUES: dict[str, dict[str, Any]] = {
    "ainb": {"facts": ainb_facts},
    "vai": {"facts": vai_facts, "about": vai_about, "request_id": request_id},
    "mcp": {"facts": mcp_facts, "about": mcp_about},
}
"""Fields of a dialect that no file can hold."""


def load_dialect(contract: str, folder: Path = FOLDER) -> Dialect | None:
    """The dialect of this contract; None when it has no scenarios."""
    if contract not in CONTRACTS or not (folder / contract).is_dir():
        return None
    hosts = _hosts(shared(contract, "hosts.json", folder))
    return Dialect(
        CONTRACTS[contract],
        next((name for name in DEFAULT_HOSTS if name in hosts), ""),
        hosts,
        {kind: tuple(messages) for kind, messages in shared(contract, "questions.json", folder).items()},
        shared(contract, "axes.json", folder),
        **_OWN_VALUES.get(contract, {}),
    )


def shared(contract: str, name: str, folder: Path = FOLDER) -> Any:
    """A file beside the scenarios of a contract; an empty object when there is none."""
    file = folder / contract / "shared" / name
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def _hosts(described: Mapping[str, list[Any]]) -> dict[str, tuple[Reaction, ...]]:
    hosts: dict[str, tuple[Reaction, ...]] = {}
    for name, rules in described.items():
        reactions: list[Reaction] = []
        for rule in rules:
            reactions += hosts[rule] if isinstance(rule, str) else [Reaction(rule["when"], tuple(rule["says"]))]
        hosts[name] = tuple(reactions)
    return hosts

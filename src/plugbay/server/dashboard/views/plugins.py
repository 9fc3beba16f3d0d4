"""Plugins on pages: rows of the list, state, capabilities, exports, limits. Pure."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugbay.host.authorization.explanations import HIGH, LOW, MEDIUM, explain
from plugbay.host.confinement.policy import Confinement
from plugbay.host.discovery.folders import Found
from plugbay.model.errors import Code
from plugbay.model.lifecycle import PENDING, State
from plugbay.model.spec import Export, Lifetime, Timeouts
from plugbay.server.dashboard import forms
from plugbay.server.dashboard.loader import PluginSnapshot
from plugbay.server.dashboard.text import as_json, count, megabytes, size
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, RANKS, WARN, Badge
from plugbay.server.domain.resources import Usage

RISK_TONES = {LOW: CALM, MEDIUM: WARN, HIGH: BAD}


DISABLED, BLOCKED = "disabled", "blocked"
"""States beyond the host's: disabled, cannot be confined."""


TONES = {
    State.QUARANTINED: BAD,
    BLOCKED: BAD,
    State.BACKOFF: BAD,
    PENDING: WARN,
    State.SPAWNING: CALM,
    State.RUNNING: GOOD,
    State.IDLE: CALM,
    State.SHUTTING_DOWN: OFF,
    State.STOPPED: OFF,
    DISABLED: OFF,
}
"""The tone of every state, in the order of the summary."""


LIFETIMES = {Lifetime.PER_CALL: "one process per call", Lifetime.RESIDENT: "one resident process"}


class LastFailure(msgspec.Struct, frozen=True):
    """The last call of a plugin that failed."""

    code: str
    at: float
    call_id: str


class Row(msgspec.Struct, frozen=True):
    """A plugin in the list."""

    key: str
    id: str
    name: str
    version: str
    contract: str
    state: Badge
    sandbox: Badge
    busy: int
    calls: int
    failures: int
    failed: LastFailure | None
    since: float
    missing: tuple[str, ...] = ()
    """Capabilities that it waits for."""

    @property
    def request(self) -> str:
        """Its id and the capabilities it waits for, as a form sends them: a grant is of what the page shows."""
        return as_json([self.id, *self.missing], spread=False)


class Operation(msgspec.Struct, frozen=True):
    """An operation on a plugin."""

    name: str
    label: str
    effect: str


class Overview(msgspec.Struct, frozen=True):
    """State of a plugin: the top of its page."""

    row: Row
    hint: str
    happened: str
    lifetime: str
    pid: int | None
    generation: int
    ready: int
    counters: tuple[tuple[str, int], ...]
    operations: tuple[Operation, ...]
    memory: str = ""
    cpu: str = ""


class Capability(msgspec.Struct, frozen=True):
    """A requested capability, granted or not."""

    name: str
    granted: bool
    entry: str
    """The entry in plugbay.toml that grants it and can be revoked; empty if there is none."""
    is_new: bool
    """Requested after the operator decided on grants."""
    allows: str = ""
    """What it allows, in plain words."""
    risk: str = ""
    tone: str = ""
    why: str = ""
    """The reason of the risk."""


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities of a plugin."""

    requested: tuple[Capability, ...]
    optional: tuple[Capability, ...]
    undecided: bool

    @property
    def open(self) -> tuple[str, ...]:
        """Requested and not granted."""
        return tuple(capability.name for capability in self.requested if not capability.granted)


class ExportRow(msgspec.Struct, frozen=True):
    """An export on its plugin's page."""

    name: str
    full_name: str
    kind: str
    description: str
    takes: str
    schema: str
    needs: tuple[str, ...]
    page: str = "/export?export="
    """The page that uses it; its full name follows."""
    verb: str = "Try"


class Broken(msgspec.Struct, frozen=True):
    """A plugin folder that could not be loaded."""

    folder: str
    problems: tuple[str, ...]


def key_of(plugin_id: str) -> str:
    """The element id of a plugin's row; plugin ids may contain any characters."""
    return f"plugin-{hashlib.sha256(plugin_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def rows_of(plugins: Iterable[PluginSnapshot]) -> list[Row]:
    """The list of plugins: problems first, then by id."""
    return sorted(map(row_of, plugins), key=lambda row: (RANKS[row.state.tone], row.id))


def row_of(plugin: PluginSnapshot) -> Row:
    spec, failed = plugin.status.spec, plugin.failed
    return Row(
        key_of(spec.id),
        spec.id,
        spec.name if spec.name != spec.id else "",
        spec.version,
        spec.contract,
        state_of(plugin),
        sandbox_of(plugin.status.confinement, plugin.status.limits),
        plugin.status.busy,
        plugin.calls,
        plugin.failures,
        None
        if failed is None or failed.failure is None
        else LastFailure(failed.failure.code, failed.started_at, failed.call_id),
        plugin.happened.at if plugin.happened else plugin.since,
        plugin.status.missing if plugin.refusal is not None else (),
    )


def state_of(plugin: PluginSnapshot) -> Badge:
    """The state of a plugin for an operator, and the reason."""
    refusal, blocked, state = plugin.refusal, plugin.status.confinement.refusal, str(plugin.status.state)
    if refusal is not None:
        word = DISABLED if refusal.code == Code.UNAVAILABLE else PENDING
        return Badge(word, TONES[word], refusal.message.removeprefix(f"{word}: "))
    if blocked is not None:
        return Badge(BLOCKED, TONES[BLOCKED], blocked.message)
    why = plugin.trouble if state in (State.QUARANTINED, State.BACKOFF) else ""
    return Badge(state.replace("_", " "), TONES.get(state, CALM), why)


def sandbox_of(confinement: Confinement, limits: str) -> Badge:
    """The confinement of a plugin."""
    if confinement.refusal is not None:
        return Badge("refused", BAD, confinement.refusal.message)
    if confinement.policy is None:
        return Badge("unconfined", WARN if confinement.downgrade else OFF, confinement.reason)
    if limits == "degraded":
        return Badge("confined", WARN, "some of its limits are not enforced")
    return Badge("confined", GOOD)


class ListFilter(msgspec.Struct, frozen=True):
    """The plugins that the list shows."""

    words: str = ""
    """Words that are all in the id, the name or the reason of the state; the case does not matter."""
    state: str = ""
    contract: str = ""
    page: int = 1

    def accepts(self, row: Row) -> bool:
        text = f"{row.id}\n{row.name}\n{row.state.why}".lower()
        return (
            all(word in text for word in self.words.lower().split())
            and self.state in ("", row.state.word)
            and self.contract in ("", row.contract)
        )


class ListPage(msgspec.Struct, frozen=True):
    """One page of the list of plugins."""

    rows: tuple[Row, ...]
    summary: str
    page: int
    pages: int


ROWS_OF_A_PAGE = 100


def list_page(rows: Sequence[Row], wanted: ListFilter) -> ListPage:
    """The rows of a page; beyond the last page, those of the last."""
    found = [row for row in rows if wanted.accepts(row)]
    pages = max(1, math.ceil(len(found) / ROWS_OF_A_PAGE))
    page = min(max(1, wanted.page), pages)
    text = summary(rows) if len(found) == len(rows) else f"{len(found):,} of {summary(rows)}"
    return ListPage(tuple(found[(page - 1) * ROWS_OF_A_PAGE : page * ROWS_OF_A_PAGE]), text, page, pages)


def summary(rows: Sequence[Row]) -> str:
    """`17 plugins: 1 quarantined, 9 running, 7 idle`."""
    counted = Counter(row.state.word for row in rows)
    order = [str(state).replace("_", " ") for state in TONES]
    words = [f"{counted[word]} {word}" for word in order if word in counted]
    return f"{count(len(rows), 'plugin')}: {', '.join(words)}" if words else count(0, "plugin")


def broken_of(found: Iterable[Found]) -> list[Broken]:
    """Folders that could not be loaded, and why."""
    return [Broken(item.entry or str(item.root), tuple(map(str, item.errors))) for item in found if item.errors]


_STOP = Operation("stop", "Stop", "Stop its processes; calls to it fail until it is started")


_OPERATIONS = (
    Operation("restart", "Restart", "Stop its processes at once, and start it again"),
    Operation("reload", "Reload", "Wait for its running calls, then restart it"),
    _STOP,
)


_START = (Operation("start", "Start", "Start the plugin"),)


def overview_of(plugin: PluginSnapshot, used: Usage | None = None) -> Overview:
    """The top of a plugin's page."""
    status, happened = plugin.status, plugin.happened
    return Overview(
        row_of(plugin),
        hint_of(plugin),
        f"{happened.word.replace('_', ' ')}{': ' if happened.facts else ''}{happened.facts}" if happened else "",
        LIFETIMES.get(status.spec.lifetime, str(status.spec.lifetime)),
        status.pid,
        status.generation,
        status.ready,
        tuple(sorted(status.counters.items())),
        operations_of(plugin),
        "" if used is None else megabytes(used.memory),
        "" if used is None or used.cpu is None else f"{used.cpu:.2f} cores",
    )


def hint_of(plugin: PluginSnapshot) -> str:
    """A hint for the operator, if the page offers no action."""
    refusal = plugin.refusal or plugin.status.confinement.refusal
    if refusal is not None:
        return "" if capabilities_of(plugin).undecided else str(refusal.detail.get("hint", ""))
    if plugin.status.state == State.QUARANTINED:
        return "it failed too often; read its log, fix the problem, then start it"
    return ""


def operations_of(plugin: PluginSnapshot) -> tuple[Operation, ...]:
    """Operations that apply in this state; none if the plugin may not run."""
    if plugin.refusal is not None:
        return ()
    if plugin.status.state in (State.STOPPED, State.SHUTTING_DOWN):
        return _START
    return (*_START, _STOP) if plugin.status.state == State.QUARANTINED else _OPERATIONS


def capabilities_of(plugin: PluginSnapshot) -> Capabilities:
    """Requested, granted and new capabilities."""
    spec, granted, kept = plugin.status.spec, set(plugin.status.granted), plugin.kept

    def capability(name: str) -> Capability:
        entry = next((each for each in (name, name.partition("=")[0]) if each in (kept or ())), "")
        known = explain(spec, name)
        return Capability(
            name,
            name in granted,
            entry,
            name not in granted and kept is not None,
            known.allows,
            known.risk,
            RISK_TONES[known.risk],
            known.why,
        )

    optional = [name for name in spec.optional_capabilities if name not in spec.capabilities]
    undecided = kept is None and not granted.issuperset(spec.capabilities)
    return Capabilities(tuple(map(capability, spec.capabilities)), tuple(map(capability, optional)), undecided)


def grantable(plugin: PluginSnapshot, needs: Iterable[str], failure: Mapping[str, Any]) -> tuple[Capability, ...]:
    """The requested capabilities without which a call was refused: those that its export needs, that the plugin waits
    for, or that the failure names."""
    if failure.get("code") != Code.CAPABILITY_NOT_ALLOWED:
        return ()
    named = str((failure.get("detail") or {}).get("capability", ""))
    wanted = {*needs, *plugin.status.missing, named}
    found = capabilities_of(plugin)
    return tuple(
        each
        for each in (*found.requested, *found.optional)
        if not each.granted and (each.name in wanted or each.name.partition("=")[0] == named)
    )


EXPORT_PAGES = {"screen": ("/screen?name=", "Open"), "cli_namespace": ("/command?name=", "Run")}
"""Pages of exports that are not called with JSON, and the words of their buttons."""


def export_rows(exports: Mapping[str, Export]) -> list[ExportRow]:
    """Exports for the page."""
    return [
        ExportRow(
            export.name,
            full_name,
            export.kind.replace("_", " "),
            export.description,
            forms.signature(export.input_schema),
            "" if export.input_schema is None else as_json(export.input_schema),
            tuple(export.capabilities),
            *EXPORT_PAGES.get(export.kind, ()),
        )
        for full_name, export in exports.items()
    ]


def facts_of(plugin: PluginSnapshot) -> list[tuple[str, str]]:
    """Origin and limits of a plugin, as pairs of label and text."""
    spec, confinement = plugin.status.spec, plugin.status.confinement
    program = ("url", spec.url) if spec.url else ("command", " ".join(spec.command))
    facts = [("folder", str(spec.root)), program, ("timeouts", _timeouts(spec.timeouts))]
    if confinement.policy is not None:
        facts += _policy(confinement.policy.to_json())
    return facts + [("not in effect", note) for note in confinement.notes]


def _timeouts(timeouts: Timeouts) -> str:
    return " · ".join(f"{name} {getattr(timeouts, name):g} s" for name in ("launch", "handshake", "call", "teardown"))


_REACHES = {"none": "none", "any": "any public address", "host": "the machine's own, unchecked"}


def _policy(policy: dict[str, Any]) -> list[tuple[str, str]]:
    """A policy's public shape, line by line."""
    facts = [
        (label, "\n".join(policy[key]))
        for label, key in (("may read", "read"), ("may write", "write"), ("may run", "run"))
    ]
    facts.append(("own folder", policy["state"] or ""))
    network, limits = policy["network"], policy["limits"]
    facts.append(("network", _REACHES.get(network["reach"]) or ", ".join(network["doors"])))
    shown = [
        f"{size(limits['memory'])} memory",
        f"{limits['cpu']:g} {'core' if limits['cpu'] == 1 else 'cores'}",
        f"{limits['processes']:,} processes",
        f"{limits['open_files']:,} open files",
        f"{size(limits['tmp'])} in /tmp",
    ]
    return [(label, text) for label, text in facts if text] + [("limits", " · ".join(shown))]

"""Operations on a running host: stop, start, restart, reload, approve a plugin; apply another plugbay.toml.

A stopped plugin stays stopped until it is started. A start reads the plugin's folder again, which may hold another
release. An approval covers exactly the inspected offer, identified by its digest. Call these functions on the host's
own loop.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.host.admin.folders import plan_servers, take_steps
from plugbay.host.catalog import approvals
from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import Found, inspect_all, reject_duplicates
from plugbay.host.discovery.servers import find_servers
from plugbay.host.host import Host
from plugbay.host.status import PluginStatus
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.lifecycle import State
from plugbay.model.spec import Lifetime

FIXED = ("host", "network", "sandbox", "project", "broker", "agents", "memory", "llm", "retention")
"""Sections of plugbay.toml that are read once, when a host or a server is made."""


class Applied(msgspec.Struct, frozen=True):
    """The effect of another plugbay.toml."""

    plugins: tuple[str, ...]
    """Plugins with other settings; these take effect when the plugin is reloaded."""
    restart: tuple[str, ...]
    """Changed sections that take effect only in a new host."""
    added: tuple[str, ...] = ()
    """MCP servers that are new, or declared in another way. They are hosted, and pending until they are approved."""
    removed: tuple[str, ...] = ()
    """MCP servers that are no longer declared, or in another way."""


async def apply(host: Host, config: Config) -> Applied:
    """Take the settings of each plugin, and the MCP servers, from another plugbay.toml."""
    old = host.config
    restart = tuple(name for name in FIXED if _section(old, name) != _section(config, name))
    merged = old.model_copy(update={"plugins": config.plugins, "mcp": config.mcp})
    before, after = await asyncio.to_thread(lambda: (find_servers(old), find_servers(merged)))
    steps = plan_servers(host.found, before, after)
    added = tuple(item.spec.id for item in steps.added if item.spec is not None)
    gone = {*added, *steps.removed}
    changed = tuple(each for each in host.specs if each not in gone and old.plugin(each) != merged.plugin(each))
    host.configure(merged)
    await take_steps(host, steps)
    return Applied(changed, restart, added, steps.removed)


def _section(config: Config, name: str) -> object:
    """The value of a section; folders are compared as absolute paths."""
    section = getattr(config, name)
    return (section.id, Path(section.root).absolute()) if name == "project" else section


def shape(host: Host, status: PluginStatus) -> dict[str, Any]:
    """The public JSON of one plugin, for `plugbay ps --json` and for the server."""
    denied = host.refusal(status.spec.id)
    return {
        "id": status.spec.id,
        "name": status.spec.name,
        "description": status.spec.description,
        "folder": str(status.spec.root),
        "version": status.spec.version,
        "contract": status.spec.contract,
        "lifetime": str(status.spec.lifetime),
        "state": str(status.state),
        "refused": None if denied is None else denied.message,
        "pid": status.pid,
        "generation": status.generation,
        "busy": status.busy,
        "ready": status.ready,
        "requested": list(status.spec.capabilities),
        "granted": list(status.granted),
        "missing": list(status.missing),
        "disabled": list(status.disabled),
        "commands": list(status.spec.commands),
        "sandbox": status.confinement.to_json(),
        "limits": status.limits,
        "counters": dict(status.counters),
    }


async def stop(host: Host, plugin_id: str) -> None:
    """Stop a plugin's instances; calls to it fail until it is started."""
    await _supervisor(host, plugin_id).stop()


async def start(host: Host, plugin_id: str) -> None:
    """Start a plugin; a resident one is started now, others with their next call. A stopped or quarantined plugin
    gets a new supervisor.

    Raises `CallFailed` when it does not start.
    """
    has_ended = _supervisor(host, plugin_id).state in (State.STOPPED, State.SHUTTING_DOWN, State.QUARANTINED)
    if has_ended:
        await renew(host, plugin_id)
    _require_admission(host, plugin_id)
    supervisor = host.replace_supervisor(plugin_id) if has_ended else _supervisor(host, plugin_id)
    await _start(supervisor)


async def restart(host: Host, plugin_id: str) -> None:
    """Stop a plugin's instances at once, with their calls, and start again; raises `CallFailed`."""
    _supervisor(host, plugin_id)
    await renew(host, plugin_id)
    _require_admission(host, plugin_id)
    await _supervisor(host, plugin_id).stop()
    await _start(host.replace_supervisor(plugin_id))


async def reload(host: Host, plugin_id: str) -> None:
    """Read the plugin's folder again and replace its instances after their calls. Raises `CallFailed`."""
    _supervisor(host, plugin_id)
    await renew(host, plugin_id)
    await host.reload(plugin_id)


def _require_admission(host: Host, plugin_id: str) -> None:
    """Raises `CallFailed` when the plugin may not run."""
    refused = host.refusal(plugin_id)
    if refused is not None:
        raise CallFailed(refused)


async def _start(supervisor: Supervisor) -> None:
    spec = supervisor.binding.spec
    supervisor.begin()
    if spec.lifetime is not Lifetime.RESIDENT:
        return
    lease = await supervisor.lease(Deadline(spec.timeouts.launch + spec.timeouts.handshake))
    if isinstance(lease, Failure):
        raise CallFailed(lease)
    lease.release()


def _supervisor(host: Host, plugin_id: str) -> Supervisor:
    found = host.supervisor(plugin_id)
    if found is None:
        raise CallFailed(Failure(Code.NOT_FOUND, f"the host has no plugin {plugin_id!r}"))
    return found


async def renew(host: Host, plugin_id: str) -> None:
    """Read the plugin's folder again; raises `CallFailed`, and then nothing has changed."""
    at = next((at for at, item in enumerate(host.found) if item.spec and item.spec.id == plugin_id), None)
    if at is None:
        return
    old = host.found[at]
    # Servers in plugbay.toml have no folder; `apply` hosts them anew when their declaration changes.
    fresh = old if plugin_id in host.config.mcp else await asyncio.to_thread(_read, old, plugin_id)
    assert old.spec is not None
    if fresh.spec == old.spec:
        if not host.runtime_exports.is_approved(plugin_id):  # it may have been approved in the meantime
            host.adopt(old.spec)
        return
    found = reject_duplicates([*host.found[:at], fresh, *host.found[at + 1 :]])
    spec = found[at].spec
    if spec is None:
        raise _unusable(plugin_id, old, "; ".join(map(str, found[at].errors)))
    await host.prepare(spec)
    host.found = found
    host.protection.add(found[at])
    host.adopt(spec)


def _read(old: Found, plugin_id: str) -> Found:
    """The same plugin as it is on disk now."""
    found = [item for item in inspect_all(old.root, old.contract) if item.entry == old.entry]
    if not found:
        raise _unusable(plugin_id, old, "its manifest no longer declares it")
    item = found[0]
    if item.spec is None:
        raise _unusable(plugin_id, old, "; ".join(map(str, item.errors)))
    if item.spec.id != plugin_id:
        raise _unusable(plugin_id, old, f"its folder now holds {item.spec.id}; restart the host to use that plugin")
    return replace(item, plugins_folder=old.plugins_folder)


def _unusable(plugin_id: str, old: Found, why: str) -> CallFailed:
    text = f"{plugin_id} is unchanged, because {old.root} cannot be used: {why}"
    hint = f"plugbay inspect {old.root} lists the problems; correct them, then reload the plugin"
    return CallFailed(Failure(Code.LAUNCH_FAILED, text, plugin=plugin_id, detail={"hint": hint}))


# Approval of exports that are declared at run time.


class Inspection(msgspec.Struct, frozen=True):
    """The current offer of a plugin, and its differences from the approved one."""

    plugin_id: str
    hello: dict[str, Any]
    candidate: approvals.Approval
    approved_before: bool
    changes: tuple[approvals.Change, ...]
    digest: str
    """Identifies everything that would be approved."""

    @property
    def definitions(self) -> list[tuple[str, dict[str, Any]]]:
        """Every definition, with the name of its list."""
        offer = self.candidate.offer
        return [(part, dict(definition)) for part in approvals.PARTS for definition in offer.get(part) or ()]

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        offer = self.candidate.offer
        return {
            "id": self.plugin_id,
            "digest": self.digest,
            "era": self.hello.get("era"),
            "protocol_version": self.hello.get("protocol_version"),
            "info": self.hello.get("server"),
            "definitions": {part: list(offer.get(part) or ()) for part in approvals.PARTS},
            "warnings": list(self.hello.get("warnings") or ()),
            "approved_before": self.approved_before,
            "changes": [change.to_json() for change in self.changes],
        }


async def inspect(host: Host, plugin_id: str) -> Inspection:
    """Start the plugin once, with the grants of plugbay.toml only, and read its offer.

    Raises `CallFailed`.
    """
    async with host.isolated(plugin_id) as beside:
        failures = await beside.meet(plugin_id)
        if failures:
            raise CallFailed(failures[plugin_id])
        exports = beside.runtime_exports
        hello, candidate = exports.hello(plugin_id), exports.candidate(plugin_id)
        assert hello is not None, "the plugin has greeted"
        digest = await asyncio.to_thread(digest_of, plugin_id, candidate)  # the offer may have 16 MiB
        approved = exports.approval(plugin_id) is not None
        return Inspection(plugin_id, dict(hello), candidate, approved, tuple(exports.drift(plugin_id)), digest)


def digest_of(plugin_id: str, approval: approvals.Approval) -> str:
    """The digest of an approval without its time."""
    return f"sha256:{approvals.digest({**approval.to_json(plugin_id), 'approved_at': ''})}"


async def approve(host: Host, seen: Inspection) -> None:
    """Approve exactly the inspected offer; raises `ConfigInvalid`. A reload starts the plugin with it."""
    await asyncio.to_thread(host.runtime_exports.approve, seen.plugin_id, seen.candidate)
    host.adopt(next(item.spec for item in host.found if item.spec is not None and item.spec.id == seen.plugin_id))

"""What an operator does to a host that runs: stop one plugin, start it again, give it other grants or settings.

Owns what of plugbay.toml takes effect without a new host, that what starts is what the plugin's folder holds now, and
that a plugin somebody stopped stays stopped until it is started. A friend of `Host`: it changes what the host was made
of, on the host's own loop, and nobody else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.host.admin.renewal import renew
from plugbay.host.assembly import offer_names
from plugbay.host.authorization import policy
from plugbay.host.config.config import Config
from plugbay.host.host import Host
from plugbay.host.status import PluginStatus
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.lifecycle import State
from plugbay.model.spec import Lifetime

FIXED = ("host", "network", "sandbox", "project", "broker", "agents", "memory", "llm", "mcp", "retention")
"""Sections of plugbay.toml that are read once, when a host or a server is made."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of another plugbay.toml."""

    plugins: tuple[str, ...]
    """Plugins for which something else is said now; it takes effect when they are reloaded."""
    restart: tuple[str, ...]
    """Sections that say something else, and that only a new host reads."""


def apply(host: Host, config: Config) -> Applied:
    """Take over what another plugbay.toml says about each plugin."""
    old = host.config
    restart = tuple(name for name in FIXED if _section(old, name) != _section(config, name))
    merged = old.model_copy(update={"plugins": config.plugins})
    changed = tuple(plugin_id for plugin_id in host._specs if old.plugin(plugin_id) != merged.plugin(plugin_id))
    host.config = host._bindings._config = merged
    for plugin_id in host._specs:
        host.decisions[plugin_id] = host._bindings.decide(plugin_id)
    offer_names(host.calls, host._backends)
    return Applied(changed, restart)


def _section(config: Config, name: str) -> object:
    """What a section says; a folder is the same however it is written."""
    section = getattr(config, name)
    return (section.id, Path(section.root).absolute()) if name == "project" else section


def is_running(host: Host) -> bool:
    """Whether the host was started, and not stopped since."""
    return host._runtime is not None


def shape(host: Host, status: PluginStatus) -> dict[str, Any]:
    """The public JSON of one plugin: in `plugbay ps --json`, and of the server."""
    denied = refusal(host, status.spec.id)
    return {
        "id": status.spec.id,
        "name": status.spec.name,
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
        "disabled": list(status.disabled),
        "sandbox": status.confinement.to_json(),
        "limits": status.limits,
        "counters": dict(status.counters),
    }


def refusal(host: Host, plugin_id: str) -> Failure | None:
    """Why the plugin may not run as it is decided now; None when it may."""
    return policy.admit(host._specs[plugin_id], host.decisions[plugin_id])


async def stop(host: Host, plugin_id: str) -> None:
    """End a plugin's children; calls to it fail until it is started."""
    await _supervisor(host, plugin_id).stop()


async def start(host: Host, plugin_id: str) -> None:
    """Have a plugin's child started, if it has one that stays; a plugin that was stopped or given up is as new.

    Raises `CallFailed` when it does not start.
    """
    is_over = _supervisor(host, plugin_id).state in (State.STOPPED, State.SHUTTING_DOWN, State.QUARANTINED)
    if is_over:
        await renew(host, plugin_id)
    _require_admission(host, plugin_id)
    supervisor = _fresh(host, plugin_id) if is_over else _supervisor(host, plugin_id)
    await _warm(supervisor)


async def restart(host: Host, plugin_id: str) -> None:
    """End a plugin's children at once, whatever they are doing, and start afresh; raises `CallFailed`."""
    _supervisor(host, plugin_id)
    await renew(host, plugin_id)
    _require_admission(host, plugin_id)
    await _supervisor(host, plugin_id).stop()
    await _warm(_fresh(host, plugin_id))


async def reload(host: Host, plugin_id: str) -> None:
    """Start afresh what the plugin's folder holds now, after the calls that run or wait. Raises `CallFailed`."""
    _supervisor(host, plugin_id)
    await renew(host, plugin_id)
    await host.reload(plugin_id)


def _require_admission(host: Host, plugin_id: str) -> None:
    """Nobody starts by hand what may not run; raises `CallFailed`."""
    refused = refusal(host, plugin_id)
    if refused is not None:
        raise CallFailed(refused)


def _fresh(host: Host, plugin_id: str) -> Supervisor:
    assert host._runtime is not None
    fresh = host.calls.supervisors[plugin_id] = host._supervise(host._specs[plugin_id], host._runtime)
    return fresh


async def _warm(supervisor: Supervisor) -> None:
    spec = supervisor.binding.spec
    supervisor.begin()
    if spec.lifetime is not Lifetime.RESIDENT:
        return
    lease = await supervisor.lease(Deadline(spec.timeouts.launch + spec.timeouts.handshake))
    if isinstance(lease, Failure):
        raise CallFailed(lease)
    lease.release()


def _supervisor(host: Host, plugin_id: str) -> Supervisor:
    found = host.calls.supervisors.get(plugin_id)
    if found is None:
        raise CallFailed(Failure(Code.NOT_FOUND, f"no plugin here is called {plugin_id!r}"))
    return found

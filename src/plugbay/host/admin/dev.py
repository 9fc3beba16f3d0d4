"""Differences for a plugin under development: long timeouts, no automatic restarts, a debugger may be attached."""

from __future__ import annotations

from msgspec.structs import replace

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.host.host import Host
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Lifetime, PluginSpec, RestartPolicy

FAREWELL = 1.0
"""Seconds to wait for a plugin that may stand at a breakpoint: the host does not own it and must not wait long."""

UNENDING = RestartPolicy(first_delay=0.01, longest_delay=0.01, failures=1_000_000, refusal_is_final=False)
"""Unlimited restarts: the author stops and starts the plugin by hand."""


def under_development(spec: PluginSpec) -> PluginSpec:
    """Started only by calls and by saved files: no respawn after a crash, no idle stop."""
    return replace(spec, eager=False, respawn=False, idle_seconds=None)


def attached(spec: PluginSpec, command: tuple[str, ...]) -> PluginSpec:
    """Started through `command`, which attaches a debugger: no timeout ends the plugin."""
    teardown = LONGEST_CALL if spec.lifetime is Lifetime.PER_CALL else FAREWELL
    timeouts = replace(
        spec.timeouts,
        handshake=LONGEST_CALL,
        call=LONGEST_CALL,
        hung=LONGEST_CALL,
        farewell=FAREWELL,
        teardown=teardown,
        term=0.0,
    )
    return replace(
        spec, command=command, timeouts=timeouts, patience={}, health_interval=None, restart=UNENDING, sandbox=None
    )


async def warm(host: Host, plugin_id: str) -> Failure | None:
    """Start the plugin and wait for its greeting; returns the failure, if any. A per-call instance is released."""
    supervisor = host.supervisor(plugin_id)
    if supervisor is None:
        return Failure(Code.UNAVAILABLE, "the host is not running", plugin=plugin_id)
    refusal = host.refusal(plugin_id)
    if refusal is not None:
        return refusal
    timeouts = supervisor.binding.spec.timeouts
    lease = await supervisor.lease(Deadline(timeouts.launch + timeouts.handshake))
    if isinstance(lease, Failure):
        return lease
    lease.release()
    return None

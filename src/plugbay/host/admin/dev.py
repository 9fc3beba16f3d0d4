"""What a host does differently for somebody who is writing the plugin: more patience, no more starts than asked for.

Owns the spec of a plugin under development, of one that its author has started, and the start that no call asks for.
Decides nothing about when.
"""

from __future__ import annotations

from dataclasses import replace

from plugbay.host.authorization import policy
from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.host.host import Host
from plugbay.host.supervision.instance import Deadline
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Lifetime, PluginSpec, RestartPolicy

FAREWELL = 1.0
"""Seconds for a plugin that may stand at a breakpoint: it is not ours to kill, and its author does not wait for it."""

UNENDING = RestartPolicy(first_delay=0.01, longest_delay=0.01, failures=1_000_000, refusal_is_final=False)
"""Its author ends and starts it as often as it takes."""


def under_development(spec: PluginSpec) -> PluginSpec:
    """Started by calls and saves only: what crashes tells so once, and what is idle stays for the next call."""
    return replace(spec, eager=False, respawn=False, idle_seconds=None)


def attached(spec: PluginSpec, command: tuple[str, ...]) -> PluginSpec:
    """Behind `command` its author has a debugger: nothing that the plugin does takes too long."""
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
    """Start the plugin and hear its greeting; a `Failure` says why it cannot. One that serves one call leaves again."""
    supervisor = host.calls.supervisors.get(plugin_id)
    if supervisor is None:
        return Failure(Code.UNAVAILABLE, "the host is not running", plugin=plugin_id)
    refusal = policy.admit(supervisor.binding.spec, host.decisions[plugin_id])
    if refusal is not None:
        return refusal
    timeouts = supervisor.binding.spec.timeouts
    lease = await supervisor.lease(Deadline(timeouts.launch + timeouts.handshake))
    if isinstance(lease, Failure):
        return lease
    lease.release()
    return None

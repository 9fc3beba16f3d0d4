"""A plugin whose manifest says nothing of what it offers: it is greeted once, before anything is tried, and says it.

Owns that first conversation, which is our own host's. Refuses to judge: a plugin that does not get through it offers
nothing that could be tried, and the rules about greetings find out why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugbay.conformance.dialects import Dialect
from plugbay.conformance.subject import Frame, Subject
from plugbay.conformance.trial import launch_of
from plugbay.contracts.registry import CONTRACTS, HostSide
from plugbay.model.events import Ready
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import LaunchFailed
from plugbay.wire.fast_json import MsgspecCodec

MAX_NOISE = 8
"""Lines that are no message, after which nothing else is expected: what prints a banner is heard out, nothing more."""

ANSWER_SECONDS = 20.0
"""For each answer: some programs are installed or compiled first."""


async def hello_of(spec: PluginSpec, dialect: Dialect, spawner: Spawner) -> Mapping[str, Any] | None:
    """What the plugin says of itself; None when it does not get that far."""
    try:
        child = await spawner.spawn(launch_of(spec), spec.timeouts.launch)
    except LaunchFailed:
        return None
    subject = Subject(child, dialect.framing())
    try:
        return await _greeted(spec, subject)
    finally:
        await subject.close()
        await child.wait(spec.timeouts.kill)


async def _greeted(spec: PluginSpec, subject: Subject) -> Mapping[str, Any] | None:
    machine = CONTRACTS[spec.contract].host_machine(spec, HostSide(), MsgspecCodec())
    machine.greet()
    subject.send(machine.outgoing())
    noise = 0
    while noise < MAX_NOISE and isinstance(frame := await subject.next_frame(ANSWER_SECONDS), Frame):
        noise += bool(frame.problem)
        for event in machine.receive(subject.framing.marked(frame.line)):
            if isinstance(event, Ready):
                return event.hello
        subject.send(machine.outgoing())
    return None

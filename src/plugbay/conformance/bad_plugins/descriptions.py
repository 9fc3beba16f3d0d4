"""Describes a bad plugin for a developer of any host: its command line, how to trigger it, what the host must do.

`plugbay badplugins` prints these texts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from plugbay.conformance.bad_plugins.catalogue import FOLDER, INTERPRETERS, SETUPS, Entry, Expected, load_catalog
from plugbay.conformance.engine.patterns import format_value

CONTRACTS = tuple(SETUPS)
"""The contracts with bad plugins."""

MEANINGS = {
    "launch_failed": "the program cannot be started",
    "handshake_failed": "it did not identify itself as the contract requires, or as another plugin",
    "timeout": "the expected message did not arrive in time",
    "crashed": "it exited, or closed its output, before it answered",
    "malformed_response": "its output is not a message of the contract",
    "tool_not_exposed": "it does not offer an export that its manifest declares",
    "protocol_version_mismatch": "it speaks another version of the contract",
    "capability_not_declared": "it uses a capability that it does not declare correctly",
    "capability_not_allowed": "it uses a capability that was not granted",
    "invalid_input": "the input of the call is not valid",
    "plugin_error": "it answered with an error of its own",
    "unavailable": "it cannot answer now",
    "cancelled": "the caller cancelled, and the plugin stopped",
    "overloaded": "it has more calls than it accepts",
    "frame_too_large": "a message is larger than the contract allows",
    "sandbox_unavailable": "it cannot be confined as it requests",
    "quarantined": "it failed too often or has another identity, and is not restarted automatically",
    "not_found": "no plugin or export has that name",
    "internal": "a bug of the host",
}
"""The meaning of each failure code, whatever the host under test calls it."""

OUTCOMES = {
    "succeeded": "the call succeeds",
    "plugin_error": "the call fails with the plugin's own error",
    "refused": "the call is refused, and counts as no failure of the plugin",
}

NEXT = {
    "same": "the next call reaches the same process",
    "new": "the next call reaches a new process",
    "refused": "the next call is refused: the plugin is not restarted automatically",
}

WAYS = {
    "call": "call {tool} with {input}",
    "fire": "fire the hook {tool} with {input}",
    "compact": "have it compact a conversation of 30 messages",
    "run": "run the command line {tool} with {input}",
    "render": "render the screen {tool}, 80 by 24",
    "press": "render the screen {tool}, send 1,000 keys, render it again",
}

SITUATIONS = {
    "slow_spawn": "starting the process must take longer than the launch timeout",
    "caller_cancels": "cancel the call once the plugin has created the file `reached` in its folder",
    "input_not_json": "the input has no JSON form",
}


class BadPlugin(NamedTuple):
    """One bad plugin of a contract."""

    contract: str
    entry: Entry

    @property
    def name(self) -> str:
        return f"{self.contract}/{self.entry.name}"

    def command(self) -> tuple[list[str], dict[str, str]] | None:
        """Arguments and environment of its process; None when only its manifest is wrong."""
        entry = self.entry
        if entry.file is None or "process" in entry.manifest:
            return None
        file = FOLDER / self.contract / entry.file
        if file.suffix == ".sh":
            return [*INTERPRETERS[".sh"], str(file), entry.kind], {}
        setup = SETUPS[self.contract]
        isolated = "-E" if setup.helpers else "-I"  # with -I it could not import the files beside it
        argv = [sys.executable, isolated, "-S", "-B", str(file), entry.kind]
        return argv, {**setup.environment(entry), **entry.manifest.get("env", {})}

    def asked(self) -> list[str]:
        """How a host triggers the case."""
        return list(_describe_request(self.entry))

    def duties(self) -> list[str]:
        """What a host must do."""
        return [*_describe_duties(self.entry.expect), "no process of the plugin is left running"]

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay badplugins show --json`."""
        entry, command = self.entry, self.command()
        return {
            "name": self.name,
            "contract": self.contract,
            "plugin_id": entry.plugin_id,
            "about": entry.row,
            "does": entry.what,
            "ask": self.asked(),
            "must": self.duties(),
            "expect": entry.expect.model_dump(exclude_unset=True),
            "command": None if command is None else command[0],
            "env": {} if command is None else command[1],
        }


def load_bad_plugins(contract: str) -> list[BadPlugin]:
    """Every bad plugin of a contract, in the order of its catalogue."""
    return [BadPlugin(contract, entry) for entry in load_catalog(contract)]


def _describe_request(entry: Entry) -> Iterator[str]:
    yield f"register it as {entry.plugin_id}, version 1.0.0"
    given = format_value(entry.input) if entry.input not in ({}, []) else "no input"
    words = WAYS[entry.way].format(tool=entry.tool, input=given)
    times = f", {entry.times} times; the last call counts" if entry.times > 1 else ""
    yield words + (", as a stream" if entry.stream else "") + times
    if entry.context:
        yield f"context of the call: {json.dumps(entry.context)}"
    if entry.grants:
        yield f"grant {', '.join(entry.grants)}"
    if entry.timeouts:
        yield "timeouts " + ", ".join(f"{name} {seconds:g} s" for name, seconds in entry.timeouts.items())
    if entry.events is not None:
        yield f"publish {entry.events.times:,} events on {entry.events.topic} before that"
    if entry.situation is not None:
        yield SITUATIONS[entry.situation]


def _describe_duties(expect: Expected) -> Iterator[str]:
    if expect.code is not None:
        yield f"the call fails as {expect.code}: {MEANINGS[expect.code]}"
    else:
        yield OUTCOMES[str(expect.outcome)] + (f" with {format_value(expect.output)}" if expect.says_output else "")
    if "failure" in expect.model_fields_set:
        yield f"the failure carries {format_value(expect.failure)}"
    if expect.chunks is not None:
        yield f"before that, the caller gets {format_value(expect.chunks)}"
    if expect.published is not None:
        what = f"exactly {format_value(expect.published)}" if expect.published else "none"
        yield f"of its published events, {what} reaches the bus"
    for name, least in expect.counts.items():
        yield f"{name.replace('_', ' ')} is counted, {least} or more"
    if expect.next is not None:
        yield NEXT[expect.next]
    if expect.parting is not None:
        well = expect.parting == "ok"
        yield "it exits when it is asked to" if well else f"the shutdown ends as {expect.parting}"

"""Builds the spec of a program without a manifest: greets it once and writes the manifest that its answer describes.

Works only for contracts in which the answer to the greeting lists the exports. Rules that the program breaks are not
reported here: the scenarios find them. Messages before the answer are skipped for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from plugbay.conformance.engine import manifests
from plugbay.conformance.engine.conversation import encode
from plugbay.conformance.engine.dialects import load_dialect
from plugbay.conformance.engine.plugin_runner import run_in_own_loop
from plugbay.conformance.engine.subject import Ended, Frame, Subject, Until
from plugbay.conformance.engine.trial import build_launch
from plugbay.conformance.reports.report import excerpt
from plugbay.contracts.kaged import manifest as kaged_manifest
from plugbay.contracts.kaged.messages import API_VERSION
from plugbay.contracts.nexo import manifest as nexo_manifest
from plugbay.contracts.nexo.messages import NEXO_VERSION
from plugbay.contracts.registry import CONTRACTS
from plugbay.contracts.rune import manifest as rune_manifest
from plugbay.contracts.rune.messages import PROTOCOL
from plugbay.model.errors import PlugbayError, Problem
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Spawner
from plugbay.process.command import LaunchFailed

ANSWER_SECONDS = 20.0
"""Time for the first answer: some programs are compiled first, and a scenario checks the real limit later."""

MAX_MESSAGES = 100
"""Messages that are read before the greeting fails for want of an answer."""

NAME = "conformance"
"""The plugin name, for contracts whose greeting passes one."""


class Greeting(NamedTuple):
    """The greeting of a contract, how its answer is recognised, and how an answer becomes a manifest."""

    greeting: Mapping[str, Any]
    answer: Mapping[str, Any]
    """The first message with these values, and without a method, is the answer."""
    manifest: Callable[[Mapping[str, Any], list[str]], str]
    """(its answer, its command) → the text."""
    parse: Callable[[str, Path, Mapping[str, str]], tuple[PluginSpec | None, list[Problem]]]


class GreetingFailed(PlugbayError):
    """The program did not answer the greeting properly."""


def spec_from_greeting(contract: str, command: tuple[str, ...], folder: Path) -> PluginSpec:
    """Start the command, greet it, and build its spec from the answer; blocks, in an event loop of its own."""
    if contract in CONTRACTS and CONTRACTS[contract].runtime_exports is not None:  # the run reads its exports
        return PluginSpec(NAME, "0", contract, folder, command)
    way = GREETINGS.get(contract)
    if way is None:
        raise GreetingFailed(
            f"a plugin of {contract} cannot be tested without its manifest; name its folder: "
            "plugbay conform PATH -- COMMAND"
        )
    answer = run_in_own_loop(_ask(PluginSpec(NAME, "0", contract, folder, command), way))
    try:
        spec, problems = way.parse(way.manifest(answer, list(command)), folder, {})
    except KeyError as error:
        spec, problems = None, [Problem("missing_field", "", f"it has no {error.args[0]!r}")]
    except (AttributeError, TypeError):
        spec, problems = None, [Problem("invalid_value", "", "a field that describes the plugin has the wrong type")]
    if spec is None:
        said, words = excerpt(json.dumps(answer).encode()), "; ".join(map(str, problems))
        raise GreetingFailed(f"{command[0]} answered the greeting of {contract} with {said}: {words}")
    return spec


async def _ask(program: PluginSpec, way: Greeting) -> Mapping[str, Any]:
    """The answer of the program to the greeting."""
    dialect, spawner = load_dialect(program.contract), Spawner()
    assert dialect is not None
    try:
        child = await spawner.spawn(build_launch(program), program.timeouts.launch)
        subject = Subject(child, dialect.framing())
        try:
            subject.send(subject.framing.wrap(encode(way.greeting)))
            return await _find_answer(program, way, subject)
        finally:
            await subject.close()
            await child.wait(program.timeouts.kill)
    except LaunchFailed as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise GreetingFailed(f"{program.command[0]} cannot be started: {error.message}{hint}") from None
    finally:
        await spawner.close()


async def _find_answer(program: PluginSpec, way: Greeting, subject: Subject) -> Mapping[str, Any]:
    until, first = Until(ANSWER_SECONDS), ""
    for _ in range(MAX_MESSAGES):
        frame = await subject.next_frame(until.left())
        if not isinstance(frame, Frame):
            break
        if not frame.problem and way.answer.items() <= frame.value.items() and "method" not in frame.value:
            answer: Mapping[str, Any] = frame.value
            return answer
        first = first or f"wrote {excerpt(frame.line)}, which is {frame.problem or 'not the answer'}, and "
    silence = "exited without an answer" if isinstance(frame, Ended) else f"did not answer within {ANSWER_SECONDS:g} s"
    last = next(iter(subject.child.stderr.tail(1)), "")
    stderr = f"; its last line on stderr: {last}" if last else ""
    raise GreetingFailed(
        f"{program.command[0]} {first}{silence} when it was greeted as a plugin of {program.contract}{stderr}"
    )


def _rune(answer: Mapping[str, Any], command: list[str]) -> str:
    said = answer["manifest"]
    manifest = {
        "plugin_id": said["plugin_id"],
        "plugin_version": said["plugin_version"],
        "protocol_version": PROTOCOL,
        "capabilities": said.get("capabilities") or [],
        "process": {"command": command[0], "args": command[1:]},
        "tools": [{"name": name} for name in said["exposed_tools"]],
    }
    return json.dumps(manifest)


def _nexo(answer: Mapping[str, Any], command: list[str]) -> str:
    said = answer["result"]["manifest"]["plugin"]
    tools = [tool["name"] for tool in answer["result"].get("tools") or ()]
    plugin = {
        "id": said["id"],
        "version": said.get("version", "0.0.0"),
        "name": said.get("name", said["id"]),
        "description": said.get("description") or "without a manifest",
        "min_nexo_version": said.get("min_nexo_version", ">=0.1.0"),
        "entrypoint": {"command": command[0], "args": command[1:]},
        "extends": {"tools": tools},
    }
    return "[plugin]\n" + "".join(f"{key} = {manifests.toml(value)}\n" for key, value in plugin.items())


def _kaged(answer: Mapping[str, Any], command: list[str]) -> str:
    said = answer["result"]
    own = f"{said['name']}."
    names = said.get("methods") or []
    tools = [name.removeprefix(own) for name in names if name.startswith(own) and "." not in name.removeprefix(own)]
    manifest = {
        "name": said["name"],
        "version": said["version"],
        "kaged_api": API_VERSION,
        "description": "without a manifest",
        "command": command,
        "capabilities": said.get("capabilities_used") or [],
        "notifications": said.get("notifications") or [],
        "methods": [name for name in names if name.removeprefix(own) not in tools],
        "tools": [{"name": name, "description": name, "parameters_schema": {"type": "object"}} for name in tools],
    }
    return json.dumps(manifest)


GREETINGS = {
    "rune": Greeting({"type": "handshake", "protocol_version": PROTOCOL}, {}, _rune, rune_manifest.parse),
    "nexo": Greeting(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"nexo_version": NEXO_VERSION}},
        {"id": 1},
        _nexo,
        nexo_manifest.parse,
    ),
    "kaged": Greeting(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "daemon_version": "0.1.0",
                "api_version": API_VERSION,
                "plugin_name": NAME,
                "storage_available": True,
                "projects": ["conformance"],
            },
        },
        {"id": 1},
        _kaged,
        kaged_manifest.parse,
    ),
}

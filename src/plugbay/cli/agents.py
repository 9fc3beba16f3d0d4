"""`plugbay hook HOOK [JSON]` and `plugbay compact [JSON]`: the turn of an agent, with the plugins attached to it.

The same operations as `Host.fire` and `Host.compact`; a plugin that fails is skipped and listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import target
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson, ConfigFile, Grant, GrantAll, NoSandbox, Server, Timeout, TokenFile, read_json
from plugbay.cli.render import output
from plugbay.cli.target import Folder

if TYPE_CHECKING:
    from plugbay.host.host import Host

Agent = Annotated[str, typer.Option(metavar="AGENT", help="An agent of plugbay.toml; primary by default.")]
Context = Annotated[str, typer.Option(metavar="JSON", help="The context of the calls, a JSON object.")]


def hook(
    name: Annotated[str, typer.Argument(metavar="HOOK", help="The hook; plugbay inspect lists those of a plugin.")],
    event: Annotated[str, typer.Argument(metavar="JSON|-", help="The event, {} by default; - reads stdin.")] = "{}",
    agent: Agent = "primary",
    context: Context = "{}",
    timeout: Timeout = None,
    plugins: Folder = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Call a hook of every plugin of an agent, in order.

    Prints the event after the changes of all plugins. A plugin that fails is skipped; a plugin may block the event.
    """
    body: dict[str, Any] = {
        "hook": name,
        "event": _object(event, "the event"),
        "agent": agent,
        "context": _object(context, "--context"),
    }
    options = {"grants": grant, "grant_all": grant_all, "unconfined": no_sandbox}
    asked = target.choose(plugins, server, token_file, config, quiet=as_json, **options)

    async def fire(host: Host) -> dict[str, Any]:
        outcome = await host.fire(name, body["event"], agent=agent, context=body["context"], timeout=timeout)
        return outcome.to_json()

    if asked.client is None:
        outcome = asked.run(fire)
    else:
        limit = {} if timeout is None else {"timeout_ms": max(1, round(timeout * 1000))}
        outcome = asked.client.post("/api/v1/hooks", {**body, **limit})
    if as_json:
        output.print_json({"asked": asked.asked, **outcome})
        return
    output.print_document(output.json_bytes(outcome["event"]))
    if outcome["blocked"]:
        output.note(f"{outcome['blocked_by']} blocked it: {outcome['reason'] or 'it gave no reason'}")
    _show_plugins(outcome["injections"], outcome["skipped"])


def compact(
    messages: Annotated[
        str, typer.Argument(metavar="JSON|-", help="The conversation, a list of messages; - reads stdin.")
    ],
    agent: Agent = "primary",
    trigger: Annotated[str, typer.Option(metavar="WORD", help="The reason; manual by default.")] = "manual",
    context: Context = "{}",
    plugins: Folder = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Compact a conversation with the plugins of an agent.

    Prints the remaining messages. The built-in strategy of the agent compacts when no plugin does.
    """
    body: dict[str, Any] = {
        "messages": _messages(messages),
        "agent": agent,
        "trigger": trigger,
        "context": _object(context, "--context"),
    }
    options = {"grants": grant, "grant_all": grant_all, "unconfined": no_sandbox}
    asked = target.choose(plugins, server, token_file, config, quiet=as_json, **options)

    async def shorten(host: Host) -> dict[str, Any]:
        outcome = await host.compact(body["messages"], agent=agent, trigger=trigger, context=body["context"])
        return outcome.to_json()

    outcome = asked.run(shorten) if asked.client is None else asked.client.post("/api/v1/compactions", body)
    if as_json:
        output.print_json({"asked": asked.asked, **outcome})
        return
    output.print_document(output.json_bytes(outcome["messages"]))
    because = f", because {outcome['built_in_because']}" if outcome["built_in_because"] else ""
    by = outcome["compacted_by"] or f"the built-in strategy{because}"
    output.note(f"removed {output.count(len(outcome['removed']), 'message')}{output.DOT}by {by}")
    _show_plugins(outcome["injections"], outcome["failures"])


def _show_plugins(injections: Sequence[dict[str, Any]], failures: Sequence[dict[str, Any]]) -> None:
    for each in injections:
        output.note(f"{each['plugin']} adds to the conversation: {each['text']}")
    for each in failures:
        output.note(f"{each['plugin']} was skipped: {each['failure']['message']} ({each['failure']['code']})")


def _object(text: str, name: str) -> dict[str, Any]:
    value = read_json(text, name)
    if isinstance(value, dict):
        return value
    raise refusal(f"{name} must be a JSON object", 'for example {"prompt": "tea?"}', Exit.USAGE)


def _messages(text: str) -> list[dict[str, Any]]:
    value = read_json(text, "the conversation")
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    hint = 'for example [{"role": "user", "content": "tea?"}]'
    raise refusal("the conversation must be a JSON list of objects", hint, Exit.USAGE)

"""`plugbay publish TOPIC [JSON]` and `plugbay events [PATTERN]`: publish and watch the events of a host."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import exit_codes, target
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson, ConfigFile, Grant, GrantAll, NoSandbox, Server, TokenFile, read_json
from plugbay.cli.render import output
from plugbay.cli.target import Folder, Target
from plugbay.model.topics import pattern_problem, subject_problem

if TYPE_CHECKING:
    from plugbay.host.host import Host

PATH = "/api/v1/events"
OPERATOR = "operator"
"""The source of events that the operator publishes."""

WATCHED = 1024
"""Events of a local host that wait until they are printed."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, such as orders.created.")]
Payload = Annotated[str, typer.Argument(metavar="JSON|-", help="The payload, {} by default; - reads stdin.")]
SessionId = Annotated[
    str | None, typer.Option("--session-id", metavar="UUID", help="The conversation that the event belongs to.")
]


def publish(
    topic: Topic,
    payload: Payload = "{}",
    session_id: SessionId = None,
    plugins: Folder = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event to the plugins of the running server.

    Its source is `operator`. With --plugins, the plugins of a folder start, get the event and stop.
    """
    problem = subject_problem(topic)
    if problem is not None:
        raise refusal(f"cannot publish to {topic!r}: {problem}", "a topic is like orders.created", Exit.USAGE)
    body = {"topic": topic, "payload": read_json(payload, "the payload"), "session_id": _check_session(session_id)}
    options = {"grants": grant, "grant_all": grant_all, "unconfined": no_sandbox}
    asked = target.choose(plugins, server, token_file, config, quiet=as_json, **options)
    published = _publish_locally(asked, body) if asked.client is None else asked.client.post(PATH, body)
    if as_json:
        output.print_json({"asked": asked.asked, **published})
        return
    subscribers = ", ".join(published["subscribers"]) or "no plugin"
    output.err().line(
        (output.OK, output.GOOD_STYLE),
        " published ",
        (topic, output.NAME),
        f"{output.DOT}event {published['id']}{output.DOT}subscribed: {subscribers}",
    )


def _check_session(session_id: str | None) -> str | None:
    from plugbay.host.stamps import is_uuid

    if session_id is not None and not is_uuid(session_id):
        hint = "for example 8c7d1f0e-3b5a-4b1e-9a53-0d0c2f6f7a11"
        raise refusal(f"--session-id {session_id!r} is not a UUID", hint, Exit.USAGE)
    return session_id


def _publish_locally(asked: Target, body: dict[str, Any]) -> dict[str, Any]:
    async def work(host: Host) -> dict[str, Any]:
        event = host.publish(body["topic"], body["payload"], source=OPERATOR, session_id=body["session_id"])
        return {**event.to_json(), "subscribers": host.subscribers(body["topic"])}

    return asked.run(work)


# plugbay events.

Pattern = Annotated[
    str,
    typer.Argument(metavar="PATTERN", help="Topics: * stands for one segment, > for the rest; > alone by default."),
]
Count = Annotated[int | None, typer.Option(metavar="N", min=1, help="End after this number of events.")]
EventsAsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each event.")]


def events(
    pattern: Pattern = ">",
    count: Count = None,
    plugins: Folder = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: EventsAsJson = False,
) -> None:
    """Print the events of the running server as they happen, until Ctrl-C.

    With --plugins, starts the plugins of a folder and prints their events.
    """
    problem = pattern_problem(pattern)
    if problem is not None:
        raise refusal(problem, "a pattern is like orders.* or orders.>", Exit.USAGE)
    options = {"grants": grant, "grant_all": grant_all, "unconfined": no_sandbox}
    asked = target.choose(plugins, server, token_file, config, quiet=as_json, **options)
    watch = _watch_locally if asked.client is None else _watch_server
    try:
        watch(asked, pattern, count, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.for_signal(signal.SIGINT)) from None


def _watch_server(asked: Target, pattern: str, count: int | None, as_json: bool) -> None:
    assert asked.client is not None
    watched = asked.client.events("GET", PATH, topic=pattern)
    output.note(f"watching topics {pattern}; Ctrl-C ends this")
    for event in _first(watched, count):
        _show(event, as_json)


def _first(watched: Iterator[tuple[str, Any]], count: int | None) -> Iterator[Any]:
    """The data of the events, at most `count` of them; waits for no further one after the last."""
    for number, (_, event) in enumerate(watched, start=1):
        yield event
        if number == count:
            return


def _watch_locally(asked: Target, pattern: str, count: int | None, as_json: bool) -> None:
    async def work(host: Host) -> None:
        number = 0
        async with host.subscribe(pattern, depth=WATCHED) as stream:
            output.note(f"watching topics {pattern}; Ctrl-C ends this")
            async for event in stream:
                _show(event.to_json(), as_json)
                number += 1
                if number == count:
                    return

    asked.run(work, settled=False)


def _show(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_line(event)
        return
    session = f"  session {event['session_id']}" if event["session_id"] else ""
    output.out().line(
        (f"{event['timestamp']} {event['source']} ", output.DIM),
        (event["topic"], output.NAME),
        f" {output.json_bytes(event['payload']).decode()}",
        (session, output.DIM),
    )

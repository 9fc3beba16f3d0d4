"""`make tour`: calls every example plugin and prints the results.

Shows the plugins and their languages, results and a refusal, events between plugins and their host, a screen, and
command lines.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from plugbay import Host
from plugbay.host.confinement.policy import Confinement
from plugbay.host.request import CallResult
from plugbay.host.screens.keys import parse_key
from plugbay.model.spec import PluginSpec
from plugbay.tui.picture import rich_text

HERE = Path(__file__).parent

CONFIG = """\
[host]
state_dir = "state"

[project]
root = "project"

[memory]
path = "memory.db"

[plugins."example.greeter"]
grants = ["tool.execute"]

[plugins.memory_notes]
grants = ["memory.recall", "llm.complete"]

[plugins.session-memory]
grants = ["kaged:storage:read", "kaged:storage:write"]

[plugins.price-notifier]
config = { seconds = 0.1 }

[plugins.window-compactor]
config = { keep = 2, threshold = 5 }

[plugins.usage-publisher]
grants = ["event_bus=usage.*"]

[plugins.usage-burndown]
grants = ["event_bus=usage.*"]
"""

PROJECT = "project"
"""The project folder of the configuration; confined plugins see it if it is granted."""

QUESTION = {"question": "What does Ada drink?", "provider": "toy", "model": "quote", "stream": True}

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("Python, with the plugbay SDK", "greet", {"name": "Ada", "excited": True}),
    ("POSIX shell, no SDK", "facts", {}),
    ("Perl, no SDK", "stats", {"numbers": [3, 1, 4, 1, 5]}),
    ("JavaScript, no SDK", "text_tools_slug", {"text": "Crème brûlée, twice!"}),
    ("Python, with nexo's own SDK\n[dim]asks for memory and a model[/]", "memory_notes_ask", QUESTION),
    (
        "Python, a kaged plugin\n[dim]keeps it with the host[/]",
        "session-memory/remember",
        {"text": "Ada is allergic to nuts."},
    ),
    ("JavaScript, an MCP server, no SDK", "search_notes", {"query": "tea"}),
    ("… the plugin's own refusal", "divide", {"dividend": 1, "divisor": 0}),
    ("… stopped before it starts", "stats", {"numbers": "many"}),
]

MESSAGE = {"sender": "Ada", "body": "write to ada@example.org"}

TALK = ["A cake for Ada?", "With nuts?", "Better not.", "With poppy seeds?", "Fine.", "For how many?", "For six."]

SCREEN, SIZE, KEY = "usage-burndown/burndown", (96, 26), "down"

MOST_LOOKS = 100
"""Frames until the plugin requests no redraw."""

COMMANDS = ["usage --limit 60M", "usage --by week", "clock --help"]

KINDS = {"llm_provider": "model", "cli_namespace": "command"}
"""Other names for kinds of exports."""

NEXT = """\
[bold]Next[/], with .venv/bin on your PATH
  plugbay inspect examples/relay-channel
  plugbay call examples/greeter greet '{"name": "you"}' --grant tool.execute
  plugbay call examples/text-tools-js text_tools_count '{"text": "a b c"}'
  plugbay config show examples/session-memory
  plugbay sandbox examples/session-memory -- sh
  plugbay tui examples --grant-all
  plugbay conform examples/machine-facts"""


def table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold cyan")


def exports(spec: PluginSpec) -> str:
    """A line for each kind of export; tools have no label."""
    kinds: dict[str, list[str]] = {}
    for export in spec.exports:
        kinds.setdefault(KINDS.get(export.kind, export.kind), []).append(export.name)
    lines = {kind: ", ".join(names) for kind, names in kinds.items()}
    return "\n".join(line if kind == "tool" else f"[dim]{kind}[/] {line}" for kind, line in lines.items())


def plugins(host: Host) -> Table:
    shown = table("plugin", "version", "contract", "exports", "granted", "sandbox")
    for status in sorted(
        host.plugins(), key=lambda status: (status.spec.lifetime, status.spec.contract, status.spec.id)
    ):
        spec = status.spec
        granted = ", ".join(status.granted) or "[dim]nothing[/]"
        shown.add_row(spec.id, spec.version, spec.contract, exports(spec), granted, sandbox(status.confinement))
    return shown


def sandbox(confinement: Confinement) -> str:
    """The confinement of a plugin, with its network."""
    policy = confinement.policy
    return "[dim]none[/]" if policy is None else f"[green]confined[/]\n[dim]network {policy.network}[/]"


def row(what: str, name: str, given: dict[str, Any], result: CallResult) -> tuple[str, str, str, str]:
    failure = result.failure
    outcome = f"[red]{failure.code}[/]\n{failure.message}" if failure else f"[green]{show(result.value())}[/]"
    return what, about(name, given), outcome, f"{result.record.duration_ms:.0f} ms"


def show(value: Any) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


async def calls(host: Host) -> Table:
    assert host.memory is not None
    await host.memory.remember("demo", "Ada drinks tea without milk.")
    shown = table("written in", "call", "answer", "took")
    for what, name, given in CALLS:
        shown.add_row(*row(what, name, given, await host.attempt(name, given)), end_section=True)
    return shown


async def happenings(host: Host, project: Path) -> Table:
    """Hooks, a compaction, events in both directions, and one caused by a file."""
    shown = table("nobody calls", "what happens", "what comes of it")
    for cells in [*await hooks(host), *await events(host), await crossing(host, project / "prices.json")]:
        shown.add_row(*cells, end_section=True)
    return shown


Row = tuple[str, str, str]


async def hooks(host: Host) -> list[Row]:
    """Hooks before a message, at the start of a session, and for a long conversation."""
    changed = await host.fire("before_message", MESSAGE)
    told = await host.fire("on_session_start", {})
    talk = [{"role": "user" if at % 2 == 0 else "assistant", "content": said} for at, said in enumerate(TALK)]
    short = await host.compact(talk, trigger="token_limit")
    left = f"{short.compacted_by}: {len(talk)} → {len(short.messages)}"
    return [
        ("a hook has its say", about("before_message", MESSAGE), came("the body", changed.event["body"])),
        ("a session is told", about("on_session_start", {}), came("injected", told.injections[0][1])),
        ("a talk is made shorter", about("host.compact", TALK), came(left, short.messages[1]["content"])),
    ]


async def events(host: Host) -> list[Row]:
    """A message from a real socket through the relay, and back."""
    async with host.subscribe("plugin.inbound.relay") as inbound:
        await host.channels["relay"].start()
        reader, writer = await asyncio.open_connection("127.0.0.1", (await anext(inbound)).payload["port"])
        await reader.readline()  # it says who we are
        writer.write(b"anybody there?\n")
        event = await anext(inbound)
        rows = [("a line becomes an event", about("typed", "anybody there?"), came(event.topic, event.payload))]
        answer = {"text": "Always.", "to": event.payload["from"]}
        host.publish("plugin.outbound.relay", answer)
        line = (await reader.readline()).decode().strip()
        rows += [("an event becomes a line", about("plugin.outbound.relay", answer), came("read", line))]
        writer.close()
        await writer.wait_closed()
    return rows


async def crossing(host: Host, prices: Path) -> Row:
    """A plugin watches a file of the project, and notifies the host."""
    write = asyncio.to_thread
    await write(prices.write_text, '{"tea": 4.2}')
    await host.call("watch", {"item": "tea", "above": 5})
    await host.call("prices.refresh")
    async with host.subscribe("plugin.price-notifier.crossed") as notified:
        await write(prices.write_text, '{"tea": 5.5}')
        event = await anext(notified)
    return "a file changes", about(prices.name, {"tea": 5.5}), came(event.topic, event.payload)


async def screen(host: Host) -> Panel:
    """A frame drawn from data of another plugin, after a key."""
    await host.screens.render(SCREEN, *SIZE)
    host.screens.press(SCREEN, parse_key(KEY))
    for _ in range(MOST_LOOKS):
        frame = await host.screens.render(SCREEN, *SIZE)
        if not frame.redraw:
            break
        await asyncio.sleep(0.05)  # it has not heard everything yet
    return Panel(
        rich_text(frame), title=f"[bold cyan]{SCREEN}[/] after the key {KEY}", border_style="dim", expand=False
    )


async def commands(host: Host) -> Table:
    """Command lines of plugins, with their output and status."""
    shown = table("command line", "prints", "status")
    for line in COMMANDS:
        namespace, *words = line.split()
        done = await host.run_cli(namespace, words)
        output, complaint = (escape(text.decode().rstrip()) for text in (done.stdout, done.stderr))
        colours = [f"[green]{output}[/]"] if output else []
        colours += [f"[red]{complaint}[/]"] if complaint else []
        shown.add_row(line, "\n".join(colours), str(done.exit_code), end_section=True)
    return shown


def about(name: str, given: Any) -> str:
    return f"{name}\n[dim]{show(given)}[/]"


def came(where: str, value: Any) -> str:
    return f"{where}\n[green]{show(value)}[/]"


async def tour(console: Console, config: Path) -> None:
    async with Host.load(HERE, config=config, trusted=["notebook-js"]) as host:
        await host.settled()
        await host.meet("notebook-js")  # an MCP server says what it offers when it is greeted
        console.print(plugins(host), await calls(host), await happenings(host, config.with_name(PROJECT)))
        console.print(await screen(host), await commands(host))
    console.print(NEXT, highlight=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "plugbay.toml")
        config.write_text(CONFIG)
        config.with_name(PROJECT).mkdir()
        asyncio.run(tour(Console(), config))


if __name__ == "__main__":
    main()

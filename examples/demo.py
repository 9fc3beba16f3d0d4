"""`make run`: every example plugin, called once, with what came back.

A tour for the eye: which plugins there are, in which language, what each answers, and how a refusal looks.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from plugbay import Host
from plugbay.host.host import CallResult

HERE = Path(__file__).parent

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("Python, with the plugbay SDK", "greet", {"name": "Ada", "excited": True}),
    ("POSIX shell, no SDK", "facts", {}),
    ("Perl, no SDK", "stats", {"numbers": [3, 1, 4, 1, 5]}),
    ("… the plugin's own refusal", "divide", {"dividend": 1, "divisor": 0}),
    ("… stopped before it starts", "stats", {"numbers": "many"}),
]


NEXT = """\
[bold]Next[/], with .venv/bin on your PATH
  plugbay inspect examples/greeter
  plugbay call examples/greeter greet '{"name": "you"}' --grant tool.execute
  plugbay conform examples/machine-facts"""


def table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold cyan")


def row(what: str, name: str, given: dict[str, Any], result: CallResult) -> tuple[str, str, str, str]:
    failure = result.failure
    outcome = f"[red]{failure.code}[/]\n{failure.message}" if failure else f"[green]{json.dumps(result.value())}[/]"
    return what, f"{name}\n[dim]{json.dumps(given)}[/]", outcome, f"{result.record.duration_ms:.0f} ms"


async def main() -> None:
    console = Console()
    async with Host.load(HERE, grants=["tool.execute"]) as host:
        plugins = table("plugin", "version", "contract", "exports", "granted")
        for status in host.plugins():
            spec = status.spec
            exports = ", ".join(export.name for export in spec.exports)
            plugins.add_row(spec.id, spec.version, spec.contract, exports, ", ".join(status.granted) or "nothing")
        calls = table("written in", "call", "answer", "took")
        for what, name, given in CALLS:
            calls.add_row(*row(what, name, given, await host.attempt(name, given)), end_section=True)
        console.print(plugins, calls)
    console.print(NEXT, highlight=False)


if __name__ == "__main__":
    asyncio.run(main())

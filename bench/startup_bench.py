"""`startup`: from spawn to the first tool result of an SDK plugin, beside bare Python, a plain child and MCP.

No host takes part: the children are driven by hand, with an empty environment as from a rune host. The SDK plugin is
measured twice: as authors run it, with `site` and the `.pth` files of the environment, and with `-I -S` and the folder
of plugbay on the path.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from bench import exchange
from bench.harness import (
    CHILDREN,
    ROOT,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Rounds,
    Sample,
    interleave,
    missing,
    serve,
)

NAME = "startup"
TITLE = "Spawn to first tool result"

PLUGIN = CHILDREN / "echo_sdk" / "plugin.py"


def run(options: Options) -> Comparison:
    """Every kind of child, round by round."""
    many, few = {"starts": options.size(10, 4)}, {"starts": options.size(2, 1)}
    entries = [
        Entry("bare", "python -I -S -c pass, whole process", many),
        Entry("sdk", "SDK plugin, python3 plugin.py", many),
        Entry("sdk-is", "SDK plugin, -I -S and the path", many),
        Entry("stdlib", "by hand with the stdlib, python3 child.py", many),
        Entry("stdlib-is", "by hand with the stdlib, -I -S", many),
        Entry("mcp", "MCP Python SDK server", few, needs="mcp"),
    ]
    rounds = interleave("bench.startup_bench", entries, options)
    columns = [Column("first_result_ms", "first result ms"), Column("whole_ms", "until gone ms")]
    return Comparison(NAME, TITLE, _findings(rounds), columns, rounds, missing(entries))


def _findings(rounds: Rounds) -> list[Finding]:
    figure = "first_result_ms"
    as_run = rounds.ratio("sdk", "bare", figure)
    isolated = rounds.ratio("sdk-is", "bare", figure)
    assert as_run is not None and isolated is not None
    best = min(as_run, isolated, key=lambda spread: spread.median)
    name = "-I -S" if best is isolated else "python3 plugin.py"
    return [
        Finding("SDK plugin, python3 plugin.py / bare Python", as_run),
        Finding("SDK plugin, -I -S / bare Python", isolated),
        Finding(f"SDK plugin, best of the two ({name}) / bare Python", best, at_most=2.5),
        Finding("SDK plugin / by hand with the stdlib, both python3", rounds.ratio("sdk", "stdlib", figure)),
        Finding("SDK plugin / by hand with the stdlib, both -I -S", rounds.ratio("sdk-is", "stdlib-is", figure)),
        Finding("MCP server / SDK plugin, both python3", rounds.ratio("mcp", "sdk", figure)),
    ]


# The contenders.


def _isolated(script: Path) -> list[str]:
    """Run a script with neither `site` nor anything of the environment, but with plugbay to be found."""
    import plugbay

    home = str(Path(plugbay.__file__).parent.parent)
    load = f"exec(compile(open({str(script)!r}).read(), {script.name!r}, 'exec'))"
    code = f"import sys; sys.path.insert(0, {home!r}); {load}"
    return [sys.executable, "-I", "-S", "-c", code]


def _contender(converse: Any, argv: list[str]) -> Any:
    def contender(params: dict[str, Any]) -> Sample:
        converse(argv, ROOT, {})
        times = [converse(argv, ROOT, {}) for _ in range(params["starts"])]
        return {
            "first_result_ms": statistics.median(time.first_result_ms for time in times),
            "whole_ms": statistics.median(time.whole_ms for time in times),
        }

    return contender


if __name__ == "__main__":
    stdlib = str(CHILDREN / "stdlib_child.py")
    serve(
        {
            "bare": _contender(exchange.nothing, [sys.executable, "-I", "-S", "-c", "pass"]),
            "sdk": _contender(exchange.rune, [sys.executable, str(PLUGIN)]),
            "sdk-is": _contender(exchange.rune, _isolated(PLUGIN)),
            "stdlib": _contender(exchange.rune, [sys.executable, stdlib]),
            "stdlib-is": _contender(exchange.rune, [sys.executable, "-I", "-S", stdlib]),
            "mcp": _contender(exchange.mcp, [sys.executable, str(CHILDREN / "mcp_server.py")]),
        }
    )

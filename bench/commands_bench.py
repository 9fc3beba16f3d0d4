"""`commands`: the command line beside a bare Python: help, `inspect` of one plugin, `call` of one tool.

Each runs as a user runs it, without a terminal, bytecode written before. The called tool is a plugin of the SDK, and
its own start is part of the call.
"""

from __future__ import annotations

import os
import statistics
import sys
from typing import Any

from bench import exchange
from bench.harness import (
    CHILDREN,
    PAYLOAD,
    ROOT,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    interleave,
    missing,
    serve,
)

NAME = "commands"
TITLE = "The command line, in units of a bare Python"

PLUGIN = CHILDREN / "echo_sdk"
GOALS = {"help": 10, "inspect": 23, "call": 27}


def run(options: Options) -> Comparison:
    """Every command, round by round."""
    params = {"starts": options.size(5, 2)}
    entries = [
        Entry("bare", "python -c pass", params),
        Entry("by_hand", "the plugin by hand, one call", params),
        Entry("help", "plugbay --help", params),
        Entry("inspect", "plugbay inspect PLUGIN", params),
        Entry("call", "plugbay call PLUGIN echo", params),
    ]
    rounds = interleave("bench.commands_bench", entries, options)
    findings = [
        Finding(f"{key} / bare Python", rounds.ratio(key, "bare", "whole_ms"), at_most=goal)
        for key, goal in GOALS.items()
    ]
    findings.append(Finding("the plugin by hand / bare Python", rounds.ratio("by_hand", "bare", "whole_ms")))
    return Comparison(NAME, TITLE, findings, [Column("whole_ms", "whole ms")], rounds, missing(entries))


def _contender(converse: Any, *argv: str) -> Any:
    def contender(params: dict[str, Any]) -> Sample:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        converse(argv, ROOT, env)
        return {"whole_ms": statistics.median(converse(argv, ROOT, env).whole_ms for _ in range(params["starts"]))}

    return contender


if __name__ == "__main__":
    plugbay = (sys.executable, "-m", "plugbay")
    serve(
        {
            "bare": _contender(exchange.nothing, sys.executable, "-c", "pass"),
            "by_hand": _contender(exchange.rune, sys.executable, str(PLUGIN / "plugin.py")),
            "help": _contender(exchange.nothing, *plugbay, "--help"),
            "inspect": _contender(exchange.nothing, *plugbay, "inspect", str(PLUGIN)),
            "call": _contender(exchange.nothing, *plugbay, "call", str(PLUGIN), "echo", f"text={PAYLOAD}"),
        }
    )

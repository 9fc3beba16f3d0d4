"""An echo plugin written with the SDK, on the core BENCH_CORE."""

from __future__ import annotations

import os

from plugbay.sdk import Plugin

plugin = Plugin("bench_sdk", version="1.0.0")

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@plugin.tool(description="Send the text back.", input_schema=SCHEMA)
def echo(text: str) -> dict[str, str]:
    """The one tool."""
    return {"text": text}


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    plugin.run()

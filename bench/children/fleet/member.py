"""An SDK plugin named after its folder. It echoes a text, or exits on request."""

from __future__ import annotations

import os
from pathlib import Path

from plugbay.sdk import Plugin

plugin = Plugin(Path(__file__).resolve().parent.name, version="1.0.0")

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@plugin.tool(description="Send the text back.", input_schema=SCHEMA)
def echo(text: str) -> dict[str, str]:
    """What it is asked for all the time."""
    return {"text": text}


@plugin.tool(description="Die.")
def die() -> str:
    """What it is asked for once."""
    os._exit(3)


if __name__ == "__main__":
    plugin.run()

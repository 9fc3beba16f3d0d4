"""An echo plugin written with the SDK."""

from __future__ import annotations

from plugbay.sdk import Plugin

plugin = Plugin("bench.echo", version="1.0.0")


@plugin.tool(description="Send the text back.")
def echo(text: str) -> dict[str, str]:
    """The one tool."""
    return {"text": text}


if __name__ == "__main__":
    plugin.run()

"""The plugin of the comparison `adapters`: one echo tool, written with the SDK."""

from __future__ import annotations

from plugbay.sdk import Plugin

plugin = Plugin("bench", version="1.0.0", description="An echo.")


@plugin.tool(description="Say it again.", execution_class="worker")
def echo(text: str) -> dict[str, str]:
    return {"text": text}


if __name__ == "__main__":
    plugin.run()

"""The example of `make cluster`: names the node of a call. Nodes of one machine differ by their folders."""

from __future__ import annotations

import time
from pathlib import Path

from plugbay.sdk import Plugin

plugin = Plugin("where", version="1.0.0", description="Says on which node it runs.")


@plugin.tool(effect="read_only", max_concurrency=8)
def node(seconds: float = 0) -> dict[str, str]:
    """Work for some seconds, and name the node.

    Args:
        seconds: How long the work takes, 0 to 60.
    """
    time.sleep(min(max(seconds, 0), 60))
    folders = Path(__file__).parts
    return {"node": folders[folders.index("packages") - 1] if "packages" in folders else "none"}


if __name__ == "__main__":
    plugin.run()

"""Answers everything as the contract says.

Nothing is wrong with it: the positive control, and the call that must work after each bad one.
"""

from __future__ import annotations

import child

child.greet(
    manifest={"plugin": {**child.PLUGIN, "id": "good"}},
    server_version="good-1.0.0",
    tools=[{**child.TOOL, "name": "good_tool"}],
)
child.serve()

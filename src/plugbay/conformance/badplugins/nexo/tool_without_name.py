"""Offers a tool without name.

An entry has three keys: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=[{key: value for key, value in child.TOOL.items() if key != "name"}])
child.serve()

"""Offers a tool without description.

An entry has three keys: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=[{key: value for key, value in child.TOOL.items() if key != "description"}])
child.serve()

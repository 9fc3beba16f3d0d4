"""Offers a tool whose input_schema is a text.

A schema is an object: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=[{**child.TOOL, "input_schema": "object"}])
child.serve()

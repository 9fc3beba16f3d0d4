"""Offers a tool whose schema the caller's input does not fit.

The host checks args before it asks: invalid_input.
"""

from __future__ import annotations

import child

SCHEMA = {"type": "object", "required": ["city"]}
child.greet(tools=[{**child.TOOL, "input_schema": SCHEMA}])
child.serve()

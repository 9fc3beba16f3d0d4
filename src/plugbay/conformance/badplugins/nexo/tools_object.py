"""Answers initialize with an object as its tools.

Tools is an array if it is there: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools={"bad_tool": child.TOOL})
child.serve()

"""Answers initialize with null as its tools.

Tools is an array if it is there: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=None)
child.serve()

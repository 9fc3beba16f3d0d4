"""Offers the same tool twice.

Nobody could know which one answers: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=[child.TOOL, child.TOOL])
child.serve()

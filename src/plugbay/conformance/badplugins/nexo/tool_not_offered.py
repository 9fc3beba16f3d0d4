"""Declares a tool in its manifest and does not offer it.

Tolerated, but a call ends here: tool_not_exposed.
"""

from __future__ import annotations

import child

child.greet(tools=[])
child.serve()

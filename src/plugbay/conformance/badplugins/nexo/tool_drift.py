"""Offers a tool that its manifest does not declare.

Drift is a hard failure: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(tools=[child.TOOL, {**child.TOOL, "name": "bad_extra"}])
child.serve()

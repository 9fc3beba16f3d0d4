"""Answers initialize with an error.

The host kills it and refuses to load it: handshake_failed.
"""

from __future__ import annotations

import child

child.say(id=child.read()["id"], error={"code": -32603, "message": "not today"})
child.serve()

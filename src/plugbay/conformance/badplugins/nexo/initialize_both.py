"""Answers initialize with a result and an error.

Never both, and an error refuses: handshake_failed.
"""

from __future__ import annotations

import child

child.say(id=child.read()["id"], result=child.hello(), error={"code": -32603, "message": "no"})
child.serve()

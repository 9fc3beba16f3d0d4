"""Answers initialize with null.

The result must be an object: handshake_failed.
"""

from __future__ import annotations

import child

child.say(id=child.read()["id"], result=None)
child.serve()

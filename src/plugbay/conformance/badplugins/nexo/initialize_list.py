"""Answers initialize with a list.

The result must be an object: handshake_failed.
"""

from __future__ import annotations

import child

child.say(id=child.read()["id"], result=[])
child.serve()

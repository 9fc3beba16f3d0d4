"""Answers initialize with a number as plugin.id.

An answer that does not say who it is: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(manifest={"plugin": {"id": 7}})
child.serve()

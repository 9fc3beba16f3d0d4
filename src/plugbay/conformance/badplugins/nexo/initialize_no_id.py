"""Answers initialize without a plugin.id.

An answer that does not say who it is: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(manifest={"plugin": {"version": "1.0.0"}})
child.serve()

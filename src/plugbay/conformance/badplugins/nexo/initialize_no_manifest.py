"""Answers initialize without a manifest.

An answer that does not say who it is: handshake_failed.
"""

from __future__ import annotations

import child

child.greet(manifest=None)
child.serve()

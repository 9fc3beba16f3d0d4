"""Answers initialize without a server_version.

The host does not need it: accepted.
"""

from __future__ import annotations

import child

child.greet(server_version=None)
child.serve()

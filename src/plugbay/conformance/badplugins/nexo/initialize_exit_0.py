"""Exits with 0 before it answers initialize.

An exit nobody asked for: crashed.
"""

from __future__ import annotations

import child

child.read()

"""Crashes before it answers initialize, every time.

After a few times nobody tries any more: quarantined.
"""

from __future__ import annotations

import sys

import child

child.read()
sys.exit(7)

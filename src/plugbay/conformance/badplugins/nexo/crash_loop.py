"""Crashes in every call.

After a few times nobody tries any more: quarantined.
"""

from __future__ import annotations

import sys

import child

child.greet()
child.asked()
sys.exit(7)

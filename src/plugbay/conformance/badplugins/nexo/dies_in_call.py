"""Exits with 3 in the middle of a call.

Who waits is told at once, with its last words: crashed.
"""

from __future__ import annotations

import sys

import child

child.greet()
request = child.asked()
sys.exit("out of memory")

"""Reads its events slowly.

Events are dropped, answers are not: accepted.
"""

from __future__ import annotations

import time

import child

child.greet()
time.sleep(0.5)
child.serve()

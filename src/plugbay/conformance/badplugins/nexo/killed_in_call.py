"""Is killed by a signal in the middle of a call.

Who waits is told at once: crashed.
"""

from __future__ import annotations

import os

import child

child.greet()
request = child.asked()
os.kill(os.getpid(), 9)

"""Writes a line that never ends.

It is dropped as it comes, and memory does not grow: timeout.
"""

from __future__ import annotations

import child

child.greet()
child.asked()
while True:
    child.write(b"x" * 65_536)

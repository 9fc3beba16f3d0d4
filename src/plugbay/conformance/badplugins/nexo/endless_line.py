"""Writes a line that never ends.

It is dropped as it comes, memory does not grow, and at 256 MiB the process goes: frame_too_large.
"""

from __future__ import annotations

import child

child.greet()
child.asked()
while True:
    child.write(b"x" * 65_536)

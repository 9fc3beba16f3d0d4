"""Writes lines without end and never answers.

Others are served all the while: timeout.
"""

from __future__ import annotations

import child

child.greet()
child.asked()
while True:
    child.write(b"spam\n" * 1000)

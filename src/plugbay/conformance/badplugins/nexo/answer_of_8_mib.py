"""Answers with a line of 8 MiB.

Larger than a pipe, but a screenshot is: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result="x" * (8 << 20))
child.serve()

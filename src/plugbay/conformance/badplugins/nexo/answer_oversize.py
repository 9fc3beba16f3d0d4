"""Answers with a line of 17 MiB.

The line is dropped, so there is no answer: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result="x" * (17 << 20))
child.serve()

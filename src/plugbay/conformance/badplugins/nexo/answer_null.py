"""Answers with null as its result.

Any JSON is a result: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"], result=None)
child.serve()

"""Says that it could not parse something before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=None, error={"code": -32700, "message": "parse error"})
child.say(id=request["id"], result=child.SAID)
child.serve()

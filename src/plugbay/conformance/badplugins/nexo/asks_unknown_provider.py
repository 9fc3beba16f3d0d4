"""Asks a model of a provider nobody has.

Refused with -32603: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
hi = [{"role": "user", "content": "hi"}]
child.say(id=1, method="llm.complete", params={"provider": "nobody", "model": "m", "messages": hi})
child.say(id=request["id"], result=child.answers()["error"]["code"])
child.serve()
